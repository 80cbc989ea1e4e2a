package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/symbol"
)

// tool is another program that names the addresses.
type tool struct {
	shown []string
	whole bool // it reports inlined calls too; otherwise only the outermost name and the innermost line
	// run names the addresses with linker names (raw) or demangled ones. errLate: the
	// answers are incomplete because of the timeout.
	run func(raw bool) (answers, error)
}

// tools returns the installed tools.
func (t *task) tools() []tool {
	var out []tool
	have := func(name string) bool { _, err := exec.LookPath(name); return err == nil }
	if have("addr2line") {
		out = append(out, tool{[]string{"addr2line", "-fiaCe", "PROGRAM"}, true, func(raw bool) (answers, error) {
			if raw {
				return t.pairs("addr2line", "-fiae", t.program)
			}
			return t.pairs("addr2line", "-fiaCe", t.program)
		}})
	}
	if have("llvm-symbolizer") {
		out = append(out, tool{[]string{"llvm-symbolizer", "-iae", "PROGRAM"}, true, func(raw bool) (answers, error) {
			if raw {
				return t.pairs("llvm-symbolizer", "--no-demangle", "--functions=linkage", "--output-style=GNU", "-iae", t.program)
			}
			return t.pairs("llvm-symbolizer", "--output-style=GNU", "-iae", t.program)
		}})
	}
	if have("perf") {
		out = append(out, tool{[]string{"perf", "script", "-F", "ip,sym,srcline", "-i", "DATA"}, false, t.perfScript})
	}
	return out
}

var (
	discriminator = regexp.MustCompile(` \(discriminator \d+\)$`)
	column        = regexp.MustCompile(`^(.*:\d+):\d+$`)
)

// pairs runs a tool that reads addresses, and writes each followed by pairs of lines: a
// name and a place.
func (t *task) pairs(name string, args ...string) (answers, error) {
	var in bytes.Buffer
	for _, a := range t.addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	b, late := t.output(&in, name, args...)
	if late != nil && late != errLate {
		return nil, late
	}
	out := answers{}
	var at uint64
	lines := strings.Split(string(b), "\n")
	for i := 0; i < len(lines); i++ {
		if a, err := strconv.ParseUint(lines[i], 0, 64); err == nil && strings.HasPrefix(lines[i], "0x") {
			at = a
			continue
		}
		if lines[i] == "" || i+1 == len(lines) {
			continue
		}
		out[at] = append(out[at], frame{lines[i], placed(lines[i+1])})
		i++
	}
	if late != nil {
		delete(out, at) // it may be incomplete
	}
	return out, late
}

var errLate = errors.New("too slow")

// output returns a command's output, and errLate if it was stopped at the timeout.
func (t *task) output(in io.Reader, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = in
	cmd.WaitDelay = time.Second // it may have left child processes
	start := time.Now()
	b, err := cmd.Output()
	t.took, t.cpu = time.Since(start), 0
	if s := cmd.ProcessState; s != nil {
		t.cpu = s.UserTime() + s.SystemTime()
	}
	switch {
	case ctx.Err() != nil:
		return b, errLate
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// placed converts a tool's place to frame's format.
func placed(s string) string {
	s = discriminator.ReplaceAllString(strings.TrimSpace(s), "")
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasPrefix(s, "??") {
		return ""
	}
	line, err := strconv.Atoi(s[i+1:])
	if err != nil || line == 0 {
		return ""
	}
	return place(s[:i], line)
}

// perfScript parses lines such as " 401136 main" and "  app.c:12".
func (t *task) perfScript(raw bool) (answers, error) {
	args := []string{"script", "-f", "-F", "ip,sym,srcline", "-i", t.perfData}
	if raw {
		args = append(args, "--no-demangle")
	}
	b, late := t.output(nil, "perf", args...)
	if late != nil && late != errLate {
		return nil, late
	}
	out := answers{}
	var at uint64
	for _, l := range strings.Split(string(b), "\n") {
		f := strings.Fields(l)
		if len(f) >= 2 {
			if a, err := strconv.ParseUint(f[0], 16, 64); err == nil && !strings.Contains(f[0], ":") {
				at = a
				out[at] = []frame{{name: strings.Join(f[1:], " ")}}
				continue
			}
		}
		if len(f) > 0 && len(out[at]) == 1 && out[at][0].line == "" {
			out[at][0].line = placed(column.ReplaceAllString(strings.TrimSpace(l), "$1"))
		}
	}
	if late != nil {
		delete(out, at)
	}
	return out, late
}

// compare counts the addresses whose names and lines equal ours. It is an error if a tool
// that was not stopped answered fewer than all of them.
func (t *task) compare(ours, theirs answers, whole, late bool) (string, error) {
	if !late && len(theirs) < len(t.addrs)*99/100 {
		return "", fmt.Errorf("%d answers for %d addresses", len(theirs), len(t.addrs))
	}
	if len(theirs) == 0 {
		return "stopped, without an answer", nil
	}
	names, lines := 0, 0
	for _, a := range t.addrs {
		o, h := ours[a], theirs[a]
		if len(o) == 0 || len(h) == 0 {
			continue
		}
		if whole {
			if len(o) == len(h) {
				n, l := true, true
				for i := range o {
					n = n && t.sameName(o[i].name, h[i].name)
					l = l && o[i].line == h[i].line
				}
				names, lines = names+count(n), lines+count(l)
			}
			continue
		}
		names += count(t.sameName(o[len(o)-1].name, h[0].name))
		lines += count(o[0].line == h[0].line)
	}
	share := func(n int) string { return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(len(theirs))) }
	what := "names and inlined calls"
	if !whole {
		what = "names"
	}
	out := share(names) + " the same " + what + ", " + share(lines) + " the same lines"
	if late {
		out = fmt.Sprintf("stopped; of its %d answers: %s", len(theirs), out)
	}
	return out, nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sameName reports whether two names are of one function: equal, another of its symbols,
// or the demangled form.
func (t *task) sameName(a, b string) bool {
	a, b = plain(a), plain(b)
	if a == b || symbol.Demangle(a, false) == b || symbol.Demangle(a, true) == b {
		return true
	}
	// A constructor has several symbols, and no linkage name in the DWARF.
	return symbol.Demangle(a, true) == symbol.Demangle(b, true) || strings.HasSuffix(symbol.Demangle(a, true), "::"+b)
}

// plain removes the suffixes that compilers append to the names of parts of a function.
func plain(s string) string {
	s, _, _ = strings.Cut(s, ".")
	return filepath.Base(s)
}
