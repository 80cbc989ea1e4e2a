package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/safefile"
)

// HotSpot's attach protocol (src/hotspot/os/posix/attachListener_posix.cpp): a file
// .attach_pidN in its working folder or in /tmp and a SIGQUIT make it listen on the socket
// /tmp/.java_pidN. N is the process's number in its own namespace, and /tmp that of its
// own root.

// Workplace is a folder that this program has made in the /tmp of a process's root, for
// FIFOs and files that the process writes. It belongs to one goroutine.
type Workplace struct {
	Path string // as the process sees it

	p    *Process
	uid  int // of the process
	gid  int
	tmp  int // descriptor of its /tmp
	dir  int
	name string
	made []string
}

// inRoot opens a folder below the process's root. No link can lead out of that.
func (p *Process) inRoot(name string) (int, error) {
	root, err := unix.Open("/proc/"+strconv.Itoa(p.Directory())+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, gone(err)
	}
	defer unix.Close(root)
	return unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}

// owner returns the effective user and group of the process.
func (p *Process) owner() (uid, gid int, err error) {
	b, err := p.read("status", maxStatus)
	if err != nil {
		return 0, 0, gone(err)
	}
	uid, gid = -1, -1
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		switch f[0] { // real, effective, …
		case "Uid:":
			uid, err = strconv.Atoi(f[2])
		case "Gid:":
			gid, err = strconv.Atoi(f[2])
		}
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/status: %w", p.pid, err)
		}
	}
	if uid < 0 || gid < 0 {
		return 0, 0, fmt.Errorf("/proc/%d/status has no Uid or Gid", p.pid)
	}
	return uid, gid, nil
}

// NewWorkplace makes one, which only the process's user may enter. Close removes it.
func (p *Process) NewWorkplace() (*Workplace, error) {
	uid, gid, err := p.owner()
	if err != nil {
		return nil, err
	}
	tmp, err := p.inRoot("/tmp")
	if err != nil {
		return nil, fmt.Errorf("open /tmp of process %d: %w", p.pid, err)
	}
	w := &Workplace{p: p, uid: uid, gid: gid, tmp: tmp, dir: -1, name: fmt.Sprintf(".sliver-%d-%d", os.Getpid(), time.Now().UnixNano())}
	w.Path = "/tmp/" + w.name
	if err = unix.Mkdirat(tmp, w.name, 0o700); err != nil {
		unix.Close(tmp)
		return nil, fmt.Errorf("make a folder in /tmp of process %d: %w", p.pid, err)
	}
	if w.dir, err = unix.Openat(tmp, w.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil && (uid != os.Geteuid()) {
		err = unix.Fchown(w.dir, uid, gid)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a folder in /tmp of process %d: %w", p.pid, err), w.Close())
	}
	return w, nil
}

// FIFO makes a FIFO that the process may open.
func (w *Workplace) FIFO(name string) error {
	if err := unix.Mknodat(w.dir, name, unix.S_IFIFO|0o600, 0); err != nil {
		return fmt.Errorf("make a FIFO in %s: %w", w.Path, err)
	}
	w.made = append(w.made, name)
	uid, gid, err := w.p.owner()
	if err == nil && uid != os.Geteuid() {
		err = unix.Fchownat(w.dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	}
	return err
}

// OpenReader opens a FIFO for reading. A read before AwaitWriter returns io.EOF.
func (w *Workplace) OpenReader(name string) (*os.File, error) { return w.open(name, unix.O_RDONLY) }

// OpenWriter opens a FIFO for writing. It fails while no process has it open for reading.
func (w *Workplace) OpenWriter(name string) (*os.File, error) { return w.open(name, unix.O_WRONLY) }

func (w *Workplace) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(w.dir, name, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a FIFO in %s: %w", w.Path, err)
	}
	return os.NewFile(uintptr(fd), w.Path+"/"+name), nil
}

// Write makes a file that the process may read.
func (w *Workplace) Write(name string, data []byte) error {
	fd, err := unix.Openat(w.dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make %s/%s: %w", w.Path, name, err)
	}
	f := os.NewFile(uintptr(fd), w.Path+"/"+name)
	_, err = f.Write(data)
	if err == nil && w.uid != os.Geteuid() {
		err = f.Chown(w.uid, w.gid)
	}
	return errors.Join(err, f.Close())
}

// Open opens a regular file that the process wrote into the folder, also after the process has ended, and returns its
// size in bytes. A file of another user, a link or a mount in the place of the file is refused.
func (w *Workplace) Open(name string) (*os.File, int64, error) {
	fd, err := unix.Openat2(w.dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: w.Path + "/" + name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = safefile.ErrNotRegular
	case int(st.Uid) != w.uid:
		err = fmt.Errorf("it belongs to user %d, the process to user %d", st.Uid, w.uid)
	}
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: w.Path + "/" + name, Err: err}
	}
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(fd))
	return f, st.Size, err
}

// Remove removes a file of the folder.
func (w *Workplace) Remove(name string) error { return unix.Unlinkat(w.dir, name, 0) }

