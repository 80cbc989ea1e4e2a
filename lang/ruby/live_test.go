package ruby

//sliver:layer live unraced

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// versions lists the versions of Ruby to test; testprog reports missing ones. Those for arm64 run in an
// emulator, which keeps their memory at the same addresses in its own.
var versions = []string{"ruby3.1", "ruby3.3", "ruby3.4", "ruby3.1-arm64", "ruby3.3-arm64", "ruby3.4-arm64"}

// prog is a process that contains CRuby.
type prog struct {
	*testprog.Proc
	mem   memory
	rt    *Runtime
	funcs map[[2]uint64]*Func // at this moment, by instruction sequence and method entry
	outer []string            // the last ones of places, of Fibers that resumed the running one
}

// memory is a process's memory.
type memory struct{ io.ReaderAt }

func (m memory) ReadSpans(spans []stack.Span, b []byte) (n int) {
	for _, s := range spans {
		if k, _ := m.ReadAt(b[n:n+s.Len], int64(s.Addr)); k < s.Len {
			break
		}
		n += s.Len
	}
	return n
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
		if len(f) < 6 || f[2] != "00000000" || seen[f[5]] || !strings.Contains(filepath.Base(f[5]), "ruby") {
			continue
		}
		seen[f[5]] = true
		file, err := os.Open(f[5])
		if err != nil {
			continue
		}
		img, err := Load(file)
		file.Close()
		if errors.Is(err, ErrNotRuby) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		base, err := strconv.ParseUint(f[0][:strings.IndexByte(f[0], '-')], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		rt, err := New(img, base, mem)
		if err != nil {
			t.Fatal(err)
		}
		return &prog{p, memory{mem}, rt, map[[2]uint64]*Func{}, nil}
	}
	t.Fatal("no interpreter found")
	return nil
}

// places returns a stack as Ruby prints it: path, line and label. A method in C has its caller's path
// and line.
func (p *prog) places(t *testing.T, s *Stack) []string {
	t.Helper()
	funcs := make([]*Func, len(s.Frames))
	for i := range s.Frames {
		f := &s.Frames[i]
		place := [2]uint64{f.ISeq, f.Entry}
		if funcs[i] = p.funcs[place]; funcs[i] == nil {
			var err error
			if funcs[i], err = p.rt.Func(p.mem, f); err != nil {
				t.Fatalf("frame %d, %+v: %v", i, *f, err)
			}
			p.funcs[place] = funcs[i]
		}
	}
	p.rt.Hide(s, func(i int) *Func { return funcs[i] })
	var out []string
	inner := len(s.Frames)
	for _, n := range s.Fibers {
		inner -= n
	}
	p.outer = nil
	where := "\t0\t" // no caller is in Ruby
	for i := len(s.Frames) - 1; i >= 0; i-- {
		f, c := &s.Frames[i], funcs[i]
		if i == inner-1 {
			p.outer, where = slices.Clone(out), "\t0\t"
		}
		if f.Hidden {
			continue
		}
		if !c.C() {
			off, ok := c.Offset(f.PC)
			if !ok {
				t.Fatalf("frame %d at %#x is outside of %s", i, f.PC, c.Label)
			}
			where = fmt.Sprintf("%s\t%d\t", c.Path, c.Line(off))
		}
		out = append(out, where+c.Label)
	}
	slices.Reverse(out)
	slices.Reverse(p.outer)
	return out
}

// moment is what the program says of itself.
type moment struct {
	threads map[int32][]string
	parked  int32 // the thread that waits for the next line
	resumer []string
}

func readMoment(t *testing.T, file string) (m moment) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m.threads = map[int32][]string{}
	resumer := false
	for line := range strings.Lines(string(b)) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case kind == "T":
			n, err := strconv.Atoi(rest)
			if err != nil {
				t.Fatal(err)
			}
			m.parked = int32(n)
			m.threads[m.parked] = nil
		case kind == "R":
			resumer = true
		case resumer:
			m.resumer = append(m.resumer, rest)
		default:
			m.threads[m.parked] = append(m.threads[m.parked], rest)
		}
	}
	return m
}

