package kernel

//sliver:layer live

import (
	"os/exec"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// openBlocked opens the program, or skips the test.
func openBlocked(t testing.TB) *Blocked {
	t.Helper()
	b, err := OpenBlocked()
	if err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestBlockedGone: of a thread that is gone nothing is read.
func TestBlockedGone(t *testing.T) {
	b := openBlocked(t)
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var buf BlockedRegs
	if !b.Read(stack.TID(cmd.Process.Pid), &buf) {
		t.Error("nothing is read of a process that lives")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if b.Read(stack.TID(cmd.Process.Pid), &buf) || b.Read(0, &buf) || b.Read(-1, &buf) {
		t.Error("registers of a thread that is gone")
	}
	if len(buf.Block()) != regBlock || buf.TLS() != 0 {
		t.Errorf("%d bytes, TLS %#x", len(buf.Block()), buf.TLS())
	}
}

func BenchmarkOpenBlocked(b *testing.B) {
	for b.Loop() {
		x, err := OpenBlocked()
		if err != nil {
			b.Skip(err)
		}
		_ = x.Close()
	}
}

func BenchmarkReadBlocked(b *testing.B) {
	x := openBlocked(b)
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	var buf BlockedRegs
	for b.Loop() {
		x.Read(stack.TID(cmd.Process.Pid), &buf)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
