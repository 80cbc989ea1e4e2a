package target

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/stack"
)

// File is the content of a mapping: a file, or a part of the target's memory.
type File interface {
	io.ReaderAt
	io.Closer
	Size() int64 // bytes
}

// ErrNoFile reports that the mapping has no file that could be opened: it is anonymous memory, a
// device, or a deleted file that requires more permissions (CAP_CHECKPOINT_RESTORE or
// CAP_SYS_ADMIN).
var ErrNoFile = errors.New("no file available for the mapping")

// maxVDSO bounds the one mapping that is read from memory.
const maxVDSO = 1 << 20

// OpenMapping opens the file of m. If permissions allow, that is the mapped file itself, even if
// it was deleted or replaced; otherwise the file at the mapping's path in the target's own file
// system, or of a target that has ended in sliver's, provided device and inode agree. [vdso] is read
// from the target's memory.
func (p *Process) OpenMapping(m stack.Mapping) (File, error) {
	if m.Path == "[vdso]" {
		return p.vdso(m)
	}
	if m.Inode == 0 || !strings.HasPrefix(m.Path, "/") {
		return nil, fmt.Errorf("open mapping %#x-%#x %s: %w", m.Start, m.End, m.Path, ErrNoFile)
	}
	var errs []error
	for _, open := range []func(stack.Mapping) (*safefile.File, error){p.openByRange, p.openExe, p.openByPath, p.openHere} {
		f, err := open(m)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
		if errors.Is(err, safefile.ErrHung) {
			break // the others would hang too
		}
	}
	return nil, fmt.Errorf("open mapping %#x-%#x %s: %w: %w", m.Start, m.End, m.Path, ErrNoFile, errors.Join(errs...))
}

// place returns the process's root for package safefile.
func (p *Process) place() safefile.Place {
	return safefile.Process(p.dirOf("root"), fmt.Sprintf("/proc/%d/root", p.pid))
}

// Written returns a number for the content of m's file, derived from its size and modification
// time; 0: unknown.
func (p *Process) Written(m stack.Mapping) uint32 {
	for _, open := range []func(stack.Mapping) (*safefile.File, error){p.openExe, p.openByPath, p.openByRange} {
		f, err := open(m)
		if errors.Is(err, safefile.ErrHung) {
			break
		}
		if err != nil {
			continue
		}
		in := f.Opened()
		f.Close()
		return contentOf(in.Size, in.Modified)
	}
	return 0
}

// contentOf returns a number, not 0, for the content of a file of a size in bytes that was modified
// at a time in ns since 1970.
func contentOf(size, modified int64) uint32 {
	x := uint64(modified)*0x9e3779b97f4a7c15 + uint64(size)
	return uint32(x>>32) | 1
}

// Identity identifies the content of an open file.
type Identity struct {
	Dev, Inode uint64 // of stat(2); some file systems show others in maps
	Size       int64  // bytes
	Modified   int64  // ns since 1970
	// Local: the file system cannot hang, and no other file gets the number of an open one.
	Local bool
}

// Content is what Process.Written returns for the file.
func (id *Identity) Content() uint32 { return contentOf(id.Size, id.Modified) }

// IdentityOf returns the identity of a mapping's file, as of when it was opened or, with now, as of
// now. ok is false if it is memory, or can no longer be read.
func IdentityOf(f File, now bool) (id Identity, ok bool) {
	s, ok := f.(*safefile.File)
	if !ok {
		return id, false
	}
	in := s.Opened()
	if now {
		var err error
		if in, err = s.Stat(); err != nil {
			return id, false
		}
	}
	return Identity{Dev: in.Dev, Inode: in.Inode, Size: in.Size, Modified: in.Modified, Local: s.Local()}, true
}

// Modified returns when a mapping's file was last written, in ns since 1970, as of now; 0:
// unknown.
func Modified(f File) int64 {
	switch f := f.(type) {
	case *safefile.File:
		if in, err := f.Stat(); err == nil {
			return in.Modified
		}
	case interface{ Modified() int64 }: // live.SharedFile
		return f.Modified()
	}
	return 0
}

// openByRange uses the kernel's own link to the mapped file.
func (p *Process) openByRange(m stack.Mapping) (*safefile.File, error) {
	// Code that was copied to huge pages has its file's mapping, but the link leads elsewhere.
	f, err := p.place().OpenLink(fmt.Sprintf("map_files/%x-%x", m.Start, m.End))
	return checked(f, err, m, true)
}

