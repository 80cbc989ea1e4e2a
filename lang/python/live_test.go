package python

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// versions lists the versions of CPython to test; testprog reports missing ones.
var versions = []string{"python3.8", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "python3"}

// prog is a process that contains CPython.
type prog struct {
	*testprog.Proc
	mem io.ReaderAt
	rt  *Runtime
}

// attach finds the interpreter of a process by its mapped files.
func attach(t *testing.T, p *testprog.Proc) *prog {
	t.Helper()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	seen := map[string]bool{}
	for sc := bufio.NewScanner(maps); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) < 6 || f[2] != "00000000" || seen[f[5]] || !strings.Contains(filepath.Base(f[5]), "python") {
			continue
		}
		seen[f[5]] = true
		file, err := os.Open(f[5])
		if err != nil {
			continue
		}
		img, err := Load(file)
		file.Close()
		if errors.Is(err, ErrNotPython) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		base, err := strconv.ParseUint(f[0][:strings.IndexByte(f[0], '-')], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if base == 0x400000 { // linked to that address
			base = 0
		}
		rt, err := New(img, base, mem)
		if err != nil {
			t.Fatal(err)
		}
		return &prog{p, mem, rt}
	}
	t.Fatal("no interpreter found")
	return nil
}

var faultLine = regexp.MustCompile(`^  File "(.*)", line (\d+) in (.*)$`)
var faultThread = regexp.MustCompile(`^(?:Current thread|Thread) 0x([0-9a-f]+)`)

// faults parses faulthandler's output into stacks by thread.
func faults(lines []string) map[uint64][]string {
	out := map[uint64][]string{}
	var at uint64
	for _, l := range lines {
		if m := faultThread.FindStringSubmatch(l); m != nil {
			at, _ = strconv.ParseUint(m[1], 16, 64)
		} else if m := faultLine.FindStringSubmatch(l); m != nil {
			out[at] = append(out[at], m[1]+":"+m[2]+" "+m[3])
		}
	}
	return out
}

// last returns the last part of a qualified name, as faulthandler prints it.
func last(name string) string {
	return name[strings.LastIndexByte(name, '.')+1:]
}

// escaped formats a name as faulthandler does.
func escaped(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\x%02x", r)
		}
	}
	return b.String()
}

func (p *prog) stack(t *testing.T, s State) []string {
	t.Helper()
	var st Stack
	if !p.rt.Thread(s).Capture(p.mem, &st) {
		t.Fatalf("thread %#x is not there", s.Ident)
	}
	if st.Reason != 0 {
		t.Errorf("thread %#x: %v", s.Ident, st.Reason)
	}
	var out []string
	n := 0
	for _, g := range st.Groups {
		n += g.N
		if p.rt.Anchored() && g.Anchor == 0 {
			t.Errorf("thread %#x: a group without its place on the C stack", s.Ident)
		}
	}
	if n != len(st.Frames) {
		t.Errorf("%d frames in groups, %d in all", n, len(st.Frames))
	}
	for _, f := range st.Frames {
		c, err := p.rt.Code(p.mem, f.Code)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s:%d %s", c.File, c.Line(f.Off), escaped(last(c.Name))))
	}
	return out
}

// TestFaulthandler compares the stacks of parked threads with faulthandler's output, and checks
// their names and the lock.
func TestFaulthandler(t *testing.T) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			p := testprog.Start(t, testprog.Tool(t, v), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "park.py"))
			p.Line("parked")
			g := attach(t, p)
			want := faults(p.Output())
			states, err := g.rt.Threads(g.mem)
			if err != nil {
				t.Fatal(err)
			}
			if len(states) < 9 || len(want) != len(states) {
				t.Fatalf("%d threads, faulthandler has %d", len(states), len(want))
			}
			names, err := g.rt.ThreadNames(g.mem, states[0].Interp)
			if err != nil {
				t.Fatal(err)
			}
			frames := 0
			for _, s := range states {
				if s.Native == int32(p.PID) {
					if names[s.Ident] != "MainThread" {
						t.Errorf("main is called %q", names[s.Ident])
					}
					continue // it continued after the output
				}
				if !strings.HasPrefix(names[s.Ident], "parked-") {
					t.Errorf("thread %d is called %q", s.Native, names[s.Ident])
				}
				if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", p.PID, s.Native)); err != nil {
					t.Errorf("thread %d: %v", s.Native, err)
				}
				got := g.stack(t, s)
				if !slices.Equal(got, want[s.Ident]) {
					t.Errorf("%s:\n%s\nfaulthandler:\n%s", names[s.Ident], strings.Join(got, "\n"), strings.Join(want[s.Ident], "\n"))
				}
				frames += len(got)
			}
			lock, err := g.rt.GIL(g.mem, states[0].Interp)
			if err != nil {
				t.Fatal(err)
			}
			// The main thread may not sleep yet.
			if !slices.ContainsFunc(states, func(s State) bool { return s.Addr == lock.Holder && (!lock.Locked || s.Native == int32(p.PID)) }) {
				t.Errorf("all threads but main sleep, and the lock is %+v", lock)
			}
			t.Logf("%s: %d threads, %d frames", g.rt.Version(), len(states), frames)
		})
	}
}

// reuse compiles one text twice at the same address.
const reuse = `
import sys
code = compile("a", "f", "exec")
at = id(code)
print("at", at, flush=True)
sys.stdin.readline()
code = None
kept = []
for i in range(100000):
    kept.append(compile("a", "f", "exec"))
    if id(kept[-1]) == at:
        break
print("again", id(kept[-1]), flush=True)
sys.stdin.readline()
`

// TestReused: from 3.12 on, two compilations of one text differ, even at the same address.
func TestReused(t *testing.T) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			p := testprog.Start(t, testprog.Tool(t, v), "-c", reuse)
			first := p.Line("at ")
			g := attach(t, p)
			addr, err := strconv.ParseUint(strings.TrimPrefix(first, "at "), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			one, err := g.rt.Code(g.mem, addr)
			if err != nil {
				t.Fatal(err)
			}
			p.Say("go on")
			if second := p.Line("again "); strings.TrimPrefix(second, "again ") != strings.TrimPrefix(first, "at ") {
				t.Fatalf("%s, then %s", first, second)
			}
			two, err := g.rt.Code(g.mem, addr)
			if err != nil {
				t.Fatal(err)
			}
			if knows := g.rt.img.Minor >= 12; knows != (g.rt.l.coVersion != none) {
				t.Errorf("%s: the version is at %d", g.rt.Version(), g.rt.l.coVersion)
			} else if knows && (one.Same(two) || g.rt.list().Key != int(g.rt.l.coVersion)) {
				t.Errorf("%s: the same code", g.rt.Version())
			} else if one.Name != "<module>" || two.Name != one.Name {
				t.Errorf("%q and %q", one.Name, two.Name)
			}
		})
	}
}
