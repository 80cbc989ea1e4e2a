package files

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Limits of the kernel's tables of sockets.
const (
	maxTable   = 16 << 20 // bytes of one table
	maxSockets = 1 << 17  // kept in all
)

// A conn is one line of a table.
type conn struct {
	kind          Kind
	local, remote netip.AddrPort
	state         string
	path          string // of a UNIX socket
	typ           string // "stream", "dgram", "seqpacket"
	listening     bool
}

// sockets are the socket tables of the process's network namespace. Each is read when
// first needed and cached for a while.
type sockets struct {
	by    map[uint64]conn
	next  int // tables read so far
	until int64
	why   string
}

var tables = [...]struct {
	name string
	kind Kind
	v6   bool
}{{"unix", Unix, false}, {"tcp", TCP, false}, {"tcp6", TCP, true}, {"udp", UDP, false}, {"udp6", UDP, true},
	{"udplite", UDP, false}, {"raw", Socket, false}, {"raw6", Socket, true}, {"icmp", Socket, false}, {"netlink", Socket, false}, {"packet", Socket, false}}

// find looks up an inode and reads as many tables as that takes.
func (t *Table) find(inode uint64) (conn, bool) {
	s := &t.sockets
	if l := t.c.Later; l != nil {
		last, fresh := take(l, &l.sockets, t.c.Now, t.c.TTL, readSockets)
		if last != nil {
			*s = *last
		}
		t.unsure = t.unsure || !fresh
		c, ok := s.by[inode]
		if !ok && !since(l, &l.sockets, t.metAt(socketLink(inode)), t.c.Now, t.c.TTL, readSockets) {
			t.unsure = true
		}
		return c, ok
	}
	now := t.c.Now()
	if s.by == nil || now >= s.until {
		*s = sockets{by: map[uint64]conn{}, until: now + t.c.TTL}
	}
	for {
		if c, ok := s.by[inode]; ok {
			return c, true
		}
		if s.next == len(tables) {
			return conn{}, false
		}
		s.read(t.c.Proc)
	}
}

// readSockets reads all tables.
func readSockets(proc, _ Dir) *sockets {
	s := &sockets{by: map[uint64]conn{}}
	for s.next < len(tables) {
		s.read(proc)
	}
	return s
}

// read reads the next table.
func (s *sockets) read(proc Dir) {
	tab := tables[s.next]
	s.next++
	b, err := proc.ReadFile("net/"+tab.name, maxTable)
	if err != nil {
		s.why = reason("net/"+tab.name, err)
		return // not every kernel has all tables
	}
	switch {
	case tab.kind == Unix:
		parseUnix(b, s.by)
	case tab.name == "netlink":
		parseNetlink(b, s.by)
	case tab.name == "packet":
		parsePacket(b, s.by)
	default:
		parseInet(b, tab.kind, tab.name, tab.v6, s.by)
	}
}

// Addresses are those of a socket: "10.0.0.5:5432", or the path of a UNIX socket; "": none, or unknown.
type Addresses struct {
	Local, Remote string
	Listening     bool
}

// Addresses returns the addresses of the socket that descriptor fd is now. They are as old as Config.TTL allows.
func (t *Table) Addresses(fd int) (a Addresses, ok bool) {
	link, err := t.c.Proc.ReadLink("fd/" + strconv.Itoa(fd))
	if err != nil || !strings.HasPrefix(link, "socket:[") {
		return a, false
	}
	c, ok := t.find(inodeOf(link))
	if !ok {
		return a, false
	}
	if a.Listening = c.listening; c.kind == Unix {
		a.Local = c.path
		return a, true
	}
	if c.local.Port() != 0 {
		a.Local = c.local.String()
	}
	if c.remote.Port() != 0 {
		a.Remote = c.remote.String()
	}
	return a, true
}

func (t *Table) socket(fd int, link string) Desc {
	d := Desc{Kind: Socket, Text: "socket", Inode: inodeOf(link)}
	c, ok := t.find(d.Inode)
	if !ok {
		if p, is := t.c.Proc.(Protocoler); is {
			if name, err := p.Protocol("fd/" + strconv.Itoa(fd)); err == nil && name != "" {
				d.Text = strings.ToLower(name) + " socket"
				if strings.HasPrefix(name, "UNIX") {
					d.Kind = Unix
				}
				if name == "TCP" || name == "TCPv6" {
					d.Kind, d.Text = TCP, "tcp, not connected" // neither bound nor connected, so in no table
				}
				return d
			}
		}
		if t.unsure {
			d.Why = "the kernel's tables of sockets are being read"
			return d
		}
		d.Why = "the kernel's tables of sockets do not have it"
		if t.sockets.why != "" {
			d.Why = t.sockets.why
		}
		return d
	}
	d.Kind = c.kind
	switch c.kind {
	case Unix:
		t.unix(&d, c)
	case TCP, UDP:
		t.inet(&d, c)
	default:
		d.Text = c.typ
	}
	return d
}

