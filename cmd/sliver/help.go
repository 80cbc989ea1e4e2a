package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

func usage(w io.Writer) {
	fmt.Fprint(w, `sliver records what each thread of a running Linux program does, for how long,
and what it waits for. It needs no agent, no restart and no root for your own
processes.

Usage: sliver COMMAND [FLAGS] [ARGS]
`)
	all := commands()
	for _, g := range commandGroups {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, name := range g.names {
			if i := slices.IndexFunc(all, func(c *command) bool { return c.name == name }); i >= 0 {
				fmt.Fprintf(w, "  %-11s %s\n", name, all[i].short)
			}
		}
	}
	fmt.Fprint(w, `
Examples:
  sliver demo                              a first timeline within seconds
  sliver record -p 1234 --web --open       show the threads live, in the browser
  sliver record -p 1234 -d 10s             record all threads of process 1234 for 10 seconds
  sliver stack 1234                        what every thread does and waits for now
  sliver top 1234                          live table of functions and threads
  sliver record -t main -o run.pftrace -- ./server --port 8080

'sliver COMMAND --help' shows the flags of a command, with examples.
`)
}

// Widths of a help's lines: the maximum, and in a narrow terminal.
const (
	helpWidth = 100
	helpLeast = 60
)

// maxFlagColumn is the widest column of flags; the text of a longer flag is on the next line.
const maxFlagColumn = 32

func (c *command) usage(w io.Writer, fs *pflag.FlagSet) {
	fmt.Fprintf(w, "%s\n\n%s\n", c.short, strings.TrimSpace("Usage: sliver "+c.name+" "+c.args))
	width := helpWidth
	if n := columns(w); n > 0 {
		width = min(max(n, helpLeast), helpWidth)
	}
	groups := grouped(fs)
	column := 0
	for _, g := range groups {
		for _, f := range g.flags {
			if n := len(flagLine(f)) + 2; n <= maxFlagColumn {
				column = max(column, n)
			}
		}
	}
	for _, g := range groups {
		title := g.title
		if len(groups) == 1 {
			title = "Flags"
		}
		fmt.Fprintf(w, "\n%s:\n", title)
		for _, f := range g.flags {
			left, indent := flagLine(f), strings.Repeat(" ", column+1)
			text := wrap(flagText(f), width-column-1, indent)
			if len(left)+2 > column {
				fmt.Fprintf(w, "%s\n%s%s\n", left, indent, text)
			} else {
				fmt.Fprintf(w, "%-*s%s\n", column+1, left, text)
			}
		}
	}
	if c.help != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.help))
	}
}

// flagGroup is a heading with its flags.
type flagGroup struct {
	title string
	flags []*pflag.Flag
}

// grouped returns the visible flags by heading, each in the order of registration.
func grouped(fs *pflag.FlagSet) (out []flagGroup) {
	for _, title := range flagGroups {
		g := flagGroup{title: title}
		fs.VisitAll(func(f *pflag.Flag) {
			in, ok := flagTable[f.Name]
			if !ok {
				in.group = "Advanced"
			}
			if !f.Hidden && in.group == title {
				g.flags = append(g.flags, f)
			}
		})
		if len(g.flags) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// flagLine returns a flag with its value, such as "  -o, --output FILE".
func flagLine(f *pflag.Flag) string {
	s := "      --" + f.Name
	if f.Shorthand != "" {
		s = "  -" + f.Shorthand + ", --" + f.Name
	}
	return s + flagValue(f)
}

// flagName returns a flag's names for messages, such as "-r, --rate HZ".
func flagName(f *pflag.Flag) string { return strings.TrimSpace(flagLine(f)) }

// flagValue returns the word for a flag's value, "" for a switch.
func flagValue(f *pflag.Flag) string {
	v := flagTable[f.Name].value
	switch {
	case f.Value.Type() == "bool":
		return ""
	case v == "":
		v = strings.ToUpper(f.Value.Type())
	}
	if f.NoOptDefVal != "" {
		return "[=" + v + "]"
	}
	return " " + v
}

// flagText returns a flag's text with its default.
func flagText(f *pflag.Flag) string {
	text := strings.Join(strings.Fields(f.Usage), " ")
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
		return text
	}
	if strings.Contains(text, "(default") {
		return text
	}
	value := f.DefValue
	if f.Value.Type() == "duration" {
		value = strings.TrimSuffix(strings.TrimSuffix(value, "0s"), "0m")
		if value == "" || !strings.ContainsAny(value[len(value)-1:], "smhµn") {
			value = f.DefValue
		}
	}
	return text + " (default " + value + ")"
}
