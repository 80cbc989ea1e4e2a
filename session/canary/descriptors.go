package canary

import (
	"bytes"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/target"
)

// seed adds the descriptors that are open now.
func (c *Canary) seed() {
	now := target.Now()
	all := c.list()
	listening := c.listening(all)
	for _, fd := range all {
		name, kind := c.link(fd)
		if name == "" {
			continue
		}
		if kind == iowatch.KindSocket {
			name = c.socket(fd, name, listening)
		}
		info := c.info(fd)
		c.Engine.Seed(fd, c.io.Gen(fd), name, kind, info.flags, now)
		if info.ino != 0 && path.IsAbs(name) {
			k := inode{0, info.ino}
			if old, ok := c.inodes[k]; ok && old != name {
				name = "" // on different devices
			}
			c.inodes[k] = name
		}
	}
}

// compared compares the engine's descriptors with those that are open, as often as leaks are looked for. Some have
// no record: those that an ioctl or io_uring opens or closes, fanotify's, and most of a message that brings several.
func (c *Canary) compared() {
	now := time.Now()
	if now.Sub(c.compare) < c.leakAge {
		return
	}
	c.compare = now
	c.relist()
	unseen := map[[2]uint32]bool{}
	for fd := range c.listed {
		k := [2]uint32{uint32(fd), c.io.Gen(fd)}
		name, kind := c.link(fd)
		if c.Engine.Knows(fd, k[1]) {
			if _, was := c.Engine.Path(fd, k[1]); kind == iowatch.KindUnknown || was == iowatch.KindUnknown || was == kind {
				continue
			}
			c.Engine.Gone(fd, target.Now()) // closed unseen, and another one has its number
		}
		unseen[k] = true
		if !c.unseen[k] || name == "" || c.io.Gen(fd) != k[1] { // its record may be on the way
			continue
		}
		if kind == iowatch.KindUnknown {
			kind = iowatch.KindFile
		}
		c.Engine.Apply(&iowatch.Event{Op: iowatch.OpMake, End: target.Now(), FD: fd, Gen: k[1], Kind: kind, Size: -1, Path: name})
	}
	c.unseen = unseen
}

// list returns the open descriptors.
func (c *Canary) list() (fds []int32) {
	names, err := c.fs.ReadDir("fd", maxList)
	if err != nil {
		return nil // the process ends
	}
	for _, n := range names {
		if fd, err := strconv.ParseInt(n, 10, 32); err == nil {
			fds = append(fds, int32(fd))
		}
	}
	return fds
}

// link returns the path of an open descriptor, and its kind as far as the path shows it. The file is
// not opened.
func (c *Canary) link(fd int32) (string, iowatch.Kind) {
	to, err := c.fs.ReadLink("fd/" + strconv.Itoa(int(fd)))
	if err != nil {
		return "", iowatch.KindUnknown
	}
	switch {
	case strings.HasPrefix(to, "socket:"):
		return to, iowatch.KindSocket
	case strings.HasPrefix(to, "pipe:"):
		return to, iowatch.KindFIFO
	case strings.HasPrefix(to, "anon_inode:"):
		c.uring = c.uring || strings.Contains(to, "io_uring")
		return to, iowatch.KindAnon
	case strings.HasPrefix(to, "/dev/pts/"), to == "/dev/null", to == "/dev/tty":
		return to, iowatch.KindChar
	}
	return strings.TrimSuffix(to, " (deleted)"), iowatch.KindUnknown
}

// info is what fdinfo has of a descriptor (proc_pid_fdinfo(5)): 0 if it is unknown, as the inode
// number is before Linux 5.14.
type info struct {
	flags int64 // of its open
	ino   uint64
}

func (c *Canary) info(fd int32) (out info) {
	b, err := c.fs.ReadFile("fdinfo/"+strconv.Itoa(int(fd)), maxInfo)
	if err != nil {
		return out
	}
	for line := range bytes.Lines(b) { // the kernel wrote them
		if rest, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			out.flags, _ = strconv.ParseInt(string(bytes.TrimSpace(rest)), 8, 64)
		} else if rest, ok := bytes.CutPrefix(line, []byte("ino:")); ok {
			out.ino, _ = strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 64)
		}
	}
	return out
}

// listener is the address at which a descriptor listens; "": unknown.
type listener struct {
	gen     uint32
	address string
}

// Names of sockets. A server's connections are one line of the table for each of its addresses.
const (
	acceptedOn  = "socket accepted on "
	listeningOn = "socket listening on "
)

// listening notes the descriptors that listen, and returns their ports.
func (c *Canary) listening(fds []int32) map[uint16]string {
	ports := map[uint16]string{}
	for _, fd := range fds {
		a, ok := c.sockets.Addresses(int(fd))
		if !ok || !a.Listening || a.Local == "" {
			continue
		}
		c.listeners[fd] = listener{c.io.Gen(fd), a.Local}
		if at, err := netip.ParseAddrPort(a.Local); err == nil {
			ports[at.Port()] = a.Local
		}
	}
	return ports
}

// socket returns the name of a socket that was open before: as sockets are called that are made while sliver
// watches, or link.
func (c *Canary) socket(fd int32, link string, listening map[uint16]string) string {
	a, ok := c.sockets.Addresses(int(fd))
	switch {
	case !ok:
		return link
	case a.Listening && a.Local != "":
		return listeningOn + a.Local
	case a.Remote == "":
		return link
	}
	if at, err := netip.ParseAddrPort(a.Local); err == nil && listening[at.Port()] != "" {
		return acceptedOn + listening[at.Port()]
	}
	return iowatch.ConnectedTo + a.Remote
}

// accepted returns the name of a connection that a listening descriptor accepted; "": unknown.
func (c *Canary) accepted(fd int32) string {
	gen := c.io.Gen(fd)
	l, ok := c.listeners[fd]
	if !ok || l.gen != gen {
		l = listener{gen: gen}
		if a, ok := c.sockets.Addresses(int(fd)); ok && a.Listening && c.io.Gen(fd) == gen {
			l.address = a.Local
		}
		if len(c.listeners) >= maxNames {
			clear(c.listeners)
		}
		c.listeners[fd] = l
	}
	if l.address == "" {
		return ""
	}
	return acceptedOn + l.address
}
