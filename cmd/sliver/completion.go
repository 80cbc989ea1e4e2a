package main

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export"
)

func completionCommand() *command {
	return &command{
		name: "completion", args: "bash|zsh|fish", short: "print the completion script of a shell",
		help: `
Examples:
  source <(sliver completion bash)
  sliver completion zsh > "${fpath[1]}/_sliver"
  sliver completion fish > ~/.config/fish/completions/sliver.fish`,
		words: func() []string { return []string{"bash", "zsh", "fish"} },
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) != 1 {
				return usagef("completion", "name one shell: bash, zsh or fish")
			}
			switch args[0] {
			case "bash":
				bashCompletion(e.stdout)
			case "zsh":
				// zsh runs bash's functions.
				fmt.Fprint(e.stdout, "#compdef sliver\nautoload -U +X bashcompinit && bashcompinit\n")
				bashCompletion(e.stdout)
			case "fish":
				fishCompletion(e.stdout)
			default:
				return usagef("completion", "%q is none of bash, zsh, fish", args[0])
			}
			return nil
		},
	}
}

// takesFile lists the flags whose value is a file or folder.
var takesFile = map[string]bool{"output": true, "debug-dir": true, "compare": true, "web-token-file": true, "push-header-file": true, "http-token": true, "config": true, "spool": true}

// choices returns the values of a flag with a fixed set.
func choices(flag string) []string {
	switch flag {
	case "format":
		var out []string
		for _, f := range export.Formats() {
			out = append(out, f.Name)
		}
		return out
	case "stop":
		return []string{"auto", "running", "always"}
	case "threads":
		return []string{"main", "all"}
	case "kinds":
		return []string{"native", "go", "kernel", "java", "python", "js"}
	case "native":
		return []string{"on", "off"}
	case "by":
		return []string{"wall", "cpu"}
	case "sort":
		return []string{"self", "total", "name"}
	}
	return nil
}

func eachFlag(c *command, visit func(*pflag.Flag)) {
	c.flagSet(&env{}).VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			visit(f)
		}
	})
}

func bashCompletion(w io.Writer) {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	fmt.Fprintf(w, `_sliver() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "%s help" -- "$cur"))
    return
  fi
  case "$prev" in
`, strings.Join(names, " "))
	done := map[string]bool{}
	for _, c := range commands() {
		eachFlag(c, func(f *pflag.Flag) {
			if done[f.Name] {
				return
			}
			done[f.Name] = true
			pattern := "--" + f.Name
			if f.Shorthand != "" {
				pattern += "|-" + f.Shorthand
			}
			switch vs := choices(f.Name); {
			case takesFile[f.Name]:
				fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", pattern)
			case len(vs) > 0:
				fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n", pattern, strings.Join(vs, " "))
			case f.Name == "pid":
				fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -W \"$(ps -eo pid= 2>/dev/null)\" -- \"$cur\")); return ;;\n", pattern)
			case f.NoOptDefVal == "":
				fmt.Fprintf(w, "    %s) return ;;\n", pattern)
			}
		})
	}
	fmt.Fprint(w, "  esac\n  case \"$cmd\" in\n")
	for _, c := range commands() {
		var flags []string
		eachFlag(c, func(f *pflag.Flag) { flags = append(flags, "--"+f.Name) })
		sort.Strings(flags)
		words := strings.Join(flags, " ")
		switch {
		case c.words != nil:
			words += " " + strings.Join(c.words(), " ")
		case c.pids:
			words += " $(ps -eo pid= 2>/dev/null)"
		}
		rest := ""
		if c.name == "export" || c.name == "record" {
			rest = ` $(compgen -f -- "$cur")`
		}
		fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")%s) ;;\n", c.name, words, rest)
	}
	fmt.Fprint(w, "  esac\n}\ncomplete -o filenames -F _sliver sliver\n")
}

func fishCompletion(w io.Writer) {
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", " ").Replace(s) + "'"
	}
	for _, c := range commands() {
		fmt.Fprintf(w, "complete -c sliver -n __fish_use_subcommand -f -a %s -d %s\n", c.name, quote(c.short))
		on := quote("__fish_seen_subcommand_from " + c.name)
		eachFlag(c, func(f *pflag.Flag) {
			line := fmt.Sprintf("complete -c sliver -n %s -l %s", on, f.Name)
			if f.Shorthand != "" {
				line += " -s " + f.Shorthand
			}
			switch vs := choices(f.Name); {
			case takesFile[f.Name]:
				line += " -r -F"
			case len(vs) > 0:
				line += " -x -a " + quote(strings.Join(vs, " "))
			case f.Name == "pid":
				line += " -x -a '(__fish_complete_pids)'"
			case f.NoOptDefVal == "":
				line += " -x"
			}
			fmt.Fprintf(w, "%s -d %s\n", line, quote(f.Usage))
		})
		if c.words != nil {
			fmt.Fprintf(w, "complete -c sliver -n %s -f -a %s\n", on, quote(strings.Join(c.words(), " ")))
		}
		if c.pids {
			fmt.Fprintf(w, "complete -c sliver -n %s -f -a '(__fish_complete_pids)'\n", on)
		}
	}
}
