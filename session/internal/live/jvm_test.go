package live

import (
	"debug/elf"
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// One of HotSpot's own mutexes, and its condition variable, must have the virtual
// machine's own name for them.
func TestLockName(t *testing.T) {
	for _, version := range []string{"java17", "java21", "java25"} {
		t.Run(version, func(t *testing.T) {
			testprog.Need(t, "ptrace")
			p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, version), "-Xmx64m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "Park"), "Park"))
			p.Line("parked")
			proc, err := target.Open(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer proc.Close()
			tg, err := New(proc, nil)
			if err != nil {
				t.Fatal(err)
			}
			tg.FindRuntimes()
			if jvm.Of(tg.space) == nil {
				t.Fatal("HotSpot was not found")
			}
			for _, name := range []string{"Threads_lock", "Heap_lock", "Compile_lock"} {
				at := mutexOf(t, tg, name)
				mutex := lock.Lock{Kind: kind.LockMutex, Impl: "glibc", Addr: at}
				if got := tg.LockName(&mutex); got != name {
					t.Errorf("the mutex of %s is called %q", name, got)
				}
				cond := lock.Lock{Kind: kind.LockCond, Impl: "glibc", Addr: at + 40}
				if got := tg.LockName(&cond); got != name {
					t.Errorf("the condition variable of %s is called %q", name, got)
				}
				for _, other := range []lock.Lock{{Kind: kind.LockMutex, Impl: "glibc", Addr: at + 8}, {Kind: kind.LockSemaphore, Impl: "glibc", Addr: at}} {
					if got := tg.LockName(&other); got != "" {
						t.Errorf("%+v is called %q", other, got)
					}
				}
			}
		})
	}
}

// mutexOf returns the address of the pthread_mutex_t in the mutex that a variable of
// libjvm.so points to: after the address of its owner.
func mutexOf(t *testing.T, tg *Target, variable string) uint64 {
	t.Helper()
	for _, m := range tg.Maps() {
		if filepath.Base(m.Path) != "libjvm.so" || m.Off != 0 {
			continue
		}
		f, err := elf.Open(m.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		syms, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range syms {
			if s.Name != variable || elf.ST_TYPE(s.Info) != elf.STT_OBJECT {
				continue
			}
			var b [8]byte
			if n, err := tg.proc.ReadAt(b[:], m.Start+s.Value); n != 8 {
				t.Fatal(err)
			}
			return binary.LittleEndian.Uint64(b[:]) + 8
		}
		t.Fatalf("%s has no variable %s", m.Path, variable)
	}
	t.Fatal("libjvm.so is not mapped")
	return 0
}
