package files

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of the search for the other ends of pipes and sockets.
const (
	maxPIDs = 1 << 14
	maxFDs  = 1 << 12 // of one process
	maxEnds = 1 << 17 // in all
	maxPeer = 3       // named in a description
)

// An end is a process that has a pipe or socket open.
type end struct{ pid, fd int }

// ends maps pipes, sockets and FIFOs to the processes that have them open, as far as this user may see them.
type ends struct {
	by    map[string][]end // by the link of a descriptor: "pipe:[INODE]", "socket:[INODE]", or a path
	until int64
	cut   bool // a limit was hit
}

// scan refreshes the table of all processes' descriptors if it is stale. If Later does
// the scan, it records that more will be known.
func (t *Table) scan() {
	if t.c.Sys == nil {
		return
	}
	if t.c.Later != nil {
		l := t.c.Later.ofEnds()
		e, fresh := take(l, &l.ends, t.c.Now, endsTimes*t.c.TTL, l.allEnds)
		if e != nil {
			t.ends = *e
		}
		if l.Near != nil {
			if e, _ := take(l, &l.near, t.c.Now, endsTimes*t.c.TTL, l.nearEnds); e != nil {
				t.near = *e
			}
		}
		t.unsure = t.unsure || !fresh
		return
	}
	if t.ends.until != 0 && t.c.Now() < t.ends.until {
		return
	}
	t.ends = *allEnds(t.c.Sys, nil)
	t.ends.until = t.c.Now() + endsTimes*t.c.TTL
}

// endsTimes is how many TTLs the table of descriptors is cached: a scan costs more than a table of sockets.
const endsTimes = 4

// allEnds reads the descriptors of all visible processes but those that skip reports; nil: of all.
func allEnds(sys Dir, skip func(pid int) bool) *ends {
	names, err := sys.ReadDir(".", maxPIDs)
	if err != nil {
		return readEnds(sys, nil)
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && (skip == nil || !skip(pid)) {
			pids = append(pids, pid)
		}
	}
	return readEnds(sys, pids)
}

func (l *Later) allEnds(_, sys Dir) *ends { return allEnds(sys, l.Skip) }

func (l *Later) nearEnds(_, sys Dir) *ends { return readEnds(sys, l.Near()) }

// endsOf returns the processes that have a pipe, socket or FIFO open: those of the last reading of all, and others that
// a reading of near ones has found.
func (t *Table) endsOf(link string) []end {
	all := t.ends.by[link]
	for _, e := range t.near.by[link] {
		if !slices.Contains(all, e) {
			all = append(slices.Clip(all), e)
		}
	}
	return all
}

// missing is called if the table of descriptors lacks the other end of a pipe, socket or FIFO. If it was read before
// this Table met the link, another reading decides: of near processes, and of all if these do not have it either.
func (t *Table) missing(link string) {
	if t.c.Later == nil {
		return
	}
	l := t.c.Later.ofEnds()
	met := t.metAt(link)
	if l.Near != nil && !since(l, &l.near, met, t.c.Now, endsTimes*t.c.TTL, l.nearEnds) ||
		!since(l, &l.ends, met, t.c.Now, endsTimes*t.c.TTL, l.allEnds) {
		t.unsure = true
	}
}

// metAt returns when the Table first described a pipe, socket or FIFO.
func (t *Table) metAt(link string) int64 {
	at, ok := t.met[link]
	if !ok {
		if len(t.met) >= maxCached {
			clear(t.met)
		}
		at = t.c.Now()
		t.met[link] = at
	}
	return at
}

