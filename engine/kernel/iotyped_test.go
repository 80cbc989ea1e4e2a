package kernel

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// TestIOAbilities watches with what older kernels have too: each way has the same sums, file and registers.
func TestIOAbilities(t *testing.T) {
	all := kernelAbilities()
	for name, s := range map[string]abilities{
		"helpers": {}, "typed": {typed: all.typed}, "storage": {typed: all.typed, storage: all.storage},
		"casts": {typed: all.typed, casts: all.casts}, "all": all,
	} {
		t.Run(name, func(t *testing.T) { testAbilities(t, s) })
	}
	if major, minor := release(); (major > 6 || major == 6 && minor >= 2) && (!all.typed || !all.storage || all.casts == nil) {
		t.Errorf("Linux %d.%d has %+v", major, minor, all)
	}
}

func testAbilities(t *testing.T, s abilities) {
	openIO(t, IOOptions{}).Close() // or skips
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &IO{attached: attached{maps: map[string]*ebpf.Map{}}}
	defer e.Close()
	if err := e.open(os.Getpid(), IOOptions{Slow: time.Minute, Gap: 8 * time.Millisecond, SmallOps: 20}, s); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	const times = 7
	for range times {
		if n, err := f.ReadAt(make([]byte, 10), 100); n != 10 || err != nil {
			t.Fatal(n, err)
		}
	}
	fd := int32(f.Fd())
	var ops uint64
	if err := e.Sums(func(_ stack.TID, n int32, _ uint32, kind iowatch.Kind, s *iowatch.Sums) {
		if n == fd && kind == iowatch.KindFile && s.Want == 10*s.Ops && s.Got == s.Want {
			ops += s.Ops
		}
	}); err != nil || ops != times {
		t.Errorf("%d reads in the sums, %v", ops, err)
	}
	f.Close()
	var opened, closed bool
	e.Read(func(r *IORecord) {
		switch {
		case r.Op == iowatch.OpOpen && r.Path == path && r.FD == fd:
			opened = true
			at := uint64(0)
			if len(r.Regs) == regBlock {
				at = binary.NativeEndian.Uint64(r.Regs[regSP:])
			}
			if len(r.Memory) == 0 || at != r.SP || r.Base != (at-128)&^4095 || r.Kind != iowatch.KindFile || r.Size != 1000 {
				t.Errorf("open: registers with SP %#x, %#x, %d bytes of stack at %#x, %v of %d bytes", at, r.SP, len(r.Memory), r.Base, r.Kind, r.Size)
			}
			nonzero := 0
			for _, b := range r.Regs {
				if b != 0 {
					nonzero++
				}
			}
			if nonzero < 20 {
				t.Errorf("open: only %d bytes of the registers are not 0", nonzero)
			}
		case r.Op == iowatch.OpClose && r.FD == fd && opened:
			closed = true
			if r.Kind != iowatch.KindFile || r.Size != 1000 {
				t.Errorf("close of %v, %d bytes", r.Kind, r.Size)
			}
		}
	})
	if !opened || !closed {
		t.Errorf("opened %v, closed %v", opened, closed)
	}
}
