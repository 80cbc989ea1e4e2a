package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// counter counts hits by their place.
type counter struct {
	n    map[calls.Where]int
	lost uint64
}

func (c *counter) Hit(h *calls.Hit)           { c.n[h.Where]++ }
func (c *counter) Lost(n uint64)              { c.lost += n }
func (c *counter) Gone(stack.TID, stack.Time) {}
func (c *counter) read(e *Engine) *counter    { e.Read(target.Now(), c, true); return c }
func (c *counter) String() string             { return fmt.Sprintf("%v, %d lost", c.n, c.lost) }

// places finds a function's entry and exits by its file's symbols.
func places(t *testing.T, path, name string, goCode bool) (out []Probe) {
	t.Helper()
	f := testprog.Symbol(t, path, name)
	arch, _ := calls.ArchOf(runtime.GOARCH)
	c, err := calls.Scan(arch, []calls.Part{{Vaddr: f.Vaddr, Code: f.Code}}, goCode)
	if err != nil {
		t.Fatal(err)
	}
	probe := func(vaddr uint64, w calls.Where) {
		out = append(out, Probe{Path: path, Off: vaddr - f.Vaddr + f.Off, Where: w, Go: goCode})
	}
	for _, x := range c.Exits {
		probe(x.Vaddr, x.Where)
	}
	probe(c.Entry, calls.Enter)
	return out
}

// TestReturnProbesEndPrograms is why the engine probes return instructions: the kernel's own return probe ends a C++
// program at the first exception through the function, and a Go program when its stack is copied. The engine's probes
// at the same function leave both as they are, with all calls counted.
func TestReturnProbesEndPrograms(t *testing.T) {
	testprog.Need(t, "g++", "go", "ptrace")
	if err := Check(); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	for _, c := range []struct {
		program, variant, function string
		goCode                     bool
	}{
		{"cpp/throwing", "O2", "_ZN4shop5order5totalEl", false},
		{"go/traced", "default", "main.probed", true},
	} {
		path := testprog.Build(t, c.program, c.variant)
		t.Run(c.program, func(t *testing.T) {
			p := testprog.Start(t, path, "1000")
			p.Ready()
			e, err := Open(p.PID, places(t, path, c.function, c.goCode))
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			p.Go()
			var all, returned, left int
			if _, err := fmt.Sscanf(p.Line("truth "), "truth %d %d %d", &all, &returned, &left); err != nil {
				t.Fatal(err)
			}
			p.Done()
			got := (&counter{n: map[calls.Where]int{}}).read(e)
			// Go enters a function once more when its stack has grown, and can interrupt a goroutine at a probe.
			more := got.n[calls.Enter] > all || got.n[calls.Return] > returned
			if got.n[calls.Enter] < all || got.n[calls.Return] < returned || more && !c.goCode || got.lost > 0 || left == 0 {
				t.Errorf("hits are %v; the program made %d calls, %d returned, %d left", got, all, returned, left)
			}
			p.CloseInput()
			if s := p.Wait(); !s.Success() {
				t.Errorf("with the engine's probes, the program ended with %v", s)
			}
		})
		t.Run(c.program+" return probe", func(t *testing.T) {
			// A file of its own: the probe is in all threads of all programs that run it.
			own := filepath.Join(t.TempDir(), "program")
			code, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(own, code, 0o755); err != nil {
				t.Fatal(err)
			}
			prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_test", Type: ebpf.Kprobe, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
			if err != nil {
				t.Fatal(err)
			}
			defer prog.Close()
			x, err := link.OpenExecutable(own)
			if err != nil {
				t.Fatal(err)
			}
			p := testprog.Start(t, own, "1000")
			p.Ready()
			l, err := x.Uretprobe(c.function, prog, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			p.Go()
			s := p.Wait()
			how, ok := s.Sys().(syscall.WaitStatus)
			if s.Success() || !c.goCode && (!ok || how.Signal() != syscall.SIGABRT) {
				t.Errorf("with a return probe, the program ended with %v", s)
			}
			t.Logf("ended with %v; %.300q", s, p.Errors())
		})
	}
}