// openExe opens the program itself, deleted or not, with a tracer's permissions only.
func (p *Process) openExe(m stack.Mapping) (*safefile.File, error) {
	// An open takes an exchange with a helper, a look at the link does not.
	if to, err := p.Exe(); err == nil && strings.TrimSuffix(to, " (deleted)") != m.Path {
		return nil, fmt.Errorf("%s is not the program %s", m.Path, to)
	}
	f, err := p.place().OpenLink("exe")
	return checked(f, err, m, false)
}

// openByPath looks the path up in the target's root. Links are followed there too, and never out
// of it.
func (p *Process) openByPath(m stack.Mapping) (*safefile.File, error) {
	if m.Deleted {
		return nil, errors.New("deleted")
	}
	f, err := p.place().Open(m.Path)
	return checked(f, err, m, true)
}

// openHere looks the path up in sliver's own root: a target that has ended has none, and most targets shared it.
func (p *Process) openHere(m stack.Mapping) (*safefile.File, error) {
	if m.Deleted || p.Alive() {
		return nil, errors.New("only for targets that have ended")
	}
	f, err := safefile.Root("/").Open(m.Path)
	return checked(f, err, m, false)
}

// File systems whose files have in maps another device (btrfs, bcachefs), or another device and
// inode (overlayfs before Linux 6.8), than in stat (linux/magic.h).
const (
	btrfsMagic    = 0x9123683e
	bcachefsMagic = 0xca451a4e
	overlayMagic  = 0x794c7630
)

// checked closes f if it is not the file of the mapping.
func checked(f *safefile.File, err error, m stack.Mapping, byPath bool) (*safefile.File, error) {
	if err != nil {
		return nil, err
	}
	if in := f.Opened(); !sameFile(m, in.Dev, in.Inode, in.FS, byPath) {
		f.Close()
		return nil, fmt.Errorf("%s is another file now (device %#x inode %d, mapped is %#x %d)", f.Name(), in.Dev, in.Inode, m.Dev, m.Inode)
	}
	return f, nil
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

// vdso copies the mapping from the target.
func (p *Process) vdso(m stack.Mapping) (File, error) {
	if m.End-m.Start > maxVDSO {
		return nil, fmt.Errorf("open [vdso]: %d bytes long", m.End-m.Start)
	}
	b := make([]byte, m.End-m.Start)
	if n, err := p.ReadAt(b, m.Start); err != nil && n == 0 {
		return nil, fmt.Errorf("open [vdso]: %w", err)
	}
	return memory{bytes.NewReader(b), b}, nil
}

type memory struct {
	*bytes.Reader
	content []byte
}

func (memory) Close() error { return nil }

// InMemory returns the content of a mapping without a file, nil for others. It must not be modified.
func InMemory(f File) []byte {
	if m, ok := f.(memory); ok {
		return m.content
	}
	return nil
}

// PerfMap opens the map of JIT code that the process writes for perf, /tmp/perf-PID.map in its
// own mount and PID namespace. The error is an fs.ErrNotExist if there is none. A file that
// belongs neither to the process's user nor to root or this program's user is refused, because
// anyone may write to /tmp. So is a file last written before the process began: an earlier
// process with the same number left it.
func (p *Process) PerfMap() (*safefile.File, error) {
	name := fmt.Sprintf("/tmp/perf-%d.map", p.facts.NSpid)
	f, err := p.place().OpenNoFollow(name)
	if err != nil {
		return nil, err
	}
	in := f.Opened()
	switch {
	case in.UID != p.facts.UID && in.UID != 0 && in.UID != os.Geteuid():
		err = fmt.Errorf("it belongs to user %d, the process to user %d", in.UID, p.facts.UID)
	case in.Modified < p.began()-earlier:
		err = errors.New("it is older than the process")
	default:
		return f, nil
	}
	f.Close()
	return nil, &os.PathError{Op: "open", Path: name, Err: err}
}

// earlier is by how much, in ns, a file's time may precede its process's start, which is known to
// one kernel tick, by a clock that may have been set since.
const earlier = 2_000_000_000

// began returns when the process began, in ns of CLOCK_REALTIME; 0: unknown.
func (p *Process) began() int64 {
	var boot, now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &now) != nil {
		return 0
	}
	return now.Nano() - (boot.Nano() - int64(p.facts.StartTicks)*(1e9/clockTicks))
}
