package wait

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/lock"
)

// Limits of reads of /proc.
const (
	maxMapsFile = 64 << 20
	maxPlaces   = 4096 // bound on the cache of shared locks
	maxTasks    = 1 << 16
	maxProcs    = 1 << 14
	maxStatus   = 64 << 10
)

// How long, in ns, facts are cached: that a thread lives, which memory is shared.
const (
	livesTTL = 50e6
	mapsTTL  = 1e9
)

// maps holds the facts needed about the process's mappings.
type maps struct {
	proc      files.Dir
	now       func() int64
	places    map[uint64]place
	libcKnown bool
}

type place struct {
	key    Key
	shared bool
	until  int64
}

func (m *maps) forget() { m.places = map[uint64]place{} }

// libc returns the C library that is mapped. A static program has neither.
func (m *maps) libc() lock.Libc {
	b, err := m.proc.ReadFile("maps", maxMapsFile)
	if err != nil {
		return lock.AnyLibc
	}
	switch {
	case bytes.Contains(b, []byte("/ld-musl-")), bytes.Contains(b, []byte("/libc.musl-")), bytes.Contains(b, []byte("-linux-musl/libc.so\n")):
		return lock.Musl
	case bytes.Contains(b, []byte("/libc.so.6\n")), bytes.Contains(b, []byte("/libc-2.")):
		return lock.Glibc
	}
	return lock.AnyLibc
}

var errUnmapped = errors.New("its memory is not mapped")

// place returns the key of the memory at addr, and whether other processes share it.
func (m *maps) place(addr uint64) (Key, bool, error) {
	now := m.now()
	if p, ok := m.places[addr]; ok && now < p.until {
		return p.key, p.shared, nil
	}
	b, err := m.proc.ReadFile("maps", maxMapsFile)
	if err != nil {
		return Key{}, false, err
	}
	k, shared, ok := findMapping(b, addr)
	if !ok {
		return Key{}, false, errUnmapped
	}
	if len(m.places) >= maxPlaces {
		clear(m.places)
	}
	m.places[addr] = place{k, shared, now + mapsTTL}
	return k, shared, nil
}

// findMapping looks up an address in a maps file (proc_pid_maps(5)): "start-end perms
// offset dev inode path". It skips unknown lines.
func findMapping(b []byte, addr uint64) (k Key, shared, ok bool) {
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 5 || len(f[1]) != 4 {
			continue
		}
		lo, hi, _ := strings.Cut(string(f[0]), "-")
		start, e1 := strconv.ParseUint(lo, 16, 64)
		end, e2 := strconv.ParseUint(hi, 16, 64)
		if e1 != nil || e2 != nil || addr < start || addr >= end {
			continue
		}
		off, e3 := strconv.ParseUint(string(f[2]), 16, 64)
		inode, e4 := strconv.ParseUint(string(f[4]), 10, 64)
		if e3 != nil || e4 != nil {
			return Key{}, false, false
		}
		return Key{Dev: string(f[3]), Inode: inode, Offset: off + (addr - start)}, f[1][3] == 's', true
	}
	return Key{}, false, false
}

// threads translates TIDs of the target's PID namespace to our TIDs.
type threads struct {
	proc, sys files.Dir
	now       func() int64
	asked     bool
	foreign   bool                // the target has a PID namespace of its own
	alive     map[int32]int64     // same namespace: when the cached fact expires
	own, all  map[int32]stack.TID // other namespace: the threads of the process, and those of its whole namespace
	ownUntil  int64
	allUntil  int64
}

func (t *threads) forget() {
	t.asked, t.alive, t.own, t.all, t.ownUntil, t.allUntil = false, map[int32]int64{}, nil, nil, 0, 0
}

// translate: see lock.Target.Thread.
func (t *threads) translate(n int32, shared bool) (stack.TID, bool) {
	if n <= 0 {
		return 0, false
	}
	if !t.asked {
		t.asked = true
		if b, err := t.proc.ReadFile("status", maxStatus); err == nil {
			t.foreign = len(nspid(b)) > 1
		}
	}
	now := t.now()
	if !t.foreign {
		if until, ok := t.alive[n]; ok && now < until {
			return stack.TID(n), true
		}
		_, err := t.proc.ReadFile("task/"+strconv.Itoa(int(n))+"/comm", 64)
		if err != nil && shared && t.sys != nil {
			_, err = t.sys.ReadFile(strconv.Itoa(int(n))+"/comm", 64)
		}
		if err != nil {
			return 0, false
		}
		if len(t.alive) >= maxTasks {
			clear(t.alive)
		}
		t.alive[n] = now + livesTTL
		return stack.TID(n), true
	}
	if tid, ok := t.own[n]; ok && now < t.ownUntil {
		return tid, true
	}
	if now >= t.ownUntil {
		t.own, t.ownUntil = map[int32]stack.TID{}, now+livesTTL
		tasks(t.proc, "", t.own)
		if tid, ok := t.own[n]; ok {
			return tid, true
		}
	}
	if !shared || t.sys == nil {
		return 0, false
	}
	if now >= t.allUntil {
		t.all, t.allUntil = map[int32]stack.TID{}, now+mapsTTL
		t.namespace(t.all)
	}
	tid, ok := t.all[n]
	return tid, ok
}

// tasks adds the threads of a process, keyed by their TIDs in their own namespace.
func tasks(d files.Dir, prefix string, to map[int32]stack.TID) {
	names, err := d.ReadDir(prefix+"task", maxTasks)
	if err != nil {
		return
	}
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := d.ReadFile(prefix+"task/"+name+"/status", maxStatus)
		if err != nil {
			continue
		}
		if ids := nspid(b); len(ids) > 0 && len(to) < maxTasks {
			to[ids[len(ids)-1]] = stack.TID(tid)
		}
	}
}

// namespace adds the threads of all processes in the target's PID namespace.
func (t *threads) namespace(to map[int32]stack.TID) {
	ours, err := t.proc.ReadLink("ns/pid")
	if err != nil {
		return
	}
	names, err := t.sys.ReadDir(".", maxProcs)
	if err != nil {
		return
	}
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		if ns, err := t.sys.ReadLink(name + "/ns/pid"); err == nil && ns == ours {
			tasks(t.sys, name+"/", to)
		}
	}
}

// nspid reads the line NSpid of a status file: the IDs from the outermost namespace to
// the innermost.
func nspid(b []byte) []int32 {
	const maxLevels = 33 // MAX_PID_NS_LEVEL plus our own
	for line := range bytes.Lines(b) {
		v, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		var ids []int32
		for _, f := range bytes.Fields(v) {
			n, err := strconv.ParseInt(string(f), 10, 32)
			if err != nil || len(ids) == maxLevels {
				return nil
			}
			ids = append(ids, int32(n))
		}
		return ids
	}
	return nil
}
