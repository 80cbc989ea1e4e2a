package view

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// MaxName is the maximum length of a function's name in an export, in bytes; longer names
// end in an ellipsis. Real templates reach some kilobytes, and viewers measure and draw
// every name.
const MaxName = 4096

// Text returns s as valid UTF-8 without control, formatting or line characters (each
// becomes U+FFFD or a space), of at most limit bytes; limit is at least 3.
func Text(s string, limit int) string {
	if len(s) <= limit && plain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(min(len(s), limit) + 4)
	cut := 0 // where an ellipsis still fits
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\t' || r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029':
			r = ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == 0xfffe || r == 0xffff:
			r = utf8.RuneError
		}
		if b.Len() <= limit-len(ellipsis) {
			cut = b.Len()
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			return b.String()[:cut] + ellipsis
		}
		b.WriteRune(r)
		i += n
	}
	return b.String()
}

const ellipsis = "…"

func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// Command formats a command line for display.
func Command(args []string) string {
	var b strings.Builder
	for i, a := range args {
		if b.Len() > 4096 {
			b.WriteString(" " + ellipsis)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&|;<>()*?") {
			b.WriteString(strconv.Quote(a))
		} else {
			b.WriteString(a)
		}
	}
	return Text(b.String(), 4096)
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

// Duration formats ns with a suitable unit; "" for 0.
func Duration(ns int64) string {
	if ns == 0 {
		return ""
	}
	f := func(div float64, unit string) string {
		return strconv.FormatFloat(float64(ns)/div, 'f', -1, 64) + unit
	}
	switch {
	case ns < 1e3:
		return f(1, "ns")
	case ns < 1e6:
		return f(1e3, "µs")
	case ns < 1e9:
		return f(1e6, "ms")
	}
	return f(1e9, "s")
}

// Short formats ns with four digits.
func Short(ns int64) string {
	switch {
	case ns == 0:
		return "0"
	case ns >= 1e9:
		return fmt.Sprintf("%.4gs", float64(ns)/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%.4gms", float64(ns)/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%.4gµs", float64(ns)/1e3)
	}
	return fmt.Sprintf("%dns", ns)
}

// FuncName returns the name of function i as exports show it.
func (v *View) FuncName(i int) string { return Text(v.Names.Funcs[i].Name, MaxName) }

// FrameName returns the name of a frame, with the file's name and the line if Options.Lines asks for them and
// they are known: "handle (server.c:42)".
func (v *View) FrameName(f trace.LocFrame) string {
	name := v.FuncName(f.Func)
	if file := cmp.Or(f.File, v.Names.Funcs[f.Func].File); v.lines && f.Line > 0 && file != "" {
		return name + " (" + Text(path.Base(file), MaxName) + ":" + strconv.Itoa(f.Line) + ")"
	}
	return name
}

// Place describes a slice's function.
func (v *View) Place(s *trace.Slice) stack.Place {
	f := &v.Names.Funcs[s.Frame.Func]
	p := stack.Place{Func: f.Name, File: cmp.Or(s.Frame.File, f.File)}
	if s.Loc != nil {
		p.Kind = s.Loc.Word.Kind()
	}
	if f.Module >= 0 {
		p.Module = v.Rec.Modules[f.Module].Path
	}
	return p
}

// Interpreter reports whether function i is one of a runtime's own, by its name and files.
func (v *View) Interpreter(i int) bool {
	p := v.Place(&trace.Slice{Frame: trace.LocFrame{Func: i}})
	return stack.Interpreter(p.Module, p.Func, p.File)
}

// ShowsLines reports whether folded stacks have lines.
func (v *View) ShowsLines() bool { return v.lines }

// StateName describes a state: "running", "blocked: futex".
func (v *View) StateName(s stack.State, nr int32) string {
	if nr >= 0 {
		return s.String() + ": " + v.Call(nr)
	}
	return s.String()
}

// Call returns the name of system call nr; "" if nr is negative.
func (v *View) Call(nr int32) string {
	if nr < 0 {
		return ""
	}
	return syscalls.Name(v.Rec.Process.Arch, nr)
}

// Waits reports whether a thread in state s is not on a CPU.
func Waits(s stack.State) bool {
	switch s {
	case stack.StateRunnable, stack.StateBlocked, stack.StateDisk, stack.StateFault, stack.StateStopped, stack.StateTraced:
		return true
	}
	return false
}

// ModuleOf returns the module of a slice; -1 if it has none.
func (v *View) ModuleOf(s *trace.Slice) int {
	if m := v.Names.Func(&s.Frame).Module; m >= 0 && m < len(v.Rec.Modules) {
		return m
	}
	if s.Loc != nil {
		if m := s.Loc.Key.Module; m >= 0 && m < len(v.Rec.Modules) {
			return m
		}
	}
	return -1
}

// Fit shortens s to at most n characters, for a box of a picture; "" if the result would
// be meaningless.
func Fit(s string, n int) string {
	if n < 3 {
		return ""
	}
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	i := 0
	for at := range s {
		if i == n-2 {
			return s[:at] + ".."
		}
		i++
	}
	return s
}
