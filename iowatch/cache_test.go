package iowatch

import (
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// oneRule returns a configuration with one rule.
func oneRule(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse([]string{text})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCacheMiss has the edges of the rule: the number of reads that waited, their time, and the window. Each
// read opens the file, or one open is for all.
func TestCacheMiss(t *testing.T) {
	const ms = int64(time.Millisecond)
	for name, c := range map[string]struct {
		reads, misses int
		took          int64 // of each read that waited
		fires         bool
	}{
		"20 of 100": {100, 20, 5 * ms, true},
		"19 of 100": {100, 19, 6 * ms, false},
		"100 ms":    {20, 20, 5 * ms, true},
		"99.9 ms":   {20, 20, 4_995_000, false},
		"none":      {100, 0, 0, false},
	} {
		for _, reopens := range []bool{false, true} {
			e := New(oneRule(t, "cache-miss"), 1)
			at := stack.Time(1e9)
			gen := uint32(0)
			open := func() {
				gen++
				e.Apply(&Event{Op: OpOpen, End: at, TID: 1, FD: 3, Gen: gen, Kind: KindFile, Path: "/data/x", Stack: 7})
			}
			end := func() { e.Apply(&Event{Op: OpClose, End: at, TID: 1, FD: 3, Gen: gen, Kind: KindFile}) }
			open()
			for i := range c.reads {
				at++
				ev := Event{Op: OpRead, End: at, TID: 1, FD: 3, Gen: gen, Kind: KindFile, Want: 100, Ret: 100, Took: 1000}
				if ev.Missed = i < c.misses; ev.Missed {
					ev.Took, ev.Stack = c.took, 9
				}
				e.Apply(&ev)
				if reopens {
					end()
					open()
				}
			}
			e.Tick(at)
			if n := len(e.Findings()); n > 0 {
				t.Errorf("%s: %d findings before the window ends", name, n)
			}
			e.Tick(at + stack.Time(time.Second))
			all := e.Findings()
			if len(all) > 0 != c.fires {
				t.Errorf("%s, reopens %v: %d findings", name, reopens, len(all))
			}
			if len(all) == 0 {
				continue
			}
			f := all[0]
			if f.Rule != CacheMiss || f.Path != "/data/x" || f.Count != c.misses || f.Ops != uint64(c.reads) || f.Cost != int64(c.misses)*c.took || f.Stack != 7 || f.Where != 9 && !reopens {
				t.Errorf("%s: %+v", name, f)
			}
			files := e.Files()
			if files[0].Misses != uint64(c.misses) || files[0].Missed != uint64(c.misses)*uint64(c.took) {
				t.Errorf("%s: %+v", name, files[0])
			}
		}
	}
}

// TestPageFault has the same edges for page faults, and a single slow one.
func TestPageFault(t *testing.T) {
	const ms = int64(time.Millisecond)
	for name, c := range map[string]struct {
		n     int
		took  int64
		path  string
		text  string
		fires bool
	}{
		"20":      {20, 5 * ms, "/lib/x.so", "20 page faults in x.so waited for storage, 100ms in all", true},
		"19":      {19, 6 * ms, "/lib/x.so", "", false},
		"99.9 ms": {20, 4_995_000, "/lib/x.so", "", false},
		"swap":    {30, 4 * ms, Swapped, "30 page faults waited for memory that was swapped out", true},
		"unknown": {30, 4 * ms, "", "", false},
	} {
		e := New(oneRule(t, "page-fault"), 1)
		at := stack.Time(1e9)
		for range c.n {
			at++
			e.Apply(&Event{Op: OpFault, End: at, TID: 2, Took: c.took, Path: c.path, Kind: KindFile, Stack: 5, Call: "page fault"})
		}
		e.Finish(at)
		all := e.Findings()
		if len(all) > 0 != c.fires {
			t.Errorf("%s: %d findings", name, len(all))
		}
		if len(all) > 0 && (all[0].Count != c.n || all[0].Where != 5 || all[0].TID != 2 || !strings.HasPrefix(all[0].Advice(), c.text)) {
			t.Errorf("%s: %+v: %s", name, all[0], all[0].Advice())
		}
		if files := e.Files(); c.path != "" && (files[0].Faults != uint64(c.n) || files[0].Faulted != uint64(c.n)*uint64(c.took)) {
			t.Errorf("%s: %+v", name, files)
		}
	}
	for _, took := range []int64{13 * ms, 13*ms + 1} {
		e := New(oneRule(t, "main-io"), 1)
		slow := 0
		e.Slow = func(*Finding) { slow++ }
		e.Apply(&Event{Op: OpFault, End: 1, TID: 1, Took: took, Path: "/lib/x.so", Kind: KindFile, Stack: 5, Call: "page fault"})
		e.Apply(&Event{Op: OpFault, End: 1, TID: 2, Took: took, Path: "/lib/y.so", Kind: KindFile, Stack: 5, Call: "page fault"}) // no loop
		e.Finish(2)
		all := e.Findings()
		if fires := took > 13*ms; len(all) > 0 != fires || slow > 0 != fires {
			t.Errorf("%d ns: %d findings, %d at once", took, len(all), slow)
		} else if fires && (len(all) != 1 || all[0].Rule != MainIO || !strings.HasPrefix(all[0].Advice(), "A page fault in x.so held the main thread for 13ms")) {
			t.Errorf("%+v: %s", all[0], all[0].Advice())
		}
	}
}
