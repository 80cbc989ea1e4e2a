// Package files says what a process's descriptors are: a file, a connection
// and its two ends, the process at the other end of a pipe, what a pidfd or a
// timerfd stands for. It reads the files of /proc/PID and /proc through small
// interfaces and touches nothing else. What does not change is kept per
// descriptor and inode, what may change for Config.TTL; the scans over other
// processes and over the kernel's tables of sockets are bounded, and kept too.
//
// A Table belongs to one goroutine at a time.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Dir is a directory of /proc. Names are relative and have no dots.
type Dir interface {
	// ReadFile returns a file, at most limit bytes of it: longer ones come cut,
	// without an error.
	ReadFile(name string, limit int) ([]byte, error)
	// ReadLink returns what a link says.
	ReadLink(name string) (string, error)
	// ReadDir returns at most limit names.
	ReadDir(name string, limit int) ([]string, error)
}

// Stater is what a Dir may do besides.
type Stater interface {
	// Stat follows the link and returns the type of what it leads to, its
	// device and inode.
	Stat(name string) (mode fs.FileMode, dev, inode uint64, err error)
}

// Protocoler is what a Dir may do besides.
type Protocoler interface {
	// Protocol returns the kernel's name for the protocol of a socket, such as
	// "UNIX-STREAM"; name is that of the descriptor's link.
	Protocol(name string) (string, error)
}

// UnixPeers finds the other end of UNIX sockets. It may be left out: without
// it a client's socket has no name, as only the server's has one.
type UnixPeers interface {
	// Peer returns the inode of the other end of a connected socket.
	Peer(inode uint64) (peer uint64, err error)
}

// Config of a Table.
type Config struct {
	PID   int       // of the process, as System numbers it
	Proc  Dir       // /proc/PID
	Sys   Dir       // /proc; nil: other processes are not looked at
	Peers UnixPeers // or nil
	// Now is any clock in ns; it only rises.
	Now func() int64
	// TTL is how long, in ns, what may change is believed: the state of a
	// connection, who is at a pipe's other end. 0: DefaultTTL.
	TTL int64
	// Later reads what takes long, for all Tables of the process; nil: the Table does
	// it itself, when it is asked.
	Later *Later
}

// DefaultTTL is 500 ms.
const DefaultTTL = 500e6

// Kind is what sort of thing a descriptor is.
type Kind string

// Kinds.
const (
	File     Kind = "file"
	DirKind  Kind = "directory"
	Device   Kind = "device"
	Terminal Kind = "terminal"
	Pipe     Kind = "pipe"
	TCP      Kind = "tcp"
	UDP      Kind = "udp"
	Unix     Kind = "unix"
	Socket   Kind = "socket" // of another sort
	Eventfd  Kind = "eventfd"
	Timerfd  Kind = "timerfd"
	Signalfd Kind = "signalfd"
	Epoll    Kind = "epoll"
	Inotify  Kind = "inotify"
	Pidfd    Kind = "pidfd"
	Memfd    Kind = "memfd"
	Other    Kind = "other"
	Nothing  Kind = "" // it could not be found out
)

// Desc is what a descriptor is.
type Desc struct {
	FD      int
	Kind    Kind
	Text    string // "/var/lib/x.db", "tcp 10.0.0.5:5432 established", "pipe to PID 77 (sort)"
	Inode   uint64 // of pipes and sockets; 0 otherwise
	Peer    string // who is at the other end: "PID 77 (sort)"; "" where there is none or it is not known
	PeerPID int    // 0: not known
	Target  int    // pidfd: the process, as /proc shows it; 0 otherwise
	Why     string // what could not be found out, and why
}

// maxCached bounds what a Table keeps.
const maxCached = 4096

type cached struct {
	link  string
	desc  Desc
	until int64 // MaxInt64: as long as the link stays the same
}

// Table describes one process's descriptors.
type Table struct {
	c       Config
	fds     map[int]cached
	sockets sockets
	ends    ends
	unsure  bool // an answer waits for Later
	owed    bool // since Owes
}

// New returns an empty Table.
func New(c Config) *Table {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	return &Table{c: c, fds: map[int]cached{}, ends: ends{by: map[uint64][]end{}}}
}

