package oneshot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

var pythons = []string{"python3", "python3.8", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"}

// versions returns the versions for a test: with -short only the first. Versions differ
// in their data layout, not in their concurrency.
func versions(all []string) []string {
	if testing.Short() {
		return all[:1]
	}
	return all
}

func startPython(t *testing.T, version, program, ready string) *testprog.Proc {
	t.Helper()
	return startPark(t, exec.Command(testprog.Tool(t, version)), program, ready)
}

// startPark runs a program with an interpreter until it prints ready.
func startPark(t *testing.T, python *exec.Cmd, program, ready string) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	python.Args = append(python.Args, filepath.Join(testprog.Root(t), "testdata", "targets", "python", program))
	p := testprog.StartCmd(t, python)
	p.Line(ready)
	return p
}

var faultLine = regexp.MustCompile(`^  File ".*", line (\d+) in (.*)$`)

// faults counts the equal stacks that faulthandler printed. A key has a line and function per frame.
func faults(lines []string) map[string]int {
	out, one := map[string]int{}, ""
	for _, l := range lines {
		switch m := faultLine.FindStringSubmatch(l); {
		case m != nil:
			one += m[1] + " " + strings.ReplaceAll(m[2], `\xe4`, "ä") + "\n"
		default:
			if one != "" {
				out[one]++
			}
			one = ""
		}
	}
	return out
}

// TestPythonStacks: each thread's functions of Python must match faulthandler, each run
// of them must be right before the C function that evaluates it, and no stack may have
// a gap.
func TestPythonStacks(t *testing.T) {
	for _, v := range versions(pythons) {
		t.Run(v, func(t *testing.T) {
			parked(t, startPython(t, v, "park.py", "parked"))
		})
	}
}

// parked compares the stacks of a park.py with those that it printed.
func parked(t *testing.T, p *testprog.Proc) {
	t.Helper()
	want := faults(p.Output())
	s := take(t, Options{}, open1(t, p.PID))[0]
	seen := 0
	for i := range s.Threads {
		th := &s.Threads[i]
		if th.Truncated != stack.ReasonNone {
			t.Errorf("%s ends early: %v", th.OwnName, th.Truncated)
		}
		if int(th.TID) == p.PID {
			if th.OwnName != "MainThread" {
				t.Errorf("main is called %q", th.OwnName)
			}
			continue
		}
		got := ""
		for j, f := range th.Frames {
			switch f.Kind {
			case stack.KindError:
				t.Errorf("%s has a gap: %s", th.OwnName, f.Func)
			case stack.KindPython:
				got += fmt.Sprintf("%d %s\n", f.Line, f.Func[strings.LastIndexByte(f.Func, '.')+1:])
				k := j + 1
				for th.Frames[k].Inlined {
					k++
				}
				if by := th.Frames[k]; by.Kind == stack.KindNative && !evaluates(by.Func) {
					t.Errorf("%s: %s is run by %s", th.OwnName, f.Func, by.Func)
				}
			}
		}
		if want[got]--; want[got] < 0 {
			t.Errorf("%s is not what faulthandler has:\n%s", th.OwnName, got)
		}
		seen++
	}
	if seen < 10 {
		t.Errorf("only %d threads", seen)
	}
	between(t, s)
}

