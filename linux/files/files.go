// Package files describes a process's descriptors: a file, a connection and its two
// ends, the process at the other end of a pipe, the target of a pidfd or a timerfd. It
// reads the files of /proc/PID and /proc through small interfaces and touches nothing
// else. Constant facts are cached per descriptor and inode, facts that may change for
// Config.TTL. Scans of other processes and of the kernel's socket tables are bounded
// and cached too.
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

// Dir is a directory of /proc. Names are relative and contain no dots.
type Dir interface {
	// ReadFile returns at most limit bytes of a file. It truncates longer files without
	// an error.
	ReadFile(name string, limit int) ([]byte, error)
	// ReadLink returns the target of a link.
	ReadLink(name string) (string, error)
	// ReadDir returns at most limit names.
	ReadDir(name string, limit int) ([]string, error)
}

// Stater is an optional interface of a Dir.
type Stater interface {
	// Stat follows the link and returns the type, device and inode of its target.
	Stat(name string) (mode fs.FileMode, dev, inode uint64, err error)
}

// Protocoler is an optional interface of a Dir.
type Protocoler interface {
	// Protocol returns the kernel's name for the protocol of a socket, such as
	// "UNIX-STREAM". name is the descriptor's link.
	Protocol(name string) (string, error)
}

// UnixPeers finds the other end of UNIX sockets. It is optional: without it a client's
// socket has no name, because only the server's has one.
type UnixPeers interface {
	// Peer returns the inode of the other end of a connected socket.
	Peer(inode uint64) (peer uint64, err error)
}

// Config configures a Table.
type Config struct {
	PID   int       // of the process, as numbered in System
	Proc  Dir       // /proc/PID
	Sys   Dir       // /proc; nil: other processes are not examined
	Peers UnixPeers // or nil
	// Now returns the time of any monotonic clock in ns.
	Now func() int64
	// TTL is how long, in ns, changeable facts are cached: the state of a connection,
	// the process at the other end of a pipe. 0: DefaultTTL.
	TTL int64
	// Later does the slow reads for all Tables of the process. nil: the Table does them
	// itself when they are needed.
	Later *Later
}

// DefaultTTL is 500 ms.
const DefaultTTL = 500e6

// Kind is the sort of a descriptor.
type Kind string

// Kinds of descriptors.
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
	Nothing  Kind = "" // unknown
)

// Desc describes a descriptor.
type Desc struct {
	FD      int
	Kind    Kind
	Text    string // "/var/lib/x.db", "tcp 10.0.0.5:5432 established", "pipe to PID 77 (sort)"
	Inode   uint64 // of pipes and sockets; 0 otherwise
	Peer    string // the process at the other end: "PID 77 (sort)"; "" if there is none or it is unknown
	PeerPID int    // 0: unknown
	Peers   bool   // more processes than PeerPID have the other end
	Target  int    // pidfd: the process, as /proc shows it; 0 otherwise
	Why     string // what could not be resolved, and why
}

// maxCached bounds the number of descriptions that a Table caches.
const maxCached = 4096

type cached struct {
	link  string
	desc  Desc
	until int64 // MaxInt64: valid while the link stays the same
}

// Table describes one process's descriptors.
type Table struct {
	c       Config
	fds     map[int]cached
	sockets sockets
	ends    ends
	near    ends
	met     map[string]int64 // when pipes, sockets and FIFOs were first described, by the link of their descriptors
	unsure  bool             // an answer is pending in Later
	owed    bool             // since the last call of Owes
}

// New returns an empty Table.
func New(c Config) *Table {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	return &Table{c: c, fds: map[int]cached{}, met: map[string]int64{}, ends: ends{by: map[string][]end{}}}
}

// Forget drops the whole cache: the process executed another program.
func (t *Table) Forget() {
	clear(t.fds)
	t.sockets, t.ends, t.near = sockets{}, ends{by: map[string][]end{}}, ends{}
}

const forever = 1<<63 - 1

// Describe describes the current state of descriptor fd. It costs one readlink while
// the descriptor is unchanged. There is always an answer; Desc.Why says what could not
// be resolved.
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

// Owes reports whether a later call will know more about a descriptor described since
// the last call of Owes, because Config.Later had no result or only an old one.
func (t *Table) Owes() bool {
	o := t.owed
	t.owed = false
	return o
}

// reason turns an error of /proc into words that fit in a table cell.
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
	case strings.HasPrefix(link, "pidfd:["): // pidfds have a file system since Linux 6.9
		return t.anonymous(fd, "pidfd", now)
	}
	return Desc{Kind: Other, Text: link}, forever
}

// file describes a descriptor that has a path.
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

// socketLink is the link of a socket's descriptors.
func socketLink(inode uint64) string { return "socket:[" + strconv.FormatUint(inode, 10) + "]" }

// maxInfo bounds /proc/PID/fdinfo/FD: an epoll descriptor has a line for each
// descriptor it watches.
const maxInfo = 1 << 20

func (t *Table) info(fd int) ([]byte, error) {
	return t.c.Proc.ReadFile("fdinfo/"+strconv.Itoa(fd), maxInfo)
}