func (t *Table) inet(d *Desc, c conn) {
	d.Text = string(c.kind) + " "
	switch {
	case c.listening:
		d.Text += c.local.String() + " listening"
		return
	case c.remote.Port() == 0 && c.remote.Addr().IsUnspecified():
		d.Text += c.local.String()
		if c.kind == TCP {
			d.Text += " not connected"
		}
		return
	}
	d.Text += c.remote.String() + " " + c.state
	d.Peer = c.remote.String()
	// Are both ends on this machine?
	for inode, o := range t.sockets.by {
		if o.kind == c.kind && o.local == c.remote && o.remote == c.local && inode != d.Inode {
			if pid, more, ok := t.holder(inode); ok {
				d.PeerPID, d.Peers = pid, more
				d.Peer += " " + t.process(pid)
			}
			break
		}
	}
}

func (t *Table) unix(d *Desc, c conn) {
	d.Text = "unix"
	name := c.path
	var why string
	if !c.listening && t.c.Peers != nil {
		if peer, err := t.c.Peers.Peer(d.Inode); err == nil && peer != 0 {
			if name == "" {
				if o, ok := t.find(peer); ok {
					name = o.path
				}
			}
			if pid, more, ok := t.holder(peer); ok {
				d.PeerPID, d.Peers = pid, more
				d.Peer = t.process(pid)
			}
		} else if err != nil && name == "" {
			why = "the socket's other end: " + err.Error()
		}
	}
	switch {
	case name != "":
		d.Text += " " + name
	case c.typ != "":
		d.Text += " " + c.typ
		d.Why = why
	}
	switch {
	case c.listening:
		d.Text += " listening"
	case d.PeerPID == t.c.PID && d.PeerPID != 0:
		d.Text += " within the process"
		d.Peer = ""
	case d.Peer != "":
		d.Text += " to " + d.Peer
	}
}

// tcpStates are those of include/net/tcp_states.h.
var tcpStates = [...]string{"", "established", "syn sent", "syn received", "fin wait 1", "fin wait 2", "time wait", "close",
	"close wait", "last ack", "listen", "closing", "syn received"}

// parseInet reads net/tcp and similar tables (kernel:
// Documentation/networking/proc_net_tcp.rst): "sl local remote st tx:rx tr:tm retrnsmt
// uid timeout inode …". It skips unknown lines.
func parseInet(b []byte, kind Kind, name string, v6 bool, to map[uint64]conn) {
	const local, remote, state, inode = 1, 2, 3, 9
	first := true
	for line := range bytes.Lines(b) {
		if first {
			first = false
			continue
		}
		if len(to) >= maxSockets {
			return
		}
		f := bytes.Fields(line)
		if len(f) <= inode {
			continue
		}
		n, err := strconv.ParseUint(string(f[inode]), 10, 64)
		if err != nil || n == 0 {
			continue
		}
		c := conn{kind: kind, typ: strings.TrimSuffix(name, "6") + " socket"}
		var ok1, ok2 bool
		c.local, ok1 = address(f[local], v6)
		c.remote, ok2 = address(f[remote], v6)
		st, err := strconv.ParseUint(string(f[state]), 16, 8)
		if !ok1 || !ok2 || err != nil {
			continue
		}
		if int(st) < len(tcpStates) {
			c.state = tcpStates[st]
		}
		c.listening = kind == TCP && c.state == "listen"
		if kind == UDP && c.state == "close" {
			c.state = ""
		}
		to[n] = c
	}
}