// TestPythonBuilds: the same in a virtual environment, and with an interpreter that has
// only exported symbols, as in distributions. (Debian's own are of that kind: python3,
// which is one file without a library, and python3.14.)
func TestPythonBuilds(t *testing.T) {
	for _, v := range versions([]string{"python3.8", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13"}) {
		python := testprog.Tool(t, v)
		t.Run("venv/"+v, func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command(python, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			parked(t, startPark(t, exec.Command(filepath.Join(dir, "bin", "python")), "park.py", "parked"))
		})
		t.Run("stripped/"+v, func(t *testing.T) {
			parked(t, startPark(t, strippedPython(t, python), "park.py", "parked"))
		})
	}
}

// strippedPython returns an interpreter whose program and library have only exported
// symbols.
func strippedPython(t *testing.T, python string) *exec.Cmd {
	t.Helper()
	testprog.Need(t, "readelf") // strip is in the same package
	const where = "import sys, sysconfig as s; print(sys._base_executable, sys.base_prefix, s.get_config_var('LDLIBRARY'), s.get_config_var('LIBDIR'))"
	out, err := exec.Command(python, "-c", where).Output()
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Fields(string(out))
	if len(said) != 4 {
		t.Fatalf("%s says %q of where it is", python, out)
	}
	program, prefix, library := said[0], said[1], filepath.Join(said[3], said[2])
	dir := t.TempDir()
	strip := func(file string) {
		if out, err := exec.Command("strip", "-o", filepath.Join(dir, filepath.Base(file)), file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	strip(program)
	cmd := exec.Command(filepath.Join(dir, filepath.Base(program)))
	cmd.Env = append(os.Environ(), "PYTHONHOME="+prefix)
	if strings.Contains(library, ".so") {
		if library, err = filepath.EvalSymlinks(library); err != nil {
			t.Fatal(err)
		}
		strip(library)
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+dir)
	}
	return cmd
}

// evaluates: in a stripped program, the part of the function that the compiler moved
// elsewhere is only named by its start (trace.PlaceName).
func evaluates(fn string) bool {
	return strings.HasPrefix(fn, "python3") && strings.Contains(fn, "+0x") || strings.HasPrefix(fn, "_PyEval_EvalFrameDefault")
}

// between checks the C functions that must be between two of Python.
func between(t *testing.T, s *stacks.Snapshot) {
	t.Helper()
	for _, c := range []struct{ inner, c, outer string }{
		{"callback", "sqlite3_step", "database"},
		{"Odd.__repr__", "PyObject_Repr", "formatting"},
	} {
		found := false
		for i := range s.Threads {
			fs := s.Threads[i].Frames
			at := func(name string, from int) int {
				for j := from; j >= 0 && j < len(fs); j++ {
					if fs[j].Func == name {
						return j
					}
				}
				return -1
			}
			// Qualified names exist since 3.11.
			inner := max(at(c.inner, 0), at(c.inner[strings.LastIndexByte(c.inner, '.')+1:], 0))
			if inner < 0 || at(c.outer, 0) < 0 {
				continue
			}
			if k := at(c.c, inner); k > inner && k < at(c.outer, 0) {
				found = true
			} else {
				t.Errorf("%s is not between %s and %s: %+v", c.c, c.inner, c.outer, fs)
			}
		}
		if !found {
			t.Errorf("no thread is in %s below %s", c.inner, c.outer)
		}
	}
}

// TestPythonGIL: of threads that contend for the lock, those that sleep for it must be
// reported, and a reported holder must be another thread of Python.
func TestPythonGIL(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	for _, v := range versions(pythons) {
		t.Run(v, func(t *testing.T) {
			p := startPython(t, v, "gil.py", "fighting")
			pr := open1(t, p.PID)
			deep := 0
			until(t, Options{}, "a wait for the lock with its holder", func(s []*stacks.Snapshot) bool {
				held := false
				for _, th := range s[0].Threads {
					n := 0
					for _, f := range th.Frames {
						if f.Kind == stack.KindPython && strings.HasSuffix(f.Func, "deep") {
							n++
						}
					}
					deep = max(deep, n)
					if th.Wait == nil || th.Wait.Lock == nil || th.Wait.Lock.Kind != kind.LockGIL {
						continue
					}
					h := th.Wait.Lock.Holder
					if h.TID == th.TID {
						t.Errorf("TID %d waits for itself", th.TID)
					}
					if h.TID == 0 {
						continue
					}
					o := s[0].Thread(h.TID)
					if o == nil || h.By != event.KnownByRuntime || !slices.ContainsFunc(o.Frames, func(f stacks.Frame) bool { return f.Kind == stack.KindPython }) {
						t.Errorf("the holder is %+v", h)
					}
					var b strings.Builder
					if err := s[0].WriteText(&b); err != nil || !strings.Contains(b.String(), fmt.Sprintf("waits for GIL at %#x\n    held by TID %d ", th.Wait.Lock.Addr, h.TID)) {
						t.Errorf("%v\n%s", err, b.String())
					}
					held = true
				}
				return held && deep > 0
			}, pr)
			if deep != 201 {
				t.Errorf("%d activations of deep, not 201", deep)
			}
		})
	}
}

// TestPythonUnknown: an unsupported interpreter must cost a problem line, not the
// stacks of C.
func TestPythonUnknown(t *testing.T) {
	p := startPython(t, "python3.7", "gil.py", "fighting")
	snaps, problems, err := Take([]*target.Process{open1(t, p.PID)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := slices.IndexFunc(problems, func(s string) bool { return strings.Contains(s, "Python 3.7 or older is not known") }); n < 0 {
		t.Errorf("problems %q", problems)
	}
	for _, th := range snaps[0].Threads {
		if len(th.Frames) < 5 {
			t.Errorf("TID %d has %d frames", th.TID, len(th.Frames))
		}
	}
}
