package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

func completionCommand() *command {
	return &command{
		name: "completion", args: "bash|zsh|fish", short: "print the completion script of a shell",
		help: `
The script of bash needs the package bash-completion.

Examples:
  source <(sliver completion bash)
  sliver completion zsh > "${fpath[1]}/_sliver"
  sliver completion fish > ~/.config/fish/completions/sliver.fish`,
		words: func() []string { return []string{"bash", "zsh", "fish"} },
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) != 1 {
				return usagef("completion", "name one shell: bash, zsh or fish")
			}
			root := rootCommand(e)
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(e.stdout, true)
			case "zsh":
				return root.GenZshCompletion(e.stdout)
			case "fish":
				return root.GenFishCompletion(e.stdout, true)
			}
			return usagef("completion", "unknown shell %q; use bash, zsh or fish", args[0])
		},
	}
}

// choices returns the values of a flag with a fixed set.
func choices(command, flag string) []string {
	switch flag {
	case "format":
		if command != "export" && command != "record" && command != "demo" {
			return nil
		}
		var out []string
		for _, f := range export.Formats() {
			out = append(out, f.Name+"\t"+f.About)
		}
		return out
	case "stop-policy":
		return []string{"auto", "running", "always"}
	case "engine":
		return []string{engineAuto, enginePtrace, enginePerf, engineKernel}
	case "threads":
		return []string{"main", "all"}
	case "kinds":
		return slices.Concat([]string{"all"}, trace.KindNames(), []string{"no-native"})
	case "by":
		return []string{"wall", "cpu"}
	case "sort":
		return []string{"self", "total", "name"}
	case "crash":
		return []string{"yes", "no"}
	case "log":
		return []string{"text", "json"}
	case "rule", "strip":
		return []string{"shark", "matrix", "koom"}
	}
	return nil
}

// completeFlags registers what the flags' values can be.
func completeFlags(c *cobra.Command) {
	name := c.Name()
	c.Flags().VisitAll(func(f *pflag.Flag) {
		value := flagTable[f.Name].value
		var complete cobra.CompletionFunc
		switch all := choices(name, f.Name); {
		case len(all) > 0:
			complete = func(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
				return beginning(all, begin), cobra.ShellCompDirectiveNoFileComp
			}
		case value == "FILE":
			return // files are the default
		case value == "DIR":
			complete = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
		case value == "PID":
			complete = completePIDs
		case value == "":
			return
		default:
			complete = cobra.NoFileCompletions
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, complete) // fails for a second registration only
	})
}

// beginning returns the words that begin with the typed text.
func beginning(words []string, typed string) (out []string) {
	for _, w := range words {
		if strings.HasPrefix(w, typed) {
			out = append(out, w)
		}
	}
	return out
}

// complete completes a command's arguments.
func (c *command) complete(x *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch {
	case c.words != nil && len(args) == 0:
		return beginning(c.words(), typed), cobra.ShellCompDirectiveNoFileComp
	case c.words == nil && (c.pids || c.name == "record" && allPIDs(args)):
		return completePIDs(x, args, typed)
	case c.name == "demo" || c.name == "version" || c.name == "completion":
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// allPIDs reports whether no argument is a command.
func allPIDs(args []string) bool {
	var pids somePIDs
	return !slices.ContainsFunc(args, func(a string) bool { return pids.Set(a) != nil })
}

// completePIDs lists the processes that the user may record, with their commands.
func completePIDs(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	own, err := target.Own(0)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var words []string
	for _, p := range own {
		words = append(words, fmt.Sprintf("%d\t%s", p.PID, printable(p.Command)))
	}
	return beginning(words, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeCommands lists the commands.
func completeCommands(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, c := range commands() {
		words = append(words, c.name+"\t"+c.short)
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