// readEnds reads the descriptors of processes.
func readEnds(sys Dir, pids []int) *ends {
	e := &ends{by: map[string][]end{}}
	total := 0
	for _, pid := range pids {
		name := strconv.Itoa(pid)
		fds, err := sys.ReadDir(name+"/fd", maxFDs)
		if err != nil {
			continue // owned by another user, or gone
		}
		for _, f := range fds {
			fd, err := strconv.Atoi(f)
			if err != nil {
				continue
			}
			link, err := sys.ReadLink(name + "/fd/" + f)
			if err != nil {
				continue
			}
			// Files too: the link does not show which of them are FIFOs, and only requested ones are examined.
			path := strings.HasPrefix(link, "/") && !strings.HasPrefix(link, "/dev/")
			if !path && !strings.HasPrefix(link, "pipe:[") && !strings.HasPrefix(link, "socket:[") {
				continue
			}
			e.by[link] = append(e.by[link], end{pid, fd})
			if total++; total >= maxEnds {
				e.cut = true
				break
			}
		}
		if e.cut {
			break
		}
	}
	return e
}

// Access modes of open(2).
const (
	readOnly  = 0
	writeOnly = 1
	readWrite = 2
)

// accessOf reads the access mode from an fdinfo file.
func accessOf(info []byte) (mode int, ok bool) {
	for line := range bytes.Lines(info) {
		if v, found := bytes.CutPrefix(line, []byte("flags:")); found {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(v)), 8, 64)
			return int(n & 3), err == nil
		}
	}
	return 0, false
}

// pipe describes a pipe or a FIFO; all descriptors of one have the same link.
func (t *Table) pipe(fd int, link, what string) Desc {
	d := Desc{Kind: Pipe, Text: what, Inode: inodeOf(link)}
	if what != "pipe" {
		d.Inode = 0
	}
	info, err := t.info(fd)
	mine, ok := accessOf(info)
	if err != nil || !ok {
		d.Why = "whether the pipe is read or written is not known"
		return d
	}
	t.scan()
	if t.c.Sys == nil {
		return d
	}
	var names []string
	own, more := false, 0
	seen := map[int]bool{}
	for _, e := range t.endsOf(link) {
		if e.pid == t.c.PID && e.fd == fd || seen[e.pid] {
			continue
		}
		b, err := t.c.Sys.ReadFile(fmt.Sprintf("%d/fdinfo/%d", e.pid, e.fd), maxInfo)
		theirs, ok := accessOf(b)
		if err != nil || !ok || theirs == mine && mine != readWrite {
			continue
		}
		seen[e.pid] = true
		if e.pid == t.c.PID {
			own = true
			continue
		}
		if len(names) == maxPeer {
			more++
			continue
		}
		names = append(names, t.process(e.pid))
		if d.PeerPID == 0 {
			d.PeerPID = e.pid
		}
	}
	word := " from "
	if mine == writeOnly {
		word = " to "
	}
	if len(names) == 0 && !own {
		t.missing(link)
	}
	d.Peers = len(names) > 1 || own && len(names) > 0
	switch {
	case len(names) > 0:
		d.Peer = strings.Join(names, ", ")
		if more > 0 {
			d.Peer += fmt.Sprintf(" and %d more", more)
		}
		d.Text += word + d.Peer
	case own:
		d.Text += " within the process"
	case t.unsure:
		d.Why = "the other end is being looked up"
	case t.ends.cut:
		d.Why = "too many descriptors on this machine to search for the other end"
	default:
		d.Why = "no process that can be seen has the other end"
	}
	return d
}

// process formats a process as "PID 77 (sort)".
func (t *Table) process(pid int) string {
	b, err := t.c.Sys.ReadFile(strconv.Itoa(pid)+"/comm", 256)
	if err != nil {
		return fmt.Sprintf("PID %d", pid)
	}
	return fmt.Sprintf("PID %d (%s)", pid, strings.TrimSuffix(string(b), "\n"))
}

// holder returns a process other than the target that has the socket open, and whether more processes have it.
func (t *Table) holder(inode uint64) (pid int, more, ok bool) {
	link := socketLink(inode)
	t.scan()
	for _, e := range t.endsOf(link) {
		switch {
		case e.pid == t.c.PID:
			ok = true
		case pid == 0:
			pid = e.pid
		case pid != e.pid:
			more = true
		}
	}
	if pid == 0 && ok {
		return t.c.PID, false, true
	}
	if pid == 0 {
		t.missing(link)
	}
	return pid, more || ok && pid != 0, pid != 0
}
