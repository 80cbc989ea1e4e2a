package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
)

// A recorder that was killed leaves its socket, and for some time one that still takes
// connections: the processes that make its stops share its files, and outlive it by a moment
// (docs/design.md), or by seconds if they wait for a thread. So a connection proves nothing; the
// kernel tells who began to listen (unix(7), SO_PEERCRED), and that one has to be alive.

// lock keeps others of the user from making or removing sockets in dir until unlock.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock the folder for sockets: %w", err)
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the folder %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// running reports whether the recorder that made the socket at path is running. One that
// is just being killed is waited for; one that is too busy to answer, or was stopped by a signal,
// is running.
func running(path string) bool {
	c := newClient(path)
	defer c.http.CloseIdleConnections()
	ctx := context.Background()
	_, err := c.Status(ctx) // waits for statusPatience
	if err == nil {
		return true
	}
	if errors.Is(err, ErrDead) {
		return false
	}
	conn, err := dial(ctx, path)
	if err == nil {
		conn.Close()
	}
	return !errors.Is(err, ErrDead) && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// dial connects to the recorder at path; ErrDead if what takes connections there is not
// it any more.
func dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if pid := peer(c); pid > 0 && over(pid) {
		c.Close()
		return nil, ErrDead
	}
	return c, nil
}

// peer is the process that listens at the other end; 0: it is not known, as it is in
// another namespace of processes.
func peer(c net.Conn) (pid int) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// over reports whether a process has ended, be it that nobody has waited for it yet.
func over(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// pid (comm) state, where comm may hold anything: proc(5).
	i := bytes.LastIndexByte(b, ')')
	return i >= 0 && i+2 < len(b) && (b[i+2] == 'Z' || b[i+2] == 'X')
}
