package target

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// File is what a mapping shows: a file, or a part of the target's memory.
type File interface {
	io.ReaderAt
	io.Closer
	Size() int64 // bytes
}

// ErrNoFile means that there is no file behind the mapping that could be
// opened: anonymous memory, a device, or a deleted file that takes more
// rights (CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN).
var ErrNoFile = errors.New("no file to be had for the mapping")

// maxVDSO bounds the one mapping that is read out of memory.
const maxVDSO = 1 << 20

// OpenMapping opens the file that m shows: the very file that is mapped, also
// when it was deleted or replaced, where the rights are there for that; else
// the one at the mapping's path in the target's own file system, if device
// and inode agree. [vdso] comes out of the target's memory.
func (p *Process) OpenMapping(m stack.Mapping) (File, error) {
	if m.Path == "[vdso]" {
		return p.vdso(m)
	}
	if m.Inode == 0 || !strings.HasPrefix(m.Path, "/") {
		return nil, fmt.Errorf("open mapping %#x-%#x %s: %w", m.Start, m.End, m.Path, ErrNoFile)
	}
	var errs []error
	for _, open := range []func(stack.Mapping) (int, error){p.openByRange, p.openExe, p.openByPath} {
		fd, err := open(m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			unix.Close(fd)
			errs = append(errs, fmt.Errorf("not a regular file (%v)", err))
			continue
		}
		return &regular{os.NewFile(uintptr(fd), m.Path), st.Size}, nil
	}
	return nil, fmt.Errorf("open mapping %#x-%#x %s: %w: %w", m.Start, m.End, m.Path, ErrNoFile, errors.Join(errs...))
}

type regular struct {
	*os.File
	size int64
}

func (f *regular) Size() int64 { return f.size }

// openByRange goes by the kernel's own link to the mapped file.
func (p *Process) openByRange(m stack.Mapping) (int, error) {
	return p.openat(fmt.Sprintf("map_files/%x-%x", m.Start, m.End), unix.O_RDONLY|unix.O_NONBLOCK)
}

// openExe serves the program itself, deleted or not, with no rights beyond
// those of a tracer.
func (p *Process) openExe(m stack.Mapping) (int, error) {
	return p.openChecked("exe", p.dir, m)
}

// openByPath looks the path up in the target's root. Links in it are followed
// there too, never out of it.
func (p *Process) openByPath(m stack.Mapping) (int, error) {
	if m.Deleted {
		return -1, errors.New("deleted")
	}
	root, err := p.openat("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return p.openChecked(m.Path, root, m)
}

// openInRoot opens path below the target's root.
func openInRoot(root int, path string, flags int) (int, error) {
	for {
		fd, err := unix.Openat2(root, path, &unix.OpenHow{
			Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
		switch err {
		case unix.EINTR, unix.EAGAIN: // a rename at the same moment
			continue
		case unix.ENOSYS, unix.EPERM: // before Linux 5.6, or filtered
			return unix.Openat(root, strings.TrimLeft(path, "/"), flags|unix.O_CLOEXEC, 0)
		}
		return fd, err
	}
}

// File systems whose files show another device (btrfs, bcachefs) or another
// device and inode (overlayfs before Linux 6.8) in maps than in stat
// (linux/magic.h).
const (
	btrfsMagic    = 0x9123683e
	bcachefsMagic = 0xca451a4e
	overlayMagic  = 0x794c7630
)

func (p *Process) openChecked(name string, at int, m stack.Mapping) (fd int, err error) {
	if at == p.dir {
		fd, err = p.openat(name, unix.O_RDONLY|unix.O_NONBLOCK)
	} else {
		fd, err = openInRoot(at, name, unix.O_RDONLY|unix.O_NONBLOCK)
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.Fstatfs(fd, &fs)
	}
	if err == nil && !sameFile(m, uint64(st.Dev), st.Ino, int64(fs.Type), at != p.dir) {
		err = fmt.Errorf("%s is another file now (device %#x inode %d, mapped is %#x %d)", name, st.Dev, st.Ino, m.Dev, m.Inode)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func sameFile(m stack.Mapping, dev, ino uint64, fs int64, byPath bool) bool {
	switch {
	case m.Inode == ino && m.Dev == dev:
		return true
	case m.Inode == ino && (fs == btrfsMagic || fs == bcachefsMagic):
		return true
	}
	return byPath && fs == overlayMagic
}

// vdso copies the mapping out of the target.
func (p *Process) vdso(m stack.Mapping) (File, error) {
	if m.End-m.Start > maxVDSO {
		return nil, fmt.Errorf("open [vdso]: %d bytes long", m.End-m.Start)
	}
	b := make([]byte, m.End-m.Start)
	if n, err := p.ReadAt(b, m.Start); err != nil && n == 0 {
		return nil, fmt.Errorf("open [vdso]: %w", err)
	}
	return memory{strings.NewReader(string(b))}, nil
}

type memory struct{ *strings.Reader }

func (memory) Close() error { return nil }

// PerfMap opens the map of JIT code that the process writes for perf,
// /tmp/perf-PID.map in its own mount and PID namespace. The error is an
// fs.ErrNotExist where there is none. A file of another user than the
// process's (or root, or ourselves) is refused: anyone may write to /tmp. So is one that
// was last written before the process began: an earlier one of the same number left it.
func (p *Process) PerfMap() (*os.File, error) {
	name := fmt.Sprintf("/tmp/perf-%d.map", p.facts.NSpid)
	fail := func(err error) (*os.File, error) {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	root, err := p.openat("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(root)
	fd, err := openInRoot(root, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if err != nil {
		return fail(err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errors.New("not a regular file")
	case int(st.Uid) != p.facts.UID && st.Uid != 0 && int(st.Uid) != os.Geteuid():
		err = fmt.Errorf("it belongs to user %d, the process to user %d", st.Uid, p.facts.UID)
	case st.Mtim.Nano() < p.began()-earlier:
		err = errors.New("it is older than the process")
	default:
		return os.NewFile(uintptr(fd), name), nil
	}
	unix.Close(fd)
	return fail(err)
}

// earlier is by how much, in ns, a file's time may be before that of its process's beginning,
// which is known to a tick of the kernel's, by a clock that may have been set since.
const earlier = 2_000_000_000

// began is when the process began, in ns of CLOCK_REALTIME; 0: not known.
func (p *Process) began() int64 {
	var boot, now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &now) != nil {
		return 0
	}
	return now.Nano() - (boot.Nano() - int64(p.facts.StartTicks)*(1e9/clockTicks))
}
