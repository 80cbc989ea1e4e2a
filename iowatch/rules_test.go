package iowatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

const (
	ms     = int64(time.Millisecond)
	main   = stack.TID(100)
	worker = stack.TID(101)
)

// script feeds an engine with operations of one thread on a clock of its own.
type script struct {
	t   *testing.T
	e   *Engine
	now stack.Time
	gen uint32
	tid stack.TID
	fd  int32
	sp  uint64
	at  StackID

	queued int64 // ns of each operation in which the thread waits for a CPU
	flags  int64 // of each open
}

func newScript(t *testing.T, set ...string) *script {
	t.Helper()
	c, err := Parse(set)
	if err != nil {
		t.Fatal(err)
	}
	return &script{t: t, e: New(c, main), now: 1_000_000_000, tid: main, fd: 3, sp: 0x7000, at: 7}
}

func (s *script) open(path string) {
	s.gen++
	s.e.Apply(&Event{Op: OpOpen, End: s.now, TID: s.tid, FD: s.fd, Gen: s.gen, Want: s.flags, Ret: int64(s.fd), Kind: KindFile, Path: path, Stack: s.at, SP: s.sp, Size: 10, Call: "openat"})
}

// io makes an operation that ends after a pause and its own time.
func (s *script) io(op Op, pause, took, want int64) {
	s.now += stack.Time(pause + took)
	s.e.Apply(&Event{Op: op, End: s.now, Took: took, Queued: s.queued, TID: s.tid, FD: s.fd, Gen: s.gen, Want: want, Ret: want, Kind: KindFile, Size: 10, Call: "fsync"})
}

func (s *script) close() {
	s.e.Apply(&Event{Op: OpClose, End: s.now, TID: s.tid, FD: s.fd, Gen: s.gen, Kind: KindFile, Size: 10})
}

func (s *script) rules() string {
	var all []string
	for _, f := range s.e.Findings() {
		all = append(all, fmt.Sprintf("%s:%d", f.Rule, f.Count))
		if f.Advice() == "" {
			s.t.Errorf("%+v has no advice", f)
		}
	}
	return strings.Join(all, " ")
}

