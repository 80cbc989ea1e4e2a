package files

import (
	"errors"
	"io/fs"
	"runtime"
	"sync/atomic"
	"testing"
)

// TestLater compares a Table whose scans a Later does with one that waits for them.
// During a scan it must return what it knows and report that more will follow.
func TestLater(t *testing.T) {
	proc, sys, whole, _ := fixture()
	var now atomic.Int64
	now.Store(1)
	begun, gate := make(chan bool), make(chan bool)
	var fails atomic.Bool
	later := &Later{Open: func() (Dir, Dir, func(), error) {
		begun <- true
		<-gate
		if fails.Load() {
			return nil, nil, nil, errors.New("no /proc")
		}
		return proc, sys, func() {}, nil
	}}
	tab := New(Config{PID: 50, Proc: proc, Sys: sys, Peers: peers{22: 23}, Now: now.Load, TTL: 100, Later: later})
	const last = 23
	// A request that needs a scan starts one and does not wait for it.
	scans := map[int]bool{}
	before := map[int]Desc{}
	describe := func(fd int) (d Desc, owes bool) {
		d = tab.Describe(fd)
		return d, tab.Owes()
	}
	for fd := range last + 1 {
		d, owes := describe(fd)
		before[fd] = d
		if owes {
			scans[fd] = true
			if d.Why == "" || d.Peer != "" {
				t.Errorf("before a scan: %+v", d)
			}
		} else if want := whole.Describe(fd); d != want {
			t.Errorf("without a scan: %+v, want %+v", d, want)
		}
	}
	// The sockets and the two pipes.
	if len(scans) != 12 {
		t.Errorf("scans for %v", scans)
	}
	finish := func(n int) {
		t.Helper()
		for range n {
			<-begun
		}
		for range n {
			gate <- true
		}
		for later.Going(now.Load()) {
			runtime.Gosched()
		}
	}
	finish(2)
	same := func(when string) {
		t.Helper()
		for fd := range last + 1 {
			d, owes := describe(fd)
			for owes && later.Going(now.Load()) { // the process at the other end of a socket needs a second scan
				finish(1)
				d, owes = describe(fd)
			}
			if want := whole.Describe(fd); d != want || owes {
				t.Errorf("%s: %+v, owes %v, want %+v", when, d, owes, want)
			}
		}
	}
	same("after the scans")
	// Old results remain until there are new ones.
	now.Add(1 << 60)
	for fd := range scans {
		if d, owes := describe(fd); !owes || d != whole.Describe(fd) && d.Why == "" { // a missing result may exist now
			t.Errorf("during the next scan: %+v, owes %v", d, owes)
		}
	}
	sys.t["77/comm"], proc.t["net/unix"] = "sort2\n", unixTable
	finish(2)
	if d, owes := describe(14); owes || d.Peer != "PID 77 (sort2)" {
		t.Errorf("after the next scan: %+v, owes %v", d, owes)
	}
	// A failed scan is not retried at once.
	now.Add(1 << 60)
	fails.Store(true)
	describe(14)
	finish(1)
	if d, owes := describe(14); owes || d.Why == "" {
		t.Errorf("after a scan that failed: %+v, owes %v", d, owes)
	}
}

// Tables of several processes share one table of descriptors. A pipe that is newer than the table has it read once
// more, and no sooner than the share of the time allows.
func TestLaterShared(t *testing.T) {
	proc, sys, _, _ := fixture()
	var now atomic.Int64
	now.Store(1)
	var reads atomic.Int64
	all := &Later{Open: func() (Dir, Dir, func(), error) {
		reads.Add(1)
		return nil, sys, func() {}, nil
	}}
	of := func() (*Later, *Table) {
		l := &Later{Ends: all, Open: func() (Dir, Dir, func(), error) { return proc, sys, func() {}, nil }}
		return l, New(Config{PID: 50, Proc: proc, Sys: sys, Now: now.Load, TTL: 1 << 40, Later: l})
	}
	settle := func(l *Later, tab *Table, fd int) Desc {
		for {
			d := tab.Describe(fd)
			if !tab.Owes() {
				return d
			}
			for l.Going(now.Load()) {
				now.Add(1000)
				runtime.Gosched()
			}
		}
	}
	for range 3 {
		if l, tab := of(); settle(l, tab, 14).PeerPID != 77 {
			t.Error("the other end of a pipe is not found")
		}
	}
	if n := reads.Load(); n != 1 {
		t.Errorf("%d reads of all descriptors", n)
	}
	now.Add(1)
	sys.t["91/comm"], sys.t["91/fd/1"], sys.t["91/fdinfo/1"] = "new\n", "→pipe:[90]", "flags:\t01\n"
	proc.t["fd/40"], proc.t["fdinfo/40"] = "→pipe:[90]", "flags:\t00\n"
	proc.t["fd/41"], proc.t["fdinfo/41"] = "→pipe:[91]", "flags:\t00\n"
	l, tab := of()
	if d := settle(l, tab, 40); d.PeerPID != 91 || d.Peers {
		t.Errorf("a new pipe: %+v", d)
	}
	if d := settle(l, tab, 41); d.Why == "" || d.PeerPID != 0 {
		t.Errorf("a pipe without another end: %+v", d)
	}
	n := reads.Load()
	now.Add(1)
	settle(l, tab, 41)
	if n < 2 || n > 3 || reads.Load() != n {
		t.Errorf("%d reads of all descriptors, then %d", n, reads.Load())
	}
}

