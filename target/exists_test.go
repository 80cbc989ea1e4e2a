package target

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExists: a process exists until it is reaped, with one thread or several. The data that was read by its number then counts.
func TestExists(t *testing.T) {
	cmd := exec.Command(build(t, "testdata/spin.c"), "3")
	in, err := cmd.StdinPipe() // it ends with its input
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p := openProcess(t, cmd.Process.Pid)
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ReadAt(make([]byte, 8), maps[0].Start); err != nil || !p.exists() {
		t.Errorf("a running process: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !p.exists() {
		t.Error("a zombie keeps its number, and counts as gone")
	}
	_ = cmd.Wait()
	if _, err := p.ReadAt(make([]byte, 8), maps[0].Start); !errors.Is(err, ErrGone) || p.exists() {
		t.Errorf("a reaped process: %v", err)
	}
}

// BenchmarkReadAt reads 8 bytes of another process, as walks of managed runtimes do many times.
func BenchmarkReadAt(b *testing.B) {
	prog := start(b, build(b, "testdata/spin.c"), "1")
	prog.line()
	p := openProcess(b, prog.pid())
	maps, err := p.Maps()
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 8)
	for b.Loop() {
		if _, err := p.ReadAt(buf, maps[0].Start); err != nil {
			b.Fatal(err)
		}
	}
}
