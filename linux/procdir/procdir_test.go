package procdir

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestDir(t *testing.T) {
	d, err := Open(fmt.Sprintf("/proc/%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	link := fmt.Sprintf("fd/%d", f.Fd())
	if s, err := d.ReadLink(link); err != nil || s != f.Name() {
		t.Errorf("%q %v", s, err)
	}
	if mode, _, inode, err := d.Stat(link); err != nil || !mode.IsRegular() || inode == 0 {
		t.Errorf("%v %d %v", mode, inode, err)
	}
	if b, err := d.ReadFile("maps", 100); err != nil || len(b) != 100 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if names, err := d.ReadDir("task", 2); err != nil || len(names) != 2 {
		t.Errorf("%v %v", names, err)
	}
	if _, err := d.ReadFile("none", 1); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

// A process that has ended stays ended, even if its PID is reused.
func TestGone(t *testing.T) {
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d, err := Open(fmt.Sprintf("/proc/%d", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.ReadFile("comm", 64); err != nil {
		t.Error(err)
	}
	in.Close()
	cmd.Wait() // its status does not matter
	if b, err := d.ReadFile("comm", 64); err == nil {
		t.Errorf("read %q of a process that has ended", b)
	}
}

func TestUnixPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "y.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d, err := Open("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	diag, err := OpenDiag(d)
	if err != nil {
		t.Fatal(err)
	}
	defer diag.Close()
	a, b := inode(t, d, c), inode(t, d, s)
	if peer, err := diag.Peer(a); err != nil || peer != b {
		t.Errorf("peer of %d is %d, want %d (%v)", a, peer, b, err)
	}
	if peer, err := diag.Peer(1<<32 - 2); err == nil && peer != 0 {
		t.Errorf("a socket that is none has peer %d", peer)
	}
	if p, err := d.Protocol(fd(t, c)); err != nil || !strings.HasPrefix(p, "UNIX") {
		t.Errorf("%q %v", p, err)
	}
}

func fd(t *testing.T, c net.Conn) string {
	t.Helper()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := raw.Control(func(n uintptr) { name = fmt.Sprintf("fd/%d", n) }); err != nil {
		t.Fatal(err)
	}
	return name
}

func inode(t *testing.T, d *Dir, c net.Conn) uint64 {
	t.Helper()
	mode, _, n, err := d.Stat(fd(t, c))
	if err != nil || mode&fs.ModeSocket == 0 {
		t.Fatalf("%v %v", mode, err)
	}
	return n
}
