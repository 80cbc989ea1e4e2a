package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/internal/caps"
)

// commandGroups are the headings of the list of commands.
var commandGroups = []struct {
	title string
	names []string
}{
	{"Record and look", []string{"record", "top", "stack", "threads", "trace", "io", "demo"}},
	{"Use a recording", []string{"view", "report", "export", "sql"}},
	{"Flight recorder", []string{"watch", "dump", "ls", "recover"}},
	{"Java heap", []string{"heap", "hprof"}},
	{"This program", []string{"doctor", "explain", "completion", "version"}},
}

// rootCommand returns the whole command line.
func rootCommand(e *env) *cobra.Command {
	root := &cobra.Command{
		Use: "sliver", SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			if v, _ := c.Flags().GetBool("version"); v {
				return versionCommand().run(c.Context(), e, nil)
			}
			usage(e.stderr)
			return &usageError{msg: "no command given"}
		},
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.Flags().BoolP("version", "V", false, "print the version")
	root.SetHelpFunc(func(*cobra.Command, []string) { usage(e.stdout) })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usagef("", "%s", explainFlags(err, c.Flags())) })
	root.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: "show the help of a command", ValidArgsFunction: completeCommands,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				usage(e.stdout)
				return nil
			}
			return dispatch([]string{args[0], "--help"}, e)
		}})
	for _, c := range commands() {
		root.AddCommand(c.cobra(e))
	}
	return root
}

// cobra returns the command for the library.
func (c *command) cobra(e *env) *cobra.Command {
	notes, examples := c.parts()
	out := &cobra.Command{
		Use: strings.TrimSpace(c.name + " " + c.args), Short: c.short, Long: notes, Example: examples, DisableFlagsInUseLine: true,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: c.complete,
	}
	c.register(out.Flags())
	out.RunE = func(x *cobra.Command, args []string) error { return c.start(x.Context(), e, x.Flags(), args) }
	out.SetHelpFunc(func(x *cobra.Command, _ []string) { c.usage(e.stdout, x.Flags()) })
	out.SetFlagErrorFunc(func(x *cobra.Command, err error) error { return usagef(c.name, "%s", explainFlags(err, x.Flags())) })
	completeFlags(out)
	return out
}

// parts splits the help into notes and examples.
func (c *command) parts() (notes, examples string) {
	notes, rest, ok := strings.Cut(strings.TrimSpace("\n"+c.help), "Examples:\n")
	if !ok {
		return strings.TrimSpace(notes), ""
	}
	// Notes may follow the examples, which are indented.
	lines := strings.Split(rest, "\n")
	end := slices.IndexFunc(lines, func(l string) bool { return l != "" && !strings.HasPrefix(l, " ") })
	if end < 0 {
		end = len(lines)
	}
	after := strings.TrimSpace(strings.Join(lines[end:], "\n"))
	return strings.TrimSpace(strings.TrimSpace(notes) + "\n\n" + after), strings.TrimRight(strings.Join(lines[:end], "\n"), "\n")
}

func dispatch(args []string, e *env) error {
	if len(args) > 0 {
		name := args[0]
		if name == demoWorkload {
			return runWorkload(args[1:])
		}
		known := []string{"help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd, docsCommand}
		for _, c := range commands() {
			known = append(known, c.name)
		}
		if !strings.HasPrefix(name, "-") && !slices.Contains(known, name) {
			return usagef("", "unknown command %q%s", name, orMean(rootCommand(e).SuggestionsFor(name)))
		}
		if name == docsCommand {
			return writeDocs(args[1:])
		}
	}
	root := rootCommand(e)
	root.SetArgs(append([]string{}, args...)) // nil would select the program's arguments
	return root.ExecuteContext(context.Background())
}

// orMean formats suggestions for a mistyped word.
func orMean(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(words, " or ") + "?"
}

// flagSet returns the flags that the command's help shows.
func (c *command) flagSet(_ *env) *pflag.FlagSet {
	fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard) // sliver prints errors itself
	c.register(fs)
	return fs
}

// register adds the command's flags.
func (c *command) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	if c.flags != nil {
		c.flags(fs)
	}
	if c.pids {
		usage := "the process; the same as the argument PID"
		if strings.HasSuffix(c.args, "PID...") {
			usage = "these processes: numbers, comma-separated; repeatable; the same as the arguments PID"
		}
		fs.VarP(&c.given, "pid", "p", usage)
	}
	fs.BoolP("help", "h", false, "show this help")
}

var (
	// parsing matches what the standard library adds to number errors.
	parsing  = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": |time: `)
	unitless = regexp.MustCompile(`missing unit in duration "([^"]*)"`)
	// negative matches pflag's error for a negative number given as a PID or TID.
	negative = regexp.MustCompile(`^unknown shorthand flag: '\d' in (-\d+)$`)
)

// explainFlags rewrites pflag's errors for users.
func explainFlags(err error, fs *pflag.FlagSet) string {
	var pid *pidError
	if errors.As(err, &pid) {
		return pid.msg
	}
	s := parsing.ReplaceAllString(err.Error(), "")
	s = unitless.ReplaceAllString(s, "a time needs its unit: write ${1}s or ${1}ms")
	if negative.MatchString(s) {
		return negative.ReplaceAllString(s, "$1 is not a PID, TID or flag")
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		name, dashes := unknown.GetSpecifiedName(), "--"
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			dashes = "-"
		}
		var mean []string
		for _, f := range similar(fs, name) {
			mean = append(mean, flagName(f))
		}
		return "unknown flag: " + dashes + name + orMean(mean)
	}
	return s
}

// mayBeEmpty lists flags that accept an empty text, and flags that report it themselves.
// For all others, an empty value comes from an unset shell variable.
var mayBeEmpty = map[string]bool{"note": true, "why": true, "filter": true, "web": true, "web-token": true, "metrics": true}

// start checks the parsed flags and runs the command.
func (c *command) start(ctx context.Context, e *env, fs *pflag.FlagSet, args []string) error {
	retired(fs, func(s string) { fmt.Fprintf(e.stderr, "sliver: %s\n", s) })
	var wrong error
	fs.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && !mayBeEmpty[f.Name] {
			wrong = usagef(c.name, "--%s is empty: set a value, or omit the flag", f.Name)
		}
	})
	if fs.Changed("rate") && fs.Changed("interval") {
		wrong = usagef(c.name, "both --interval and --rate given; choose one")
	}
	if wrong != nil {
		return wrong
	}
	need := caps.Targets
	if c.files {
		need = caps.Files
	}
	if err := caps.Limit(need); err != nil {
		return err
	}
	if c.samples {
		if err := checkTasks(e); err != nil {
			return err
		}
	}
	ctx = context.WithValue(ctx, dashKey{}, fs.ArgsLenAtDash())
	return c.run(ctx, e, append(c.given.words(), args...))
}

// dashKey is the context key of the number of arguments before "--", -1 without one.
type dashKey struct{}

func dash(ctx context.Context) int { return ctx.Value(dashKey{}).(int) }