// Forget drops everything that is kept: the process became another program.
func (t *Table) Forget() {
	clear(t.fds)
	t.sockets, t.ends = sockets{}, ends{by: map[uint64][]end{}}
}

const forever = 1<<63 - 1

// Describe says what descriptor fd is now. It costs one readlink as long as
// the descriptor stays what it was. There is always an answer; what could not
// be found out is in Why.
func (t *Table) Describe(fd int) Desc {
	link, err := t.c.Proc.ReadLink("fd/" + strconv.Itoa(fd))
	if err != nil {
		return Desc{FD: fd, Text: "descriptor " + strconv.Itoa(fd), Why: reason(fmt.Sprintf("descriptor %d", fd), err)}
	}
	now := t.c.Now()
	if c, ok := t.fds[fd]; ok && c.link == link && now < c.until {
		return c.desc
	}
	t.unsure = false
	d, until := t.describe(fd, link, now)
	d.FD = fd
	if t.unsure {
		t.owed = true
		return d
	}
	if len(t.fds) >= maxCached {
		clear(t.fds)
	}
	t.fds[fd] = cached{link, d, until}
	return d
}

// Owes reports whether more will be known of a descriptor that was described since
// Owes was called last: what Config.Later reads was not there, or not new.
func (t *Table) Owes() bool {
	o := t.owed
	t.owed = false
	return o
}

// reason turns an error of /proc into words that fit in a table.
func reason(what string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return what + " is not open"
	case errors.Is(err, fs.ErrPermission):
		return what + ": no rights to look at it"
	}
	return what + ": " + err.Error()
}

func (t *Table) describe(fd int, link string, now int64) (Desc, int64) {
	switch {
	case strings.HasPrefix(link, "/"):
		return t.file(fd, link), forever
	case strings.HasPrefix(link, "pipe:["):
		return t.pipe(fd, link, "pipe"), now + t.c.TTL
	case strings.HasPrefix(link, "socket:["):
		return t.socket(fd, link), now + t.c.TTL
	case strings.HasPrefix(link, "anon_inode:"):
		return t.anonymous(fd, strings.Trim(strings.TrimPrefix(link, "anon_inode:"), "[]"), now)
	case strings.HasPrefix(link, "pidfd:["): // from Linux 6.9 on pidfds have a file system
		return t.anonymous(fd, "pidfd", now)
	}
	return Desc{Kind: Other, Text: link}, forever
}

// file describes what has a path.
func (t *Table) file(fd int, link string) Desc {
	name, deleted := strings.CutSuffix(link, " (deleted)")
	if mem, ok := strings.CutPrefix(name, "/memfd:"); ok && deleted {
		return Desc{Kind: Memfd, Text: "memfd " + mem}
	}
	d := Desc{Kind: File, Text: name}
	if deleted {
		d.Text = name + " (deleted)"
	}
	if s, ok := t.c.Proc.(Stater); ok {
		mode, _, inode, err := s.Stat("fd/" + strconv.Itoa(fd))
		switch {
		case err != nil:
			d.Why = reason("the type of "+name, err)
		case mode&fs.ModeNamedPipe != 0:
			d = t.pipe(fd, link, "fifo "+name)
			d.Inode = inode
			return d
		case mode&fs.ModeCharDevice != 0:
			d.Kind = Device
		case mode&fs.ModeDevice != 0:
			d.Kind = Device
		case mode.IsDir():
			d.Kind = DirKind
		}
	}
	if base, dir := path.Base(name), path.Dir(name); dir == "/dev/pts" || dir == "/dev" && strings.HasPrefix(base, "tty") ||
		name == "/dev/console" || name == "/dev/ptmx" || name == "/dev/pts/ptmx" {
		d.Kind, d.Text = Terminal, "terminal "+name
		if base == "ptmx" {
			d.Text = "terminal master " + name
		}
	}
	return d
}

// inodeOf reads "pipe:[123]".
func inodeOf(link string) uint64 {
	_, s, _ := strings.Cut(link, "[")
	n, _ := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64)
	return n
}

// maxInfo bounds /proc/PID/fdinfo/FD: an epoll has a line for each of its
// descriptors.
const maxInfo = 1 << 20

func (t *Table) info(fd int) ([]byte, error) {
	return t.c.Proc.ReadFile("fdinfo/"+strconv.Itoa(fd), maxInfo)
}
