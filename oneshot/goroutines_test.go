package oneshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/stacks"
	"github.com/sliverprof/sliver/target"
)

// told is a goroutine as runtime.Stack tells of it.
type told struct {
	status, wait string
	locked       bool
	frames       []string // "function file:line"
	born         string   // the same of the go statement
}

var head = regexp.MustCompile(`^goroutine (\d+) \[([^,\]]*)(, locked to thread)?[^\]]*\]:$`)

// parse reads what runtime.Stack wrote.
func parse(t *testing.T, text string) map[uint64]told {
	all := map[uint64]told{}
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(part, "\n")
		m := head.FindStringSubmatch(lines[0])
		if m == nil {
			t.Fatalf("not understood: %q", lines[0])
		}
		id, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		g := told{status: "waiting", wait: m[2], locked: m[3] != ""}
		if m[2] == "syscall" || m[2] == "running" {
			g.status, g.wait = m[2], ""
		}
		for i := 1; i+1 < len(lines); i += 2 {
			at, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
			if strings.HasPrefix(lines[i], "...") {
				i-- // additional frames elided: a line of its own
				g.frames = append(g.frames, "...")
				continue
			}
			if fn, ok := strings.CutPrefix(lines[i], "created by "); ok {
				fn, _, _ = strings.Cut(fn, " in goroutine ")
				g.born = fn + " " + at
				continue
			}
			g.frames = append(g.frames, lines[i][:strings.LastIndexByte(lines[i], '(')]+" "+at)
		}
		all[id] = g
	}
	return all
}

func words(fs []stacks.Frame) (out []string) {
	for i := range fs {
		out = append(out, fmt.Sprintf("%s %s:%d", fs[i].Func, fs[i].File, fs[i].Line))
	}
	return out
}

// TestGoroutines holds what is read from outside against runtime.Stack, which
// leaves out the runtime's own goroutines and functions, and the middle of deep
// stacks.
func TestGoroutines(t *testing.T) {
	for _, variant := range []string{"default", "stripped", "pie-stripped", "external"} {
		t.Run(variant, func(t *testing.T) {
			testprog.Need(t, "ptrace")
			p := testprog.Start(t, testprog.Build(t, "go/routines", variant))
			var said struct{ Stack string }
			if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
				t.Fatal(err)
			}
			truth := parse(t, said.Stack)
			s := take(t, Options{Routines: true}, open1(t, p.PID))[0]
			seen := map[uint64]*stacks.Goroutine{}
			for i := range s.Goroutines {
				g := &s.Goroutines[i]
				if seen[g.ID] != nil {
					t.Errorf("goroutine %d twice", g.ID)
				}
				seen[g.ID] = g
			}
			for id, want := range truth {
				g := seen[id]
				delete(seen, id)
				if g == nil {
					t.Errorf("goroutine %d is not there", id)
					continue
				}
				if id == 1 {
					continue // it went on: it made the report
				}
				if g.Status != want.status || g.Wait != want.wait || g.Locked != want.locked || g.Truncated != stack.ReasonNone {
					t.Errorf("goroutine %d: %s %q locked %v, %v; want %+v", id, g.Status, g.Wait, g.Locked, g.Truncated, want)
				}
				if born := words([]stacks.Frame{*g.CreatedBy})[0]; born != want.born || g.Parent != 1 {
					t.Errorf("goroutine %d was created by %s in %d, want %s in 1", id, born, g.Parent, want.born)
				}
				compare(t, id, words(g.Frames), want.frames)
			}
			for id, g := range seen {
				for _, f := range g.Frames {
					if !strings.HasPrefix(f.Func, "runtime.") {
						t.Errorf("goroutine %d is the runtime's, but has %s", id, f.Func)
					}
				}
			}
		})
	}
}

// compare holds a stack against runtime.Stack's.
func compare(t *testing.T, id uint64, got, want []string) {
	t.Helper()
	i, elided := 0, false
	for _, f := range got {
		switch {
		case i < len(want) && f == want[i]:
			i++
		case i < len(want) && want[i] == "...":
			i++
			elided = true
		case strings.HasPrefix(f, "runtime."), strings.Contains(f, ".gowrap"), elided: // gowrap: made by the compiler for a go statement
		default:
			t.Errorf("goroutine %d has %s; want\n\t%.2000s", id, f, strings.Join(want, "\n\t"))
			return
		}
	}
	if i < len(want) {
		t.Errorf("goroutine %d lacks %s; got\n\t%.2000s", id, want[i], strings.Join(got, "\n\t"))
	}
}

// TestGoroutinesText looks at what people get.
func TestGoroutinesText(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "go/routines", "default"), "-many", "10000")
	p.Line("{")
	s := take(t, Options{Routines: true}, open1(t, p.PID))[0]
	var b strings.Builder
	if err := s.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const since = `(, for \S+( to \S+)? at least)?` // the runtime tells after a garbage collection
	for _, want := range []string{`\n10000 goroutines, waiting: chan receive` + since + `\n`, `, waiting: sync.Mutex.Lock` + since + `\n`,
		`, syscall, on TID \d`, `, waiting: chan receive` + since + `, locked to its thread\n`, `  created by main.main at .*/main.go:\d`,
		` and 9984 more\n`, `, in goroutine 1\n`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("%s is missing", want)
		}
	}
	if lines := strings.Count(b.String(), "\n"); lines > 1000 {
		t.Errorf("%d lines", lines)
	}
	b.Reset()
	if err := s.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Goroutines []struct {
			ID     uint64
			Frames []struct{ Func string }
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &doc); err != nil || len(doc.Goroutines) != len(s.Goroutines) {
		t.Errorf("%d goroutines in JSON, want %d: %v", len(doc.Goroutines), len(s.Goroutines), err)
	}
}

// TestNoGoroutines asks a program that has none.
func TestNoGoroutines(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/sleepers", "O2"), "--sleepers", "2", "--seconds", "600", "--wait-go")
	p.Ready()
	_, _, err := Take([]*target.Process{open1(t, p.PID)}, Options{Routines: true})
	var none *NoGoError
	if !errors.As(err, &none) || none.PID != p.PID {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID)); err != nil {
		t.Error(err)
	}
}
