package canary

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// TestStacks compares the stack of a slow read with the program's own account, in every language.
func TestStacks(t *testing.T) {
	testprog.Unraced(t, "it compares what one goroutine finds; TestBacktrace and TestLeak are its short form")
	testprog.Need(t, "ptrace")
	path := slow(t, 14_000_000)
	target := func(name string) string { return filepath.Join(testprog.Root(t), "testdata", "targets", name) }
	for name, start := range map[string]func(t *testing.T) *testprog.Proc{
		"go": func(t *testing.T) *testprog.Proc {
			return testprog.Start(t, testprog.Build(t, "go/files", "default"), path)
		},
		"python3.8": func(t *testing.T) *testprog.Proc {
			return testprog.Start(t, testprog.Tool(t, "python3.8"), target("python/files.py"), path)
		},
		"python3.12": func(t *testing.T) *testprog.Proc {
			return testprog.Start(t, testprog.Tool(t, "python3.12"), target("python/files.py"), path)
		},
		"node": func(t *testing.T) *testprog.Proc {
			return testprog.Start(t, testprog.Tool(t, "node"), target("node/files.js"), path)
		},
		"java17": func(t *testing.T) *testprog.Proc {
			return testprog.Start(t, testprog.Tool(t, "java17"), "-Xmx64m", "-XX:+UseSerialGC", "-cp", testprog.JavaClasses(t, "Files"), "Files", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "python3.8" || name == "node" {
				testprog.Whole(t, "another Python, Go and Java")
			}
			p := start(t)
			p.Ready()
			s := watch(t, p.PID, "small-buffer gap=8s")
			p.Go()
			want := strings.Fields(p.Line("truth "))[1:]
			p.Done()
			s.end(t)
			all := s.Engine.Findings()
			i := slices.IndexFunc(all, func(f *iowatch.Finding) bool { return f.Path == path })
			if i < 0 {
				t.Fatalf("no finding for %s: %+v", path, all)
			}
			f := all[i]
			for what, id := range map[string]iowatch.StackID{"opened": f.Stack, "read": f.Where} {
				frames, why := s.Stacks.Frames(uint32(id))
				var got []string
				var of []iowatch.Frame
				for i := range frames {
					if name == "go" || frames[i].Kind.Managed() {
						got = append(got, frames[i].Func)
						of = append(of, iowatch.Frame{Func: frames[i].Func, File: frames[i].File, Module: frames[i].Module})
					}
				}
				mine := want
				if what == "opened" {
					mine = want[1:] // from its caller on
				}
				at := slices.Index(got, mine[0])
				if what == "opened" && name == "python3.8" && !s.Stacks.Complete(uint32(id)) {
					continue // its frames are anywhere: those of the first operation may be missing, and say so
				}
				if why != stack.ReasonNone || !s.Stacks.Complete(uint32(id)) || at < 0 || len(got) < at+len(mine) || !slices.Equal(got[at:at+len(mine)], mine) {
					t.Errorf("%s at %q (%v), the program says %q", what, got, why, mine)
				} else if own := iowatch.Caller(len(of), func(i int) iowatch.Frame { return of[i] }); got[own] != mine[0] {
					t.Errorf("%s in %s of %+v, not %s", what, got[own], of, mine[0])
				}
			}
			if f.Ops != 25 || f.Bytes != 2500 {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestBusyPython: many calls before the kernel copies the memory of Python's frames do not keep later stacks from
// having these frames.
func TestBusyPython(t *testing.T) {
	testprog.Whole(t, "TestPythonCommand has Python's frames")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	for _, tool := range []string{"python3.11", "python3.12", "python3.14"} {
		t.Run(tool, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			p := testprog.Start(t, testprog.Tool(t, tool), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "syncs.py"), path)
			p.Ready()
			s := watchEach(t, p.PID)
			p.Go()
			p.Done()
			s.end(t)
			whole, others := 0, 0 // stacks, from the first whole one on
			for _, o := range s.ops {
				if o.Op != iowatch.OpSync || o.path != path || o.Stack == 0 {
					continue
				}
				frames, _ := s.Stacks.Frames(uint32(o.Stack))
				var own []string
				for i := range frames {
					if frames[i].Kind.Managed() {
						own = append(own, frames[i].Func)
					}
				}
				if s.Stacks.Complete(uint32(o.Stack)) && len(own) > 2 && own[0] == "append" && own[1] == "appending" {
					whole++
				} else if whole > 0 {
					others++
				}
			}
			if whole < 50 || others > whole/10 {
				t.Errorf("%d stacks have Python's functions, then %d do not", whole, others)
			}
		})
	}
}