// AwaitWriter waits until a process writes to a FIFO or has closed it. It returns false
// once stop is closed.
func AwaitWriter(f *os.File, stop <-chan struct{}) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	for {
		ready := 0
		if err := raw.Control(func(fd uintptr) {
			ready, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20)
		}); err != nil {
			return false
		}
		if ready > 0 {
			return true
		}
		select {
		case <-stop:
			return false
		default:
		}
	}
}

// Release lets every process go on that waits for the other side of a FIFO.
func (w *Workplace) Release() {
	for _, n := range w.made {
		for _, flags := range [2]int{unix.O_RDONLY, unix.O_WRONLY} {
			if f, err := w.open(n, flags); err == nil {
				f.Close()
			}
		}
	}
}

// Names lists the folder.
func (w *Workplace) Names() ([]string, error) {
	fd, err := unix.Openat(w.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), w.Path)
	defer f.Close()
	return f.Readdirnames(-1)
}

// Close removes the folder with all that is in it.
func (w *Workplace) Close() error {
	names := w.made
	if w.dir >= 0 {
		if all, err := w.Names(); err == nil {
			names = all
		}
		for _, n := range names {
			_ = unix.Unlinkat(w.dir, n, 0)
		}
		unix.Close(w.dir)
	}
	err := unix.Unlinkat(w.tmp, w.name, unix.AT_REMOVEDIR)
	unix.Close(w.tmp)
	if err != nil {
		return fmt.Errorf("remove %s of process %d: %w", w.Path, w.p.pid, err)
	}
	return nil
}

// attachLimit bounds how long a virtual machine may take to listen.
const attachLimit = 10 * time.Second

// ErrNoAttach says that a virtual machine does not listen.
var ErrNoAttach = errors.New("the virtual machine does not listen for jcmd (-XX:+DisableAttachMechanism?)")

// JavaCommand sends a command of jcmd's to the HotSpot of the process and returns its
// answer when it is carried out. A user other than the process's, or root, is refused by it.
// Where ctx ends first, the command may still be carried out.
func (p *Process) JavaCommand(ctx context.Context, command string) (string, error) {
	c, err := p.dialJava(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if strings.ContainsRune(command, 0) {
		return "", fmt.Errorf("a command with a NUL")
	}
	const maxAnswer = 16 << 20
	_, err = c.Write([]byte("1\x00jcmd\x00" + command + "\x00\x00\x00"))
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(c, maxAnswer))
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("attach to process %d: %w", p.pid, err)
	}
	code, text, _ := bytes.Cut(b, []byte("\n"))
	if string(code) != "0" {
		return "", fmt.Errorf("process %d refuses %q: %s", p.pid, command, bytes.TrimSpace(text))
	}
	return string(text), nil
}

// dialJava connects to the socket of the process's HotSpot, which it first makes listen.
func (p *Process) dialJava(ctx context.Context) (net.Conn, error) {
	tmp, err := p.inRoot("/tmp")
	if err != nil {
		return nil, fmt.Errorf("open /tmp of process %d: %w", p.pid, err)
	}
	defer unix.Close(tmp)
	n := strconv.Itoa(p.NSpid())
	if c, err := p.dial(tmp, ".java_pid"+n); err == nil {
		return c, nil
	}
	if !p.catchesQuit() {
		// The signal would end it.
		return nil, ErrNoAttach
	}
	uid, gid, err := p.owner()
	if err != nil {
		return nil, err
	}
	name := ".attach_pid" + n
	fd, err := unix.Openat(tmp, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil && err != unix.EEXIST {
		return nil, fmt.Errorf("make %s in /tmp of process %d: %w", name, p.pid, err)
	}
	if err == nil {
		if uid != os.Geteuid() {
			_ = unix.Fchown(fd, uid, gid)
		}
		unix.Close(fd)
		defer func() { _ = unix.Unlinkat(tmp, name, 0) }()
	}
	if err := unix.Kill(p.pid, unix.SIGQUIT); err != nil {
		return nil, gone(err)
	}
	for end := time.Now().Add(attachLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if c, err := p.dial(tmp, ".java_pid"+n); err == nil {
			return c, nil
		}
		if !p.Alive() {
			return nil, ErrGone
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("attach to process %d: %w", p.pid, err)
		}
	}
	return nil, ErrNoAttach
}

// dial connects to a socket in a folder, if it is the process that listens there.
func (p *Process) dial(dir int, name string) (net.Conn, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s of process %d is not a socket", name, p.pid)
	}
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir, name))
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			cred, e := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
			if e != nil || int(cred.Pid) != p.pid {
				c.Close()
				c = nil
			}
		})
	}
	if err != nil || c == nil {
		return nil, fmt.Errorf("another process than %d listens at its %s", p.pid, name)
	}
	return c, nil
}

// catchesQuit reports whether the process has a handler for SIGQUIT.
func (p *Process) catchesQuit() bool {
	b, err := p.read("status", maxStatus)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return err == nil && mask>>(unix.SIGQUIT-1)&1 != 0
		}
	}
	return false
}
