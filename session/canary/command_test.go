package canary

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// importing writes modules that open a file while they are imported, one after another, and then some within each other.
// The code of each is freed when it ends, and the next one's may be at its address. It returns the main program, which then
// makes the file until.done, waits for until, and the files, each with the modules that import it.
func importing(t *testing.T) (program, until string, want map[string][]string) {
	t.Helper()
	dir := t.TempDir()
	want = map[string][]string{}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	module := func(name, more string, by ...string) {
		mark := filepath.Join(dir, name+".mark")
		write(name+".mark", "")
		write(name+".py", fmt.Sprintf("open(%q).close()\ndef %s_one(a, b=1):\n    return a + b\nclass %s_two:\n    def method(self):\n        return 2\n%s", mark, name, name, more))
		want[mark] = append([]string{name}, by...)
	}
	text := ""
	for i := range 12 {
		name := fmt.Sprintf("side%d", i)
		module(name, "", "main")
		text += "import " + name + "\n"
	}
	const depth = 4
	by := []string{"main"}
	for i := range depth {
		name, more := fmt.Sprintf("deep%d", i), ""
		if i < depth-1 {
			more = fmt.Sprintf("import deep%d\n", i+1)
		}
		module(name, more, by...)
		by = append([]string{name}, by...)
	}
	until = filepath.Join(dir, "until")
	text += "import deep0, posix, time\n"
	text += fmt.Sprintf("open(%q, 'w').close()\n", until+".done")
	write("main.py", text+fmt.Sprintf("for i in range(6000):\n    try:\n        posix.stat(%q)\n        break\n    except OSError:\n        time.sleep(.01)\n", until))
	return filepath.Join(dir, "main.py"), until, want
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// wide is room for the records of a start of Python, so that a machine without a free CPU loses none.
const wide = 128 << 20

// A Python command has its frames from the first call on, also those of modules whose code is gone when the stack is walked.
func TestPythonCommand(t *testing.T) {
	testprog.Need(t, "ptrace")
	tools := []string{"python3.8", "python3.12", "python3.8, read late", "python3.12, read late"}
	if !testing.Short() {
		tools = append(tools, "python3.10", "python3.11", "python3.13")
	}
	for _, tool := range tools {
		t.Run(tool, func(t *testing.T) {
			tool, late := strings.CutSuffix(tool, ", read late")
			program, until, want := importing(t)
			cmd, err := target.Start([]string{testprog.Tool(t, tool), "-S", "-B", program})
			if err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Close()
			type one struct {
				stack iowatch.StackID
				path  string
			}
			var opens []one
			done := make(chan error, 1)
			var c *Canary
			go func() {
				var err error
				c, err = Open(cmd.Process, Options{Ring: wide, Slower: time.Minute, Each: func(r *kernel.IORecord, path string, _ iowatch.Kind) {
					if r.Sort == iowatch.OpOpen && want[path] != nil {
						if opens = append(opens, one{r.Event.Stack, path}); len(opens) == len(want) {
							_ = os.WriteFile(until, nil, 0o600) // without it, the program ends after a minute
						}
					}
				}})
				if err == nil {
					if err = cmd.ToEntry(); err == nil {
						c.Loaded()
					}
				}
				if late && err == nil { // the thread has a plan, and gets no other one before all is over
					c.plan(stack.TID(cmd.Process.PID()), []uint64{0}, false)
				}
				cmd.Release()
				for late && err == nil && !exists(until+".done") && cmd.Process.Alive() {
					runtime.Gosched()
				}
				if err == nil {
					err = c.Run(context.Background(), nil)
				}
				done <- err
			}()
			err = <-done
			if Refused(err) {
				testprog.Missing(t, "bpf", err.Error())
			} else if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if status, err := cmd.Wait(); status != 0 || err != nil {
				t.Fatal(status, err)
			}
			if len(opens) != len(want) {
				t.Errorf("%d opens of %d files", len(opens), len(want))
			}
			for _, o := range opens {
				frames, why := c.Stacks.Frames(uint32(o.stack))
				if got := modules(frames); why != stack.ReasonNone || !c.Stacks.Complete(uint32(o.stack)) || strings.Join(got, " ") != strings.Join(want[o.path], " ") {
					t.Errorf("%s: %v (%v), want %v", filepath.Base(o.path), got, why, want[o.path])
				}
			}
			if t.Failed() {
				t.Logf("%d stacks were walked, lost: %q", c.Stacks.Walked, c.Losses())
			}
			// How many come before Python is found depends on the CPUs that this program gets.
			lacking, early := uint64(0), c.Stacks.Incomplete[stack.ReasonNone]
			for _, n := range c.Stacks.Incomplete {
				lacking += n
			}
			if lacking -= early; lacking > c.Stacks.Walked/20 || early > c.Stacks.Walked/2 {
				t.Errorf("%d of %d stacks lack frames: %v", lacking, c.Stacks.Walked, c.Losses())
			}
		})
	}
}

// modules are those whose own code is in a stack, innermost first.
func modules(frames []stacks.Frame) (names []string) {
	for i := range frames {
		if frames[i].Kind.Managed() && frames[i].Func == "<module>" {
			names = append(names, strings.TrimSuffix(filepath.Base(frames[i].File), ".py"))
		}
	}
	return names
}
