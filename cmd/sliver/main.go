// Command sliver shows what the threads of a running Linux process do, when, and why they
// wait, without changing or restarting it. This package parses command lines and connects
// the other packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/internal/caps"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// version is set by the release build; otherwise the module's version is used.
var version = ""

// usageError is wrong usage: exit status 2, and a reference to the help.
type usageError struct {
	msg  string
	help string // the command whose help to refer to
}

func (e *usageError) Error() string { return e.msg }

func usagef(help, format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...), help: help}
}

// exitStatus is the exit status of a command, or of a program that it ran.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// command is one subcommand of sliver.
type command struct {
	name  string
	args  string // arguments in the usage line
	short string
	help  string // examples and further notes
	flags func(*pflag.FlagSet)
	run   func(ctx context.Context, e *env, args []string) error
	words func() []string // completions of the first argument
	pids  bool            // its arguments are PIDs, which -p may give as well, as in record
	given somePIDs        // PIDs given by -p
	files bool            // it needs no other process: capabilities are dropped before it runs
}

// env holds a command's output streams.
type env struct {
	stdin  *os.File
	stdout *output
	stderr io.Writer
}

// output is standard output that keeps the first write error, so that lost output never
// ends with exit status 0.
type output struct {
	*os.File
	lost error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if o.lost == nil {
		o.lost = err
	}
	return n, err
}

func commands() []*command {
	return []*command{recordCommand(), traceCommand(), watchCommand(), dumpCommand(), recoverCommand(), lsCommand(),
		viewCommand(), exportCommand(), reportCommand(), sqlCommand(), hprofCommand(), heapCommand(), stackCommand(), topCommand(), threadsCommand(), demoCommand(), doctorCommand(),
		completionCommand(), versionCommand()}
}

func main() {
	os.Exit(run(os.Args[1:], &env{stdin: os.Stdin, stdout: &output{File: os.Stdout}, stderr: os.Stderr}))
}

func run(args []string, e *env) int {
	err := dispatch(args, e)
	if err == nil {
		err = e.stdout.lost
	}
	if err != nil {
		err = underLimits(err)
	}
	var usage *usageError
	var status exitStatus
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		help := "sliver --help"
		if usage.help != "" {
			help = "sliver " + usage.help + " --help"
		}
		fmt.Fprintf(e.stderr, "sliver: %s (see '%s')\n", oneLine(err), help)
		return exitUsage
	}
	fmt.Fprintf(e.stderr, "sliver: %s\n", oneLine(err))
	return exitFailed
}

// oneLine formats an error on one line, whatever target names it contains.
func oneLine(err error) string {
	return printable(strings.NewReplacer("\n", " ", "\r", " ").Replace(err.Error()))
}

func dispatch(args []string, e *env) error {
	if len(args) == 0 {
		usage(e.stderr)
		return &usageError{msg: "no command given"}
	}
	name := args[0]
	switch name {
	case "-h", "--help", "help":
		if len(args) > 1 && name == "help" {
			return dispatch([]string{args[1], "--help"}, e)
		}
		usage(e.stdout)
		return nil
	case "--version", "-V":
		name = "version"
	case demoWorkload:
		return runWorkload(args[1:])
	}
	for _, c := range commands() {
		if c.name == name {
			return c.start(args[1:], e)
		}
	}
	return usagef("", "unknown command %q", name)
}

func (c *command) flagSet(e *env) *pflag.FlagSet {
	fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard) // sliver prints errors itself
	fs.SortFlags = false
	if c.flags != nil {
		c.flags(fs)
	}
	if c.pids {
		fs.VarP(&c.given, "pid", "p", "the same as PID")
	}
	fs.BoolP("help", "h", false, "show this help")
	fs.Usage = func() {}
	return fs
}

var (
	// parsing matches what the standard library adds to number errors.
	parsing  = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": |time: `)
	unitless = regexp.MustCompile(`missing unit in duration "([^"]*)"`)
	// negative matches pflag's error for a negative number given as a PID or TID.
	negative = regexp.MustCompile(`^unknown shorthand flag: '\d' in (-\d+)$`)
)

