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

// A killed recorder leaves its socket behind, which may still accept connections for some time:
// the processes that make its stops share its files and outlive it by a moment (docs/notes/stop.md),
// or by seconds if they wait for a thread. So a connection proves nothing. The kernel reports
// which process called listen (unix(7), SO_PEERCRED), and that process must be alive.

// lock prevents other processes of the user from creating or removing sockets in dir until
// unlock.
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

// running reports whether the recorder that created the socket at path is running. It waits for
// one that is being killed. A recorder that is too busy to answer, or was stopped by a signal,
// counts as running.
func running(path string) bool {
	c := newClient(path)
	defer c.http.CloseIdleConnections()
	ctx := context.Background()
	_, err := c.Status(ctx) // waits up to statusPatience
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

// dial connects to the recorder at path. It returns ErrDead if the recorder itself no longer
// accepts the connection.
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

// peer returns the PID of the listening process; 0: unknown, as it is in another PID namespace.
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

// over reports whether a process has ended, also if it has not been waited for yet.
func over(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// Format: pid (comm) state, where comm may contain anything, see proc(5).
	i := bytes.LastIndexByte(b, ')')
	return i >= 0 && i+2 < len(b) && (b[i+2] == 'Z' || b[i+2] == 'X')
}
