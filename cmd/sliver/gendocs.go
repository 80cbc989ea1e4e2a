package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// docsCommand is the hidden command that writes the pages about the commands:
// sliver __docs markdown|man|completion DIR. They come from the same source as the help.
const docsCommand = "__docs"

// writeDocs writes one kind of pages to a directory.
func writeDocs(args []string) error {
	if len(args) != 2 {
		return usagef("", "%s takes a kind (markdown, man, completion) and a directory", docsCommand)
	}
	pages, err := docPages(args[0])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[1], 0o755); err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(args[1], name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// docPages returns the pages of a kind by file name.
func docPages(kind string) (map[string]string, error) {
	pages := map[string]string{}
	all := commands()
	switch kind {
	case "markdown":
		for _, c := range all {
			pages["sliver-"+c.name+".md"] = pageText(c.markdown)
		}
		pages["README.md"] = pageText(markdownIndex)
	case "man":
		for _, c := range all {
			pages["sliver-"+c.name+".1"] = pageText(c.man)
		}
		pages["sliver.1"] = pageText(manIndex)
	case "completion":
		root := rootCommand(&env{stdout: &output{}, stderr: io.Discard})
		for name, write := range map[string]func(io.Writer) error{
			"sliver.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
			"_sliver":     root.GenZshCompletion,
			"sliver.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		} {
			var b strings.Builder
			if err := write(&b); err != nil {
				return nil, err
			}
			pages[name] = b.String()
		}
	default:
		return nil, usagef("", "unknown kind of pages %q; use markdown, man or completion", kind)
	}
	return pages, nil
}

func pageText(write func(io.Writer)) string {
	var b strings.Builder
	write(&b)
	return b.String()
}

func markdownIndex(w io.Writer) {
	fmt.Fprint(w, "# Commands\n\nThese pages come from the program's help: `go run ./cmd/sliver "+docsCommand+" markdown docs/cli`.\n")
	all := map[string]*command{}
	for _, c := range commands() {
		all[c.name] = c
	}
	for _, g := range commandGroups {
		fmt.Fprintf(w, "\n%s:\n\n", g.title)
		for _, name := range g.names {
			if c := all[name]; c != nil {
				fmt.Fprintf(w, "- [sliver %s](sliver-%s.md): %s\n", name, name, c.short)
			}
		}
	}
}

func (c *command) markdown(w io.Writer) {
	notes, examples := c.parts()
	fmt.Fprintf(w, "# sliver %s\n\n%s\n\n    %s\n", c.name, sentence(c.short), strings.TrimSpace("sliver "+c.name+" "+c.args))
	if examples != "" {
		fmt.Fprintf(w, "\n## Examples\n\n%s\n", indent(dedent(examples), "    "))
	}
	if notes != "" {
		fmt.Fprintf(w, "\n## Description\n\n%s\n", indent(notes, "    "))
	}
	fmt.Fprint(w, "\n## Flags\n")
	for _, g := range grouped(c.flagSet(nil)) {
		fmt.Fprintf(w, "\n### %s\n\n| flag | meaning |\n|---|---|\n", g.title)
		for _, f := range g.flags {
			fmt.Fprintf(w, "| `%s` | %s |\n", strings.ReplaceAll(flagName(f), "|", `\|`), markdownText(flagText(f)))
		}
	}
}

// markdownText escapes a flag's text for a cell of a table.
func markdownText(s string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "[", `\[`).Replace(s)
}

// manTitle is the heading line of a manual page. The version is not in it: the pages are under
// version control.
func manTitle(w io.Writer, name, short string) {
	fmt.Fprintf(w, ".TH %s 1 \"\" \"sliver\" \"User Commands\"\n.SH NAME\n%s \\- %s\n", roff(strings.ToUpper(name)), roff(name), roff(short))
}

func manIndex(w io.Writer) {
	manTitle(w, "sliver", "stack profiler and timeline recorder for running programs")
	fmt.Fprint(w, ".SH SYNOPSIS\n.B sliver\n.I COMMAND\n[\\fIFLAGS\\fR] [\\fIARGS\\fR]\n.SH DESCRIPTION\n")
	fmt.Fprintln(w, roff("sliver records what each thread of a running Linux program does, for how long, and what it waits for. It needs no agent, no restart and no root for your own processes."))
	all := map[string]*command{}
	for _, c := range commands() {
		all[c.name] = c
	}
	for _, g := range commandGroups {
		fmt.Fprintf(w, ".SH %s\n", roff(strings.ToUpper(g.title)))
		for _, name := range g.names {
			if c := all[name]; c != nil {
				fmt.Fprintf(w, ".TP\n.BR sliver\\-%s (1)\n%s\n", roff(name), roff(c.short))
			}
		}
	}
}

func (c *command) man(w io.Writer) {
	notes, examples := c.parts()
	manTitle(w, "sliver-"+c.name, c.short)
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B sliver %s\n%s\n", roff(c.name), roff(c.args))
	if notes != "" {
		fmt.Fprintf(w, ".SH DESCRIPTION\n.nf\n%s\n.fi\n", roff(notes))
	}
	for _, g := range grouped(c.flagSet(nil)) {
		fmt.Fprintf(w, ".SH \"%s FLAGS\"\n", strings.ToUpper(g.title))
		for _, f := range g.flags {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(flagName(f)), roff(flagText(f)))
		}
	}
	if examples != "" {
		fmt.Fprintf(w, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(dedent(examples)))
	}
	fmt.Fprint(w, ".SH SEE ALSO\n.BR sliver (1)\n")
}

// roff escapes text for a manual page.
func roff(s string) string {
	s = strings.NewReplacer("…", "...", "µ", `\(mc`, `\`, `\e`, "-", `\-`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

// dedent removes the two spaces before each example.
func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

func indent(s, by string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = by + l
		}
	}
	return strings.Join(lines, "\n")
}
