package background

import (
	"fmt"
	"runtime"
	"strings"
)

// Panicked is a contained panic.
type Panicked struct {
	Value any    // of the panic
	At    string // the function that panicked, with file and line; "": unknown
}

func (p *Panicked) Error() string {
	if p.At == "" {
		return fmt.Sprintf("panic: %v", p.Value)
	}
	return fmt.Sprintf("panic: %v, at %s", p.Value, p.At)
}

// Contain runs f and returns its panic; nil: none. f must release its resources in its
// own defers.
func Contain(f func()) (fell *Panicked) {
	defer func() {
		x := recover()
		if x == nil {
			return
		}
		if p, ok := x.(*Panicked); ok { // of a goroutine that f waited for
			fell = p
			return
		}
		fell = &Panicked{x, origin()}
	}()
	f()
	return nil
}

// origin returns where the panic being recovered began: the first frame below the
// runtime's.
func origin() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	fell := false
	for {
		f, more := frames.Next()
		inside := strings.HasPrefix(f.Function, "runtime.")
		switch {
		case inside && strings.Contains(f.Function, "panic"):
			fell = true
		case fell && !inside:
			return fmt.Sprintf("%s %s:%d", f.Function, f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		}
		if !more {
			return ""
		}
	}
}