// TestEdges has for each rule a program that just fires it, and one that just does not.
func TestEdges(t *testing.T) {
	steady := func(op Op, n int, pause, took, want int64) func(*script) {
		return func(s *script) {
			s.open("/data/f")
			for range n {
				s.io(op, pause, took, want)
			}
			s.close()
		}
	}
	again := func(s *script, times int) {
		for range times {
			s.open("/data/f")
			s.io(OpRead, 0, 0, 100)
			s.close()
		}
	}
	// Reads that repeat a file watched before: of times many, gap apart from the first one that counts.
	repeat := func(times int, gap int64) func(*script) {
		return func(s *script) {
			s.open("/data/f") // a slow one: from here on the path is watched, and this is the first entry
			s.io(OpRead, 0, 13*ms, 100)
			s.close()
			for range times - 1 {
				s.now += stack.Time(gap / int64(times-1))
				again(s, 1)
			}
		}
	}
	for _, c := range []struct {
		name, rule string
		do         func(*script)
		want       string
	}{
		{"13.1 ms once", "main-io", steady(OpRead, 1, 0, 131*ms/10, 1), "main-io:1"},
		{"13 ms once", "main-io", steady(OpRead, 1, 0, 13*ms, 1), ""},
		{"12.9 ms once", "main-io", steady(OpRead, 1, 0, 129*ms/10, 1), ""},
		{"13.1 ms of a write", "main-io", steady(OpWrite, 1, 0, 131*ms/10, 1), "main-io:1"},
		{"a run of 501 ms, 7.9 ms apart", "main-io", steady(OpRead, 167, 49*ms/10, 3*ms, 1), "main-io:2"},
		{"a run of 500 ms", "main-io", steady(OpRead, 250, 0, 2*ms, 1), ""},
		{"501 ms, 8.1 ms apart", "main-io", steady(OpRead, 167, 51*ms/10, 3*ms, 1), ""},
		{"501 ms, 8 ms apart", "main-io", steady(OpRead, 167, 5*ms, 3*ms, 1), ""},
		{"13.2 ms, 0.1 of them without a CPU", "main-io", func(s *script) { s.queued = ms / 10; steady(OpRead, 1, 0, 132*ms/10, 1)(s) }, "main-io:1"},
		{"13.2 ms, 0.3 of them without a CPU", "main-io", func(s *script) { s.queued = 3 * ms / 10; steady(OpRead, 1, 0, 132*ms/10, 1)(s) }, ""},
		{"a run of 501 ms, 2 of them without a CPU", "main-io", func(s *script) { s.queued = 12_000; steady(OpRead, 167, 49*ms/10, 3*ms, 1)(s) }, ""},
		{"on another thread", "main-io", func(s *script) { s.tid = worker; steady(OpRead, 1, 0, 50*ms, 1)(s) }, ""},

		{"21 operations", "small-buffer", steady(OpRead, 21, 0, ms, 4095), "small-buffer:0"},
		{"20 operations", "small-buffer", steady(OpRead, 20, 0, ms, 4095), ""},
		{"4,096 bytes", "small-buffer", steady(OpRead, 21, 0, ms, 4096), ""},
		{"a run of 13 ms", "small-buffer", steady(OpWrite, 26, 0, ms/2, 100), "small-buffer:0"},
		{"a run of 12.9 ms", "small-buffer", steady(OpWrite, 30, 0, 43*ms/100, 100), ""},
		{"8.1 ms apart", "small-buffer", steady(OpRead, 40, 71*ms/10, ms, 100), ""},
		{"7.9 ms apart", "small-buffer", steady(OpRead, 40, 69*ms/10, ms, 100), "small-buffer:0"},

		{"5 times in 16 ms", "repeat-read", repeat(5, 16*ms), "repeat-read:5"},
		{"4 times in 16 ms", "repeat-read", repeat(4, 16*ms), ""},
		{"5 times in 18 ms", "repeat-read", repeat(5, 18*ms), ""},
		{"another stack", "repeat-read", func(s *script) {
			repeat(4, 10*ms)(s)
			s.at = 8
			s.open("/data/f")
			s.io(OpRead, 0, 0, 100)
			s.close()
		}, ""},
		{"the first stack lacks frames", "repeat-read", func(s *script) {
			s.e.Complete = func(id StackID) bool { return id != 8 }
			s.at = 8
			repeat(1, 0)(s)
			s.at = 7
			again(s, 4)
		}, "repeat-read:5"},
		{"the first stack lacks frames and is of another call", "repeat-read", func(s *script) {
			s.e.Complete = func(id StackID) bool { return id != 8 }
			s.at, s.sp = 8, 0x6000
			repeat(1, 0)(s)
			s.at, s.sp = 7, 0x7000
			again(s, 4)
		}, ""},
		{"another number of bytes", "repeat-read", func(s *script) {
			repeat(4, 10*ms)(s)
			s.open("/data/f")
			s.io(OpRead, 0, 0, 101)
			s.close()
		}, ""},
		{"a write between", "repeat-read", func(s *script) {
			repeat(4, 4*ms)(s)
			s.open("/data/f")
			s.io(OpWrite, 0, 0, 100)
			s.close()
			repeat(4, 4*ms)(s)
		}, ""},
		{"never slow", "repeat-read", func(s *script) {
			for range 10 {
				s.open("/data/f")
				s.io(OpRead, 0, 129*ms/10, 100)
				s.close()
				s.now += 1
			}
		}, ""},

		{"20 syncs in less than a second", "fsync", steady(OpSync, 20, 50*ms, 2*ms, 0), "fsync:20"},
		{"20 syncs in a second", "fsync", steady(OpSync, 20, 52*ms, ms, 0), ""},
		{"19 syncs", "fsync", steady(OpSync, 19, ms, ms, 0), ""},
		{"64 KiB before each sync", "fsync", func(s *script) {
			s.open("/data/f")
			for range 40 {
				s.io(OpWrite, 0, 0, 64<<10)
				s.io(OpSync, 0, ms, 0)
			}
		}, ""},
		{"64 KiB less a byte before each sync", "fsync", func(s *script) {
			s.open("/data/f")
			for range 20 {
				s.io(OpWrite, 0, 0, 64<<10-1)
				s.io(OpSync, 0, ms, 0)
			}
		}, "fsync:20"},

		{"20 opens in less than a second", "repeat-open", func(s *script) {
			for range 20 {
				s.open("/etc/app.conf")
				s.close()
				s.now += stack.Time(52 * ms)
			}
		}, "repeat-open:20"},
		{"20 opens in a second", "repeat-open", func(s *script) {
			for range 40 {
				s.open("/etc/app.conf")
				s.close()
				s.now += stack.Time(53 * ms)
			}
		}, ""},
		{"20 opens of different files", "repeat-open", func(s *script) {
			for i := range 20 {
				s.open(fmt.Sprint("/etc/", i))
				s.close()
			}
		}, ""},
		{"20 files without a name", "repeat-open", func(s *script) {
			s.flags = 0o20200002 // O_TMPFILE|O_RDWR
			for range 20 {
				s.open("/tmp/(unnamed)")
				s.close()
			}
		}, ""},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			s := newScript(t, c.rule)
			c.do(s)
			if got := s.rules(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestShared makes the operations of two threads in turn, at the edges of rules.
func TestShared(t *testing.T) {
	// Each operation is of the other thread than the one before.
	turns := func(op Op, n int, pause, took, want int64) func(*script) {
		return func(s *script) {
			s.open("/data/f")
			for i := range n {
				s.tid = []stack.TID{worker, worker + 1}[i%2]
				s.io(op, pause, took, want)
			}
			s.close()
		}
	}
	for _, c := range []struct {
		name, rule    string
		do            func(*script)
		apart, shared string // each thread for itself, and together
	}{
		{"21 operations", "small-buffer", turns(OpRead, 21, 0, 2*ms, 4095), "", "small-buffer:0"},
		{"20 operations", "small-buffer", turns(OpRead, 20, 0, 2*ms, 4095), "", ""},
		{"4,096 bytes", "small-buffer", turns(OpRead, 21, 0, 2*ms, 4096), "", ""},
		{"a run of 13 ms", "small-buffer", turns(OpWrite, 26, 0, ms/2, 100), "", "small-buffer:0"},
		{"a run of 12.9 ms", "small-buffer", turns(OpWrite, 30, 0, 43*ms/100, 100), "", ""},
		{"7.9 ms apart", "small-buffer", turns(OpRead, 42, 69*ms/10, ms, 100), "", "small-buffer:0"},
		{"8.1 ms apart", "small-buffer", turns(OpRead, 42, 71*ms/10, ms, 100), "", ""},
		{"64 KiB by another thread before each sync", "fsync", func(s *script) {
			s.open("/data/f")
			for range 20 {
				s.tid = worker
				s.io(OpWrite, 0, 0, 64<<10)
				s.tid = worker + 1
				s.io(OpSync, 0, ms, 0)
			}
		}, "fsync:20", ""},
		{"5 times in 16 ms", "repeat-read", func(s *script) {
			for i := range 5 {
				s.tid = []stack.TID{worker, worker + 1}[i%2]
				s.open("/data/f")
				s.io(OpRead, 0, 13*ms*max(0, int64(1-i)), 100)
				s.close()
				s.now += stack.Time(4 * ms)
			}
		}, "", "repeat-read:5"},
		{"4 times in 16 ms", "repeat-read", func(s *script) {
			for i := range 4 {
				s.tid = []stack.TID{worker, worker + 1}[i%2]
				s.open("/data/f")
				s.io(OpRead, 0, 13*ms*max(0, int64(1-i)), 100)
				s.close()
				s.now += stack.Time(4 * ms)
			}
		}, "", ""},
		// The main thread is still one thread: a run of several held none of them.
		{"13.1 ms of the main thread", "main-io", func(s *script) {
			s.open("/data/f")
			s.tid = worker
			s.io(OpRead, 0, 50*ms, 1)
			s.tid = main
			s.io(OpRead, 0, 131*ms/10, 1)
			s.close()
		}, "main-io:1", "main-io:1"},
		{"13 ms of the main thread", "main-io", func(s *script) {
			s.open("/data/f")
			s.tid = worker
			s.io(OpRead, 0, 50*ms, 1)
			s.tid = main
			s.io(OpRead, 0, 13*ms, 1)
			s.close()
		}, "", ""},
		{"a run of 501 ms of the main thread", "main-io", func(s *script) {
			s.open("/data/f")
			for range 167 {
				s.io(OpRead, 0, 3*ms, 1)
			}
			s.close()
		}, "main-io:2", "main-io:2"},
		{"a run of 501 ms of both", "main-io", func(s *script) {
			s.open("/data/f")
			for i := range 167 {
				s.tid = []stack.TID{main, worker}[i%2]
				s.io(OpRead, 0, 3*ms, 1)
			}
			s.close()
		}, "", ""},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			for _, shared := range []bool{false, true} {
				s, want := newScript(t, c.rule), c.apart
				if s.e.Shared = shared; shared {
					want = c.shared
				}
				c.do(s)
				if got := s.rules(); got != want {
					t.Errorf("shared %v: %q, want %q", shared, got, want)
				}
			}
		})
	}
	// A finding names the thread of the operation, also where several had one.
	s := newScript(t, "main-io")
	s.e.Shared = true
	s.tid = worker
	s.open("/data/f")
	s.io(OpRead, 0, ms, 1)
	s.tid = main
	s.io(OpRead, 0, 14*ms, 1)
	s.close()
	if fs := s.e.Findings(); len(fs) != 1 || fs[0].TID != main || !fs[0].Main || fs[0].Longer != 14*ms {
		t.Errorf("%+v", fs)
	}
}

func TestSyncWrite(t *testing.T) {
	for _, c := range []struct {
		n     int
		bytes int64
		flags int64
		want  string
	}{{21, 4095, flagDSync, "sync-write:21"}, {20, 4095, flagDSync, ""}, {21, 4096, flagSync | flagDSync, ""}, {21, 100, 0, ""}} {
		s := newScript(t, "sync-write")
		s.gen++
		s.e.Apply(&Event{Op: OpOpen, End: s.now, TID: s.tid, FD: s.fd, Gen: s.gen, Ret: 3, Want: c.flags, Kind: KindFile, Path: "/log"})
		for range c.n {
			s.io(OpWrite, 0, ms, c.bytes)
		}
		s.close()
		if got := s.rules(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestSmallWrite has the edges of rule small-write: the number of writes in a second and their bytes, for a file
// that is open for longer and for one that is closed before.
func TestSmallWrite(t *testing.T) {
	for _, c := range []struct {
		n     int
		bytes int64
		took  stack.Time // from the open to the tick
		close bool       // instead of the tick
		want  string
	}{
		{1000, 511, 1e9, false, "small-write:1000"},
		{999, 511, 1e9, false, ""},
		{1000, 512, 1e9, false, ""},
		{1000, 511, 2e8, false, "small-write:1000"}, // there are enough before the second is over
		{999, 511, 2e8, false, ""},
		{2000, 511, 2e9, false, "small-write:1000"},
		{1999, 511, 2e9, false, ""},
		{1000, 511, 2e8, true, "small-write:1000"},
		{999, 511, 2e8, true, ""},
	} {
		s := newScript(t, "small-write")
		s.open("/log")
		for range c.n {
			s.io(OpWrite, 0, 0, c.bytes)
		}
		s.now += c.took
		if c.close {
			s.close()
		} else {
			s.e.Tick(s.now)
		}
		if got := s.rules(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	// Writes from before the file was seen do not count.
	s := newScript(t, "small-write")
	s.gen = 1
	for range 2000 {
		s.io(OpWrite, 0, 0, 100)
	}
	s.now += 1e8
	s.e.Tick(s.now)
	if got := s.rules(); got != "" {
		t.Errorf("a file that was open before: %q", got)
	}
}

func TestLoopIO(t *testing.T) {
	s := newScript(t, "loop-io")
	s.tid = worker
	s.open("/data/f")
	ev := Event{Op: OpRead, End: s.now, Took: 131 * ms / 10, TID: worker, FD: 3, Gen: s.gen, Want: 1, Ret: 1, Kind: KindFile}
	s.e.Apply(&ev)
	s.close()
	if got := s.rules(); got != "" {
		t.Errorf("a thread without a loop: %q", got)
	}
	s.open("/data/f")
	ev.Loop, ev.Gen = true, s.gen
	s.e.Apply(&ev)
	s.close()
	if got := s.rules(); got != "loop-io:1" {
		t.Errorf("a read on a loop: %q", got)
	}
	s.open("/data/g")
	ev.Op, ev.Gen, ev.Call = OpSync, s.gen, "fdatasync"
	s.e.Apply(&ev)
	if got := s.rules(); got != "loop-io:1 loop-io:1" || !strings.Contains(s.e.Findings()[1].Advice(), "fdatasync of g") {
		t.Errorf("a sync on a loop: %q", got)
	}
}

// TestLeak opens descriptors of several kinds. Those of a place that has ever more of them are a leak.
func TestLeak(t *testing.T) {
	for _, c := range []struct {
		more [3]int // new descriptors before each of three checks
		want string
	}{{[3]int{8, 1, 1}, "leak:10"}, {[3]int{8, 1, 0}, ""}, {[3]int{7, 1, 1}, ""}, {[3]int{20, 0, 0}, ""}, {[3]int{8, 0, 2}, ""}, {[3]int{0, 5, 5}, "leak:10"}} {
		s := newScript(t, "leak")
		fd := int32(100)
		s.e.Tick(s.now)
		for _, n := range c.more {
			for range n {
				fd++
				s.e.Apply(&Event{Op: OpMake, End: s.now, TID: worker, FD: fd, Gen: 1, Ret: int64(fd), Kind: KindSocket, Stack: 5, Call: "socket"})
			}
			s.now += 10e9 + 1
			s.e.Tick(s.now)
		}
		if got := s.rules(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	// One that is 10 s old counts from then on only.
	young := newScript(t, "leak count=1")
	young.e.Tick(young.now)
	for range 5 {
		young.e.Apply(&Event{Op: OpMake, End: young.now, TID: worker, FD: 9, Gen: uint32(young.now), Ret: 9, Kind: KindSocket, Stack: 5})
		young.now += 10e9
		young.e.Tick(young.now)
	}
	if got := young.rules(); got != "" {
		t.Errorf("young: %q", got)
	}
	// Descriptors that were open before, closed ones and young ones do not count.
	s := newScript(t, "leak")
	for fd := range int32(50) {
		s.e.Seed(fd+10, 0, fmt.Sprint("/x/", fd), KindFile, 0, s.now)
	}
	for range 10 {
		for fd := range int32(50) {
			s.e.Apply(&Event{Op: OpOpen, End: s.now, TID: worker, FD: fd + 100, Gen: uint32(s.now / 1e9), Ret: 1, Kind: KindFile, Path: "/y", Stack: 1})
		}
		s.now += 9e9
		s.e.Tick(s.now)
		for fd := range int32(50) {
			s.e.Apply(&Event{Op: OpClose, End: s.now, TID: worker, FD: fd + 100, Gen: uint32((s.now - 9e9) / 1e9)})
		}
		s.now += 9e9
		s.e.Tick(s.now)
	}
	if got := s.rules(); got != "" {
		t.Errorf("no leak: %q", got)
	}
}

// TestOnceForEachPlace fires a rule at two places that share the top four frames, and at a third.
func TestOnceForEachPlace(t *testing.T) {
	s := newScript(t, "main-io")
	s.e.Top = func(id StackID) string { return map[StackID]string{1: "a", 2: "a", 3: "b"}[id] }
	for _, at := range []StackID{1, 2, 3, 1} {
		s.at = at
		s.open("/data/f")
		s.io(OpRead, 0, 14*ms, 1)
		s.close()
	}
	if got := s.rules(); got != "main-io:1 main-io:1" {
		t.Error(got)
	}
}

// TestPoorStack fires a rule first where the stack is unknown, or lacks frames: it is the finding of the
// place that has its stack later.
func TestPoorStack(t *testing.T) {
	const cut, whole, other = StackID(1), StackID(2), StackID(3)
	for name, c := range map[string]struct {
		stacks []StackID // of 20 opens each
		want   []StackID
	}{
		"none":                     {[]StackID{0, whole}, []StackID{whole}},
		"none later":               {[]StackID{whole, 0}, []StackID{whole}},
		"incomplete":               {[]StackID{cut, whole}, []StackID{whole}},
		"incomplete later":         {[]StackID{whole, cut}, []StackID{whole}},
		"none, then incomplete":    {[]StackID{0, cut, whole}, []StackID{whole}},
		"incomplete, then none":    {[]StackID{cut, 0, whole, cut, 0}, []StackID{whole}},
		"always incomplete":        {[]StackID{cut, 0, cut}, []StackID{cut}},
		"always none":              {[]StackID{0, 0}, []StackID{0}},
		"two places":               {[]StackID{0, whole, cut, other}, []StackID{whole, other}},
		"two places, at first cut": {[]StackID{cut, whole, other, cut}, []StackID{whole, other}},
	} {
		s := newScript(t, "repeat-open")
		s.e.Complete = func(id StackID) bool { return id != cut }
		for _, at := range c.stacks {
			s.at = at
			for range 20 {
				s.open("/etc/app.conf")
				s.close()
			}
		}
		s.e.files["/etc/app.conf"].Stack = 0 // Findings takes it where there is none
		var got []StackID
		for _, f := range s.e.Findings() {
			got = append(got, f.Stack)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestPoorOpen syncs files: an open with an unknown stack is of the place that has a finding. Descriptors
// from before have none.
func TestPoorOpen(t *testing.T) {
	s := newScript(t, "fsync")
	syncs := func() {
		for range 20 {
			s.e.Apply(&Event{Op: OpSync, End: s.now, Took: 1, TID: s.tid, FD: s.fd, Gen: s.gen, Kind: KindFile, Size: 10, Call: "fsync", Stack: 9})
		}
		s.close()
	}
	for _, at := range []StackID{7, 0, 8, 0} {
		s.at = at
		s.open("/data/f")
		syncs()
	}
	if fs := s.e.Findings(); len(fs) != 2 || fs[0].Stack != 7 || fs[1].Stack != 8 || fs[0].Where != 9 {
		t.Errorf("%+v", fs)
	}
	for range 2 {
		s.gen++
		s.e.Seed(s.fd, s.gen, "/data/old", KindFile, 0, s.now)
		syncs()
	}
	if fs := s.e.Findings(); len(fs) != 3 || fs[2].Stack != 0 || fs[2].Where != 9 {
		t.Errorf("%+v", fs)
	}
}

// TestFailedCalls are ignored, also slow ones, and a close that fails still closes.
func TestFailedCalls(t *testing.T) {
	s := newScript(t)
	s.open("/data/f")
	s.e.Apply(&Event{Op: OpRead, End: s.now, Took: 50 * ms, TID: main, FD: 3, Gen: s.gen, Want: 1, Ret: -5, Kind: KindFile})
	s.e.Apply(&Event{Op: OpOpen, End: s.now, TID: main, FD: -2, Ret: -2, Path: "/no", Kind: KindUnknown})
	s.e.Apply(&Event{Op: OpClose, End: s.now, TID: main, FD: 3, Gen: s.gen, Ret: -5})
	if fs := s.e.Files(); len(fs) != 1 || fs[0].Opens != 1 || fs[0].Ops != 0 || fs[0].Open != 0 || s.rules() != "" {
		t.Errorf("%+v, %q", fs, s.rules())
	}
}

// TestReuse closes a descriptor unseen: the next one with its number has sums of its own.
func TestReuse(t *testing.T) {
	s := newScript(t)
	s.open("/a")
	s.io(OpRead, 0, ms, 10)
	s.open("/b")
	s.io(OpRead, 0, ms, 20)
	if s.e.Sum(worker, 3, s.gen-1, KindFile, &Sums{Ops: 99}, false) || s.e.Sum(worker, 3, s.gen+1, KindFile, &Sums{Ops: 99}, false) {
		t.Error("sums of closed and coming descriptors are taken")
	}
	fs := s.e.Files()
	if len(fs) != 2 || fs[0].Ops+fs[1].Ops != 2 || fs[0].Open+fs[1].Open != 1 {
		t.Errorf("%+v", fs)
	}
	s.e.Only(func(int32) bool { return false }, s.now)
	if fs = s.e.Files(); fs[0].Open+fs[1].Open != 0 || s.e.uses != 0 {
		t.Errorf("%+v, %d uses", fs, s.e.uses)
	}
}

// TestSumsOfTheKernel gives operations one by one, and as sums with the close: the findings are the
// same.
func TestSumsOfTheKernel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	fired := 0
	for range 300 {
		one, two := newScript(t), newScript(t)
		for range 5 {
			one.open("/f")
			two.open("/f")
			var sums Sums
			for range r.IntN(40) {
				op := OpRead + Op(r.IntN(2))
				pause, took, want := r.Int64N(9*ms), r.Int64N(14*ms), r.Int64N(9000)
				one.io(op, pause, took, want)
				two.now = one.now
				sums.Add(&Event{Op: op, End: one.now, Took: took, Want: want, Ret: want}, int64(two.e.c.Gap))
			}
			one.close()
			two.e.Apply(&Event{Op: OpClose, End: two.now, TID: main, FD: 3, Gen: two.gen, Kind: KindFile, Size: 10, Sums: &sums})
		}
		if one.rules() != two.rules() {
			t.Fatalf("%q and %q", one.rules(), two.rules())
		}
		fired += len(one.e.Findings())
	}
	if fired < 100 {
		t.Errorf("only %d findings", fired)
	}
}

func TestPercentile(t *testing.T) {
	var h [Buckets]uint64
	if Percentile(&h, .5) != 0 {
		t.Error("no operations have a percentile")
	}
	for ns := uint64(1); ns < 1<<40; ns = ns*5/4 + 1 {
		b := Bucket(ns)
		if b < Buckets-1 && bucketEnd(b) <= ns || b > 1 && bucketEnd(b-1) > ns {
			t.Fatalf("%d ns are in bucket %d, which ends at %d", ns, b, bucketEnd(b))
		}
	}
	for range 99 {
		h[Bucket(1000)]++
	}
	h[Bucket(1e6)]++
	if p := Percentile(&h, .5); p < 1000 || p > 1500 {
		t.Error(p)
	}
	if p := Percentile(&h, .995); p < 1e6 || p > 15e5 {
		t.Error(p)
	}
}

func TestParse(t *testing.T) {
	c, err := Parse([]string{"main-io,leak", "small-buffer ops=50 bytes=8192 run=20ms"})
	if err != nil || len(c.Enabled()) != 3 || c.SmallOps != 50 || c.SmallBytes != 8192 || c.SmallRun != 20*time.Millisecond {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"main":                         `unknown rule "main"`,
		"main-io,leak age=3s":          "settings belong to one rule",
		"leak age":                     `unknown setting "age"; settings: age= count=`,
		"leak age=x":                   `age: invalid duration "x"`,
		"leak count=-1":                `count: invalid number "-1"`,
		"repeat-read within=-17ms":     "invalid duration",
		"small-write count=5000000000": "invalid number",
	} {
		if _, err := Parse([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if c, err := Parse(nil); err != nil || len(c.Enabled()) != len(Rules()) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestBounds gives an engine more than it keeps.
func TestBounds(t *testing.T) {
	s := newScript(t, "repeat-read", "repeat-open", "fsync")
	for i := range maxPaths + 100 {
		s.open(fmt.Sprint("/p/", i))
		s.io(OpRead, 0, 14*ms, 1)
		s.io(OpSync, 0, 1, 1)
		s.close()
	}
	if len(s.e.files) > maxPaths || len(s.e.repeats) > maxPaths || len(s.e.opens) > maxPaths || len(s.e.syncs) > maxPaths || s.e.Forgotten == 0 {
		t.Errorf("%d files, %d forgotten", len(s.e.files), s.e.Forgotten)
	}
}

func TestIssue(t *testing.T) {
	s := newScript(t, "main-io")
	s.open("/data/f")
	s.io(OpWrite, 0, 20*ms, 100)
	s.close()
	i := s.e.Findings()[0].Issue("main", "open\nmain", "")
	if i.Type != 1 || i.Path != "/data/f" || i.Size != 10 || i.Op != 1 || i.Buffer != 100 || i.Cost != 20 || i.OpType != 2 || i.OpSize != 100 ||
		i.Thread != "main" || i.Stack != "open\nmain" || i.Repeat != 1 || i.Rule != MainIO || i.Kind != "file" {
		t.Errorf("%+v", i)
	}
}

// TestFolderSynced: the sentence says that it is a folder, since its name alone may not.
func TestFolderSynced(t *testing.T) {
	for kind, want := range map[Kind]string{KindDir: "The folder run was synced 20 times", KindFile: "run was synced 20 times"} {
		s := newScript(t, "fsync")
		s.gen++
		s.e.Apply(&Event{Op: OpOpen, End: s.now, TID: s.tid, FD: s.fd, Gen: s.gen, Ret: 3, Kind: kind, Path: "/srv/run", Stack: 7})
		for range 20 {
			s.io(OpSync, 0, ms, 0)
		}
		if all := s.e.Findings(); len(all) != 1 || !strings.HasPrefix(all[0].Advice(), want) {
			t.Errorf("%v: %+v", kind, all)
		}
	}
}

// TestPlaces groups the findings of a place, and none without a stack.
func TestPlaces(t *testing.T) {
	s := newScript(t, "repeat-open", "main-io")
	for _, x := range []struct {
		path string
		at   StackID
	}{{"/a", 7}, {"/b", 7}, {"/c", 8}, {"/d", 0}, {"/e", 0}, {"/f", 7}} {
		s.at = x.at
		for range 20 {
			s.open(x.path)
			s.close()
		}
	}
	s.at = 7
	s.open("/b") // another rule
	s.io(OpRead, 0, 14*ms, 1)
	s.close()
	var got []string
	for _, g := range Places(s.e.Findings()) {
		paths := string(g[0].Rule)
		for _, f := range g {
			paths += " " + f.Path
		}
		got = append(got, paths)
	}
	want := []string{"repeat-open /a /b /f", "repeat-open /c", "repeat-open /d", "repeat-open /e", "main-io /b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestLateRecords gives the records of a descriptor after the sums of the next one with its number.
func TestLateRecords(t *testing.T) {
	s := newScript(t)
	s.open("/a")
	s.io(OpRead, 0, ms, 10)
	s.e.Seed(3, s.gen+1, "/b", KindFile, 0, s.now) // found in a list
	s.close()                                      // of /a, whose sums were taken when /b was found
	s.open("/b")
	s.io(OpRead, 0, ms, 20)
	s.close()
	for _, f := range s.e.Files() {
		if f.Ops != 1 || f.Open != 0 {
			t.Errorf("%+v", f)
		}
	}
}