// While the descriptors of all processes are being read, which takes long on a busy machine, those of near processes are
// known.
func TestLaterNear(t *testing.T) {
	tree, sys, _, _ := fixture()
	tree.t["fd/31"], tree.t["fdinfo/31"] = "→/run/queue", "flags:\t0100001\n"
	sys.t["77/fd/31"], sys.t["77/fdinfo/31"] = "→/run/queue", "flags:\t0100000\n"
	proc := fifos{tree}
	done := make(chan bool)
	defer close(done)
	var near []int
	all := &Later{Near: func() []int { return near }}
	all.Open = func() (Dir, Dir, func(), error) { return nil, slow{sys, done}, func() {}, nil }
	l := &Later{Ends: all, Open: func() (Dir, Dir, func(), error) { return proc, sys, func() {}, nil }}
	for _, c := range []struct {
		fd   int
		near []int
		want int
	}{{14, nil, 0}, {14, []int{50, 77}, 77}, {31, nil, 0}, {31, []int{50, 77}, 77}} {
		near = c.near
		all.mu.Lock()
		all.near = reading[ends]{}
		all.mu.Unlock()
		tab := New(Config{PID: 50, Proc: proc, Sys: sys, Now: func() int64 { return 1 }, TTL: 1 << 40, Later: l})
		tab.Describe(c.fd)
		for reading := true; reading; runtime.Gosched() {
			all.mu.Lock()
			reading = all.near.going
			all.mu.Unlock()
		}
		if d := tab.Describe(c.fd); d.PeerPID != c.want || !tab.Owes() {
			t.Errorf("descriptor %d with near processes %v: %+v, owes %v; want the peer %d", c.fd, c.near, d, tab.Owes(), c.want)
		}
	}
}

// slow does not list /proc before done is closed.
type slow struct {
	Dir
	done <-chan bool
}

func (d slow) ReadDir(name string, most int) ([]string, error) {
	if name == "." {
		<-d.done
	}
	return d.Dir.ReadDir(name, most)
}

// fifos is a tree in which all paths are FIFOs.
type fifos struct{ Dir }

func (f fifos) Stat(string) (fs.FileMode, uint64, uint64, error) { return fs.ModeNamedPipe, 0, 9, nil }

// Processes of which another one has all descriptors are not read.
func TestLaterSkips(t *testing.T) {
	proc, sys, _, _ := fixture()
	for _, skips := range []bool{false, true} {
		l := &Later{Skip: func(pid int) bool { return skips && pid == 77 }}
		l.Open = func() (Dir, Dir, func(), error) { return proc, sys, func() {}, nil }
		tab := New(Config{PID: 50, Proc: proc, Sys: sys, Now: func() int64 { return 1 }, TTL: 1 << 40, Later: l})
		tab.Describe(14)
		for l.Going(1) {
			runtime.Gosched()
		}
		if d := tab.Describe(14); (d.PeerPID == 77) == skips {
			t.Errorf("the reader of the pipe, skipped %v: %+v", skips, d)
		}
	}
}

// For a new pipe between near processes the descriptors of all others are not read once more.
func TestLaterNearFirst(t *testing.T) {
	proc, sys, _, _ := fixture()
	var now, readings atomic.Int64
	now.Store(1)
	all := &Later{Near: func() []int { return []int{50, 91} }}
	all.Open = func() (Dir, Dir, func(), error) { return nil, counted{sys, &readings}, func() {}, nil }
	l := &Later{Ends: all, Open: func() (Dir, Dir, func(), error) { return proc, sys, func() {}, nil }}
	tab := New(Config{PID: 50, Proc: proc, Sys: sys, Now: now.Load, TTL: 1 << 40, Later: l})
	settle := func(fd int) (d Desc) {
		for d = tab.Describe(fd); tab.Owes(); d = tab.Describe(fd) {
			for l.Going(now.Load()) {
				now.Add(1000)
				runtime.Gosched()
			}
		}
		return d
	}
	settle(14)
	for l.Going(now.Load()) { // the files change below
		runtime.Gosched()
	}
	before := readings.Load()
	now.Add(1 << 36) // the share of the time allows each reading
	sys.t["91/comm"], sys.t["91/fd/1"], sys.t["91/fdinfo/1"] = "new\n", "→pipe:[90]", "flags:\t01\n"
	proc.t["fd/40"], proc.t["fdinfo/40"] = "→pipe:[90]", "flags:\t00\n"
	proc.t["fd/41"], proc.t["fdinfo/41"] = "→pipe:[91]", "flags:\t00\n"
	if d := settle(40); d.PeerPID != 91 || readings.Load() != before || before == 0 {
		t.Errorf("a new pipe: %+v, %d and then %d readings of all", d, before, readings.Load())
	}
	now.Add(1)
	if d := settle(41); d.PeerPID != 0 || readings.Load() == before {
		t.Errorf("a pipe that no near process has: %+v, %d readings of all", d, readings.Load())
	}
}

// counted counts lists of /proc.
type counted struct {
	Dir
	n *atomic.Int64
}

func (d counted) ReadDir(name string, most int) ([]string, error) {
	if name == "." {
		d.n.Add(1)
	}
	return d.Dir.ReadDir(name, most)
}