// explainFlags rewrites pflag's errors for users.
func explainFlags(err error) string {
	var pid *pidError
	if errors.As(err, &pid) {
		return pid.msg
	}
	s := parsing.ReplaceAllString(err.Error(), "")
	s = unitless.ReplaceAllString(s, "a time needs its unit: write ${1}s or ${1}ms")
	return negative.ReplaceAllString(s, "$1 is not a PID, TID or flag")
}

// mayBeEmpty lists flags that accept an empty text, and flags that report it themselves.
// For all others, an empty value comes from an unset shell variable.
var mayBeEmpty = map[string]bool{"why": true, "filter": true, "web": true, "web-token": true, "metrics": true}

func (c *command) start(args []string, e *env) error {
	fs := c.flagSet(e)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			c.usage(e.stdout, fs)
			return nil
		}
		return usagef(c.name, "%s", explainFlags(err))
	}
	if help, _ := fs.GetBool("help"); help {
		c.usage(e.stdout, fs)
		return nil
	}
	var empty error
	fs.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && !mayBeEmpty[f.Name] {
			empty = usagef(c.name, "--%s is empty: set a value, or omit the flag", f.Name)
		}
	})
	if empty != nil {
		return empty
	}
	if c.files {
		if err := caps.Drop(); err != nil {
			return fmt.Errorf("give up capabilities: %w", err)
		}
	}
	ctx := context.WithValue(context.Background(), dashKey{}, fs.ArgsLenAtDash())
	return c.run(ctx, e, append(c.given.words(), fs.Args()...))
}

// dashKey is the context key of the number of arguments before "--", -1 without one.
type dashKey struct{}

func dash(ctx context.Context) int { return ctx.Value(dashKey{}).(int) }

func usage(w io.Writer) {
	fmt.Fprint(w, `sliver shows on a timeline what the threads of a running program did, when,
and why they waited. The program is not changed and not restarted, and sliver
needs no more rights than a debugger.

Usage: sliver COMMAND [FLAGS] [ARGS]

Commands:
`)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-11s %s\n", c.name, c.short)
	}
	fmt.Fprint(w, `
Try:
  sliver demo                              a first timeline within seconds
  sliver record -p 1234 --web --open       watch its threads live, in the browser
  sliver record -p 1234 -d 10s             all threads of process 1234, 10 seconds
  sliver stack 1234                        what every thread does and waits for now
  sliver top 1234                          live: functions and threads that take the time
  sliver record -t main -o run.pftrace -- ./server --port 8080

'sliver COMMAND --help' tells more, with examples.
`)
}

// Widths of a help's flags: the maximum, and in a narrow terminal.
const (
	helpWidth = 100
	helpLeast = 60
)

func (c *command) usage(w io.Writer, fs *pflag.FlagSet) {
	fmt.Fprintf(w, "%s\n\n%s\n", c.short, strings.TrimSpace("Usage: sliver "+c.name+" "+c.args))
	fs.VisitAll(func(f *pflag.Flag) { f.Usage = strings.Join(strings.Fields(f.Usage), " ") }) // the width sets line breaks
	width := helpWidth
	if n := columns(w); n > 0 {
		width = min(max(n, helpLeast), helpWidth)
	}
	if f := fs.FlagUsagesWrapped(width); strings.TrimSpace(f) != "" {
		fmt.Fprintf(w, "\nFlags:\n%s", f)
	}
	if c.help != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.help))
	}
}

func versionCommand() *command {
	return &command{
		name: "version", short: "print the version",
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) > 0 {
				return usagef("version", "version takes no arguments")
			}
			fmt.Fprintln(e.stdout, "sliver", versionString())
			return nil
		},
	}
}

// versionString returns this program's version for recordings.
func versionString() string {
	if version != "" {
		return version
	}
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := bi.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return v
}
