package oneshot

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

var nodes = []string{"node", "node18", "node22", "node24"}

// at matches a line of Error().stack.
var at = regexp.MustCompile(`^ +at (?:(.*) \()?([^ ()]+):(\d+):\d+\)?$`)

// errorStack extracts the functions in our files from Error().stack: name and line. It
// removes the receiver that V8 adds to names.
func errorStack(s string) (out string, n int) {
	for _, l := range strings.Split(s, "\n") {
		// eval code also shows its origin
		if i := strings.Index(l, "eval at "); i > 0 {
			l = l[:i] + l[strings.LastIndex(l, ", ")+2:]
		}
		m := at.FindStringSubmatch(l)
		if m == nil || strings.HasPrefix(m[2], "node:") {
			continue
		}
		line, _ := strconv.Atoi(m[3])
		out += fmt.Sprintf("%s %d\n", plainName(m[1]), line)
		n++
	}
	return out, n
}

func plainName(s string) string {
	if strings.HasPrefix(s, "(") {
		return "" // no name
	}
	for _, p := range []string{"new ", "async ", "get "} {
		s = strings.TrimPrefix(s, p)
	}
	if i := strings.Index(s, " [as "); i >= 0 {
		s = s[:i]
	}
	s = s[strings.LastIndexByte(s, '.')+1:]
	s = strings.TrimPrefix(s, "#")
	if s == "<anonymous>" || s == "eval" {
		s = ""
	}
	return s
}

// ours returns the same for a thread's stack.
func ours(th *stacks.Thread) string {
	out := ""
	for _, f := range th.Frames {
		if f.Kind == stack.KindJS && !strings.HasPrefix(f.File, "node:") {
			out += fmt.Sprintf("%s %d\n", plainName(f.Func), f.Line)
		}
	}
	return out
}

// TestNodeStacks: the functions of JavaScript on the stacks of threads that sleep in
// them must match Error().stack, with their lines, in all of V8's tiers, and no stack
// may have a gap. The threads have more code than fits near V8's own
// code, so V8 copies its own code (unwind.Space.Copies): the copies must be named too.
func TestNodeStacks(t *testing.T) {
	type way struct{ node, flag string }
	// In the other versions, functions that are called often are in baseline code, and
	// those that Turbofan has not compiled yet in Maglev's.
	ways := []way{{"node24", "--always-sparkplug"}, {"node24", "--no-turbofan"}}
	for _, v := range versions(nodes) {
		ways = append(ways, way{node: v})
	}
	for _, way := range ways {
		v, args := way.node, []string{filepath.Join(testprog.Root(t), "testdata", "targets", "node", "park.js"), "2"}
		if way.flag != "" {
			args = append([]string{way.flag}, args...)
		}
		t.Run(v+way.flag, func(t *testing.T) {
			testprog.Need(t, "ptrace")
			p := testprog.Start(t, testprog.Tool(t, v), args...)
			workers, err := strconv.Atoi(strings.TrimPrefix(p.Line("parked "), "parked "))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{}
			for _, l := range p.Output() {
				if l, ok := strings.CutPrefix(l, "stack "); ok {
					var s string
					if err := json.Unmarshal([]byte(l), &s); err != nil {
						t.Fatalf("%v in %s", err, l)
					}
					one, n := errorStack(s)
					if n < 2 {
						t.Fatalf("only %d frames in %s", n, s)
					}
					want[one]++
				}
			}
			var got map[string]int
			var last *stacks.Snapshot
			for until := time.Now().Add(10 * time.Second); ; { // the last one may not be asleep yet
				s := take(t, Options{}, open1(t, p.PID))[0]
				last, got = s, map[string]int{}
				for i := range s.Threads {
					th := &s.Threads[i]
					if th.Truncated != stack.ReasonNone {
						t.Errorf("thread %d ends early: %v", th.TID, th.Truncated)
					}
					if o := ours(th); strings.HasPrefix(o, "park ") {
						got[o]++
					}
				}
				n := 0
				for _, k := range got {
					n += k
				}
				if n == workers || time.Now().After(until) {
					break
				}
			}
			if v != "node" { // Debian's has no symbols
				for i := range last.Threads {
					for _, f := range last.Threads[i].Frames {
						if f.Func == "" {
							t.Errorf("thread %d: a frame at %#x in %q has no name", last.Threads[i].TID, f.Addr, f.Module)
						}
					}
				}
			}
			for s, n := range got {
				if want[s] != n {
					t.Errorf("%d threads, %d by Error().stack, have\n%s", n, want[s], s)
				}
			}
			for s, n := range want {
				if got[s] == 0 {
					t.Errorf("%d by Error().stack, none by us, have\n%s", n, s)
				}
			}
		})
	}
}

// changed returns a copy of the system's node with other bytes.
func changed(t *testing.T, change func(b []byte)) string {
	t.Helper()
	b, err := os.ReadFile(testprog.Tool(t, "node"))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(b)
	}
	path := filepath.Join(t.TempDir(), "node")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// sleeper starts a program that sleeps in JavaScript, and samples it.
func sleeper(t *testing.T, node string) (js int, problems []string) {
	t.Helper()
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, node, "-e", `function sleeper() { console.log("asleep"); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600000); }
		sleeper();`)
	p.Line("asleep")
	snaps, problems, err := Take([]*target.Process{open1(t, p.PID)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range snaps[0].Threads {
		for _, f := range snaps[0].Threads[i].Frames {
			if f.Kind == stack.KindJS {
				if js++; f.Func == "" || f.File == "" {
					t.Errorf("a frame %+v", f)
				}
			}
		}
	}
	return js, problems
}

// TestNodeStripped: a stripped node must still have its functions.
func TestNodeStripped(t *testing.T) {
	path := changed(t, nil)
	if out, err := exec.Command(testprog.Tool(t, "strip"), path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if js, problems := sleeper(t, path); js < 2 || len(problems) > 0 {
		t.Errorf("%d functions; %q", js, problems)
	}
}

// TestNodeMoved: with a V8 whose data are not at the expected place, no function may be
// shown, and a line must give the reason.
func TestNodeMoved(t *testing.T) {
	path := changed(t, func(b []byte) {
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		syms, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range syms {
			if s.Name != "v8dbg_class_JSFunction__shared__SharedFunctionInfo" {
				continue
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
					b[p.Off+s.Value-p.Vaddr] += 8
				}
			}
		}
	})
	js, problems := sleeper(t, path)
	if js > 0 || len(problems) != 1 || !strings.Contains(problems[0], "V8 ") || strings.Contains(problems[0], "\n") {
		t.Errorf("%d functions; %q", js, problems)
	}
}