// await waits until the thread sleeps in the call of that name.
func (p *prog) await(t *testing.T, tid int32, name string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	look := time.NewTicker(200 * time.Microsecond)
	defer look.Stop()
	for ; time.Now().Before(deadline); <-look.C {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", p.PID, tid)); err != nil || !strings.Contains(string(stat), ") S ") {
			continue
		}
		states, err := p.rt.Threads(p.mem)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(states, func(s State) bool { return s.TID == tid })
		var s Stack
		if i < 0 || !p.rt.Thread(states[i]).Capture(p.mem, p.mem, 0, &s) || len(s.Frames) == 0 {
			continue
		}
		if c, err := p.rt.Func(p.mem, &s.Frames[0]); err == nil && c.Label == name {
			return
		}
	}
	t.Fatalf("thread %d does not come to %s", tid, name)
}

// gets is the frame in which the program waits, at the line of its caller.
func gets(version string, caller string) string {
	at := caller[:strings.LastIndexByte(caller, '\t')+1]
	if strings.HasPrefix(version, "ruby3.4") {
		return at + "IO#gets"
	}
	return at + "gets"
}

// TestFrozen compares all threads' stacks at many moments of a program with its own backtraces.
func TestFrozen(t *testing.T) {
	moments := 250
	if testing.Short() {
		moments = 30
	} else if os.Getenv("SLIVER_LONG") != "" {
		moments = 1000
	}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "moment")
			p := testprog.Start(t, testprog.Tool(t, v), "testdata/shapes.rb", strconv.Itoa(moments), "7", file)
			var in *prog
			threads, frames, fibers, seen := 0, 0, 0, map[string]bool{}
			for i := 1; i <= moments; i++ {
				p.Line(fmt.Sprintf("parked %d", i))
				if in == nil {
					in = attach(t, p)
				}
				clear(in.funcs)
				want := readMoment(t, file)
				waits := gets(v, want.threads[want.parked][0])
				in.await(t, want.parked, waits[strings.LastIndexByte(waits, '\t')+1:])
				states, err := in.rt.Threads(in.mem)
				if err != nil {
					t.Fatal(err)
				}
				if len(states) != len(want.threads) {
					t.Fatalf("moment %d: %d threads, want %d", i, len(states), len(want.threads))
				}
				for _, s := range states {
					places, ok := want.threads[s.TID]
					if !ok {
						t.Fatalf("moment %d: thread %d is not one of the program's", i, s.TID)
					}
					if s.TID == want.parked {
						places = append([]string{waits}, places...)
					}
					th := in.rt.Thread(s)
					var got Stack
					if !th.Capture(in.mem, in.mem, 0, &got) || got.Reason != 0 {
						t.Fatalf("moment %d, thread %d: %v", i, s.TID, got.Reason)
					}
					is := in.places(t, &got)
					own := is[:len(is)-len(in.outer)]
					if !slices.Equal(own, places) {
						t.Fatalf("moment %d, thread %d:\n%s\nwant\n%s", i, s.TID, strings.Join(own, "\n"), strings.Join(places, "\n"))
					}
					threads++
					frames += len(places)
					for _, f := range places {
						seen[f] = true
					}
					if s.TID == want.parked && want.resumer != nil {
						fibers++
						if len(in.outer) < 1 || !slices.Equal(in.outer[1:], want.resumer) {
							t.Fatalf("moment %d, Fiber that resumed:\n%s\nwant\n%s", i, strings.Join(in.outer, "\n"), strings.Join(want.resumer, "\n"))
						}
					}
				}
				p.Go()
			}
			if s := p.Wait(); !s.Success() {
				t.Fatalf("ended with %v: %q", s, p.Errors())
			}
			t.Logf("%s: %d moments, %d stacks, %d frames (%d different), %d Fibers that resumed another", in.rt.img.Version, moments, threads, frames, len(seen), fibers)
			if fibers < moments/40 {
				t.Errorf("%d Fibers only", fibers)
			}
		})
	}
}