// address reads "0100007F:1F90": 32-bit words in the machine's byte order,
// little-endian on both architectures.
func address(b []byte, v6 bool) (netip.AddrPort, bool) {
	host, port, ok := bytes.Cut(b, []byte(":"))
	n := 4
	if v6 {
		n = 16
	}
	var raw [16]byte
	if !ok || len(host) != 2*n {
		return netip.AddrPort{}, false
	}
	if _, err := hex.Decode(raw[:n], host); err != nil {
		return netip.AddrPort{}, false
	}
	for i := 0; i < n; i += 4 {
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	p, err := strconv.ParseUint(string(port), 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	a, _ := netip.AddrFromSlice(raw[:n])
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), true
}

// parseUnix reads net/unix: "Num RefCount Protocol Flags Type St Inode [Path]"
// (proc_net(5)). A path may contain blanks.
func parseUnix(b []byte, to map[uint64]conn) {
	const flags, typ, inode, path = 3, 4, 6, 7
	first := true
	for line := range bytes.Lines(b) {
		if first {
			first = false
			continue
		}
		if len(to) >= maxSockets {
			return
		}
		f := bytes.Fields(line)
		if len(f) <= inode {
			continue
		}
		n, err := strconv.ParseUint(string(f[inode]), 10, 64)
		if err != nil || n == 0 {
			continue
		}
		c := conn{kind: Unix}
		switch string(f[typ]) { // SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET
		case "0001":
			c.typ = "stream"
		case "0002":
			c.typ = "dgram"
		case "0005":
			c.typ = "seqpacket"
		}
		const acceptCon = 1 << 16 // __SO_ACCEPTCON
		if v, err := strconv.ParseUint(string(f[flags]), 16, 32); err == nil {
			c.listening = v&acceptCon != 0
		}
		if len(f) > path {
			if i := bytes.Index(line, f[inode]); i >= 0 {
				// The inode's digits may also occur earlier in the line: the path
				// starts after the seventh field.
				rest := line
				for range path {
					rest = bytes.TrimLeft(rest, " ")
					_, rest, _ = bytes.Cut(rest, []byte(" "))
				}
				c.path = strings.TrimSuffix(string(rest), "\n")
			}
		}
		to[n] = c
	}
}

// parseNetlink reads net/netlink: "sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode".
func parseNetlink(b []byte, to map[uint64]conn) {
	const proto, inode = 1, 9
	names := map[string]string{"0": "route", "2": "usersock", "4": "sock_diag", "6": "xfrm", "9": "audit", "12": "netfilter",
		"15": "kobject_uevent", "16": "generic"} // linux/netlink.h
	parseColumns(b, inode, to, func(f [][]byte) string {
		if n, ok := names[string(f[proto])]; ok {
			return "netlink " + n
		}
		return "netlink " + string(f[proto])
	})
}

// parsePacket reads net/packet: "sk RefCnt Type Proto Iface R Rmem User Inode".
func parsePacket(b []byte, to map[uint64]conn) {
	const inode = 8
	parseColumns(b, inode, to, func([][]byte) string { return "packet socket" })
}

func parseColumns(b []byte, inode int, to map[uint64]conn, text func([][]byte) string) {
	first := true
	for line := range bytes.Lines(b) {
		if first {
			first = false
			continue
		}
		if len(to) >= maxSockets {
			return
		}
		f := bytes.Fields(line)
		if len(f) <= inode {
			continue
		}
		if n, err := strconv.ParseUint(string(f[inode]), 10, 64); err == nil && n != 0 {
			to[n] = conn{kind: Socket, typ: text(f)}
		}
	}
}

// Sockaddr formats a peer from a sockaddr as passed to connect (linux/socket.h, in.h,
// un.h): family in the machine's byte order, port in network byte order.
func Sockaddr(b []byte) string {
	if len(b) < 2 {
		return ""
	}
	const unix, inet, inet6 = 1, 2, 10
	switch fam := int(b[0]) | int(b[1])<<8; {
	case fam == inet && len(b) >= 8:
		a, _ := netip.AddrFromSlice(b[4:8])
		return netip.AddrPortFrom(a, uint16(b[2])<<8|uint16(b[3])).String()
	case fam == inet6 && len(b) >= 24:
		a, _ := netip.AddrFromSlice(b[8:24])
		return netip.AddrPortFrom(a.Unmap(), uint16(b[2])<<8|uint16(b[3])).String()
	case fam == unix:
		p := b[2:]
		if len(p) > 0 && p[0] == 0 { // abstract: the rest of the buffer, including zeros
			return "@" + strings.ToValidUTF8(strings.TrimRight(string(p[1:]), "\x00"), "?")
		}
		if i := bytes.IndexByte(p, 0); i >= 0 {
			p = p[:i]
		}
		return strings.ToValidUTF8(string(p), "?")
	default:
		return fmt.Sprintf("address family %d", fam)
	}
}
