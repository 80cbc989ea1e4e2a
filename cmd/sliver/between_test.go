package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
)

// loggedWait is a wait by the log of the program kinwaits.
type loggedWait struct {
	kind       string
	begin, end stack.Time
	pid        int
}

// TestWaitsBetween compares the waits of a process for others with its own log: children, any and one, pipes, sockets,
// file locks, and a poll that the end of a child interrupts.
func TestWaitsBetween(t *testing.T) {
	testprog.Whole(t, "TestWaitsLive has the same waits on the page")
	testprog.Need(t, "gcc", "ptrace", "root")
	dir := t.TempDir()
	r := sliver(t, dir, "record", "-i", "5ms", "-o", "x.sliver", "--", testprog.Build(t, "c/kinwaits", "O2"), "300")
	if r.status != 0 {
		t.Fatalf("%+v", r)
	}
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	views := view.All(rec, view.Options{})
	b := between.Of(rec, views)
	by := map[string]between.By{"any": between.ByEnd, "one": between.ByEnd, "pipe": between.ByPeer, "unix": between.ByPeer, "tcp": between.ByPeer,
		"flock": between.ByHolder, "fcntl": between.ByHolder, "poll": between.ByEndOnly}
	found, all := map[string]int{}, map[string]int{}
	for line := range strings.Lines(r.out) {
		var x loggedWait
		if n, _ := fmt.Sscanf(line, "wait %s %d %d %d", &x.kind, &x.begin, &x.end, &x.pid); n != 4 {
			continue
		}
		all[x.kind]++
		for i := range b.Of(0) {
			w := &b.Of(0)[i]
			if both := min(w.End, x.end) - max(w.Begin, x.begin); both < (x.end-x.begin)*3/4 {
				continue
			}
			switch {
			case w.Waker < 0:
				t.Logf("%s: nothing is known of what ended a wait for %q", x.kind, b.Text(w))
			case b.Processes[w.Waker].PID != x.pid || w.By != by[x.kind]:
				t.Errorf("%s: ended by %s (%s), its own log says %d", x.kind, b.Woken(w), w.By, x.pid)
			default:
				found[x.kind]++
			}
		}
	}
	for kind, how := range by {
		least := all[kind]
		// The other end is looked up in a share of the time, which may be after a wait; and of two children that
		// end about when a poll does, none is named.
		if how == between.ByPeer || how == between.ByEndOnly {
			least = 1
		}
		if all[kind] == 0 || found[kind] < least {
			t.Errorf("%s: %d waits of %d have the process that ended them", kind, found[kind], all[kind])
		}
	}
	t.Logf("found %v of %v", found, all)
	t.Run("page", func(t *testing.T) {
		testprog.Need(t, "node", "chromium", "npm")
		arrowsOf(t, rec, b)
		bin, err := build()
		if err != nil {
			t.Fatal(err)
		}
		runPage(t, "between.mjs", bin, filepath.Join(dir, "x.sliver"))
	})
}

// pageArrows are the waits that another process ended, as the page has them.
type pageArrows struct {
	Arrows []struct {
		Thread, By int
		Begin, End float64
		Text       string
	}
	More int
}

// TestWaitsLive: the page has the waits of processes for each other while it records, and all of them in the end. Those of
// processes that have ended stay.
func TestWaitsLive(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace", "root")
	dir := t.TempDir()
	s := serve(t, dir, nil, "record", "-i", "5ms", "--max-overhead", "0", "-o", "x.sliver", "--web", "--", testprog.Build(t, "c/kinwaits", "O2"), "250")
	ask := func() (got pageArrows) {
		if err := s.client().Ask(t.Context(), client.Query{Op: "arrows", T0: -1e17, T1: 1e17}, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	done := func() bool {
		var st struct{ Done bool }
		if err := s.client().Ask(t.Context(), client.Query{Op: "status"}, &st); err != nil {
			t.Fatal(err)
		}
		return st.Done
	}
	early := 0
	s.until("the recording is complete", func() bool {
		n := len(ask().Arrows)
		if done() {
			return true
		}
		if n < early {
			t.Errorf("%d waits after %d", n, early)
		}
		early = max(early, n)
		return false
	})
	s.until("the file is complete", func() bool { _, err := os.Stat(filepath.Join(dir, "x.sliver")); return err == nil })
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	b := between.Of(rec, view.All(rec, view.Options{}))
	want := map[string]int{}
	all := 0
	for i := range b.Waits {
		if w := &b.Waits[i]; w.Waker >= 0 && b.Processes[w.Waker].View >= 0 {
			want[b.Woken(w)]++
			all++
		}
	}
	var late pageArrows
	s.until("the page has the last waits", func() bool { late = ask(); return len(late.Arrows) >= all })
	for _, a := range late.Arrows {
		if want[a.Text]--; want[a.Text] < 0 || a.Begin >= a.End || a.Thread == a.By {
			t.Errorf("arrow %+v", a)
		}
	}
	if len(late.Arrows) != all || early < all/2 {
		t.Errorf("%d waits while it recorded, %d in the end, of %d", early, len(late.Arrows), all)
	}
	t.Logf("%d waits while it recorded, of %d", early, all)
}

// arrowsOf compares the page's arrows with the waits that they are of.
func arrowsOf(t *testing.T, rec *trace.Recording, b *between.Between) {
	t.Helper()
	s, err := web.Serve(t.Context(), web.Options{Source: web.NewRecording(rec)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := client.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	var got pageArrows
	if err := c.Ask(t.Context(), client.Query{Op: "arrows", T0: -1e17, T1: 1e17}, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	n := 0
	for i := range b.Waits {
		if w := &b.Waits[i]; w.Waker >= 0 && b.Processes[w.Waker].View >= 0 {
			want[b.Woken(w)]++
			n++
		}
	}
	last := 0.
	for _, a := range got.Arrows {
		if want[a.Text]--; want[a.Text] < 0 || a.End < last || a.Begin >= a.End || a.Thread == a.By {
			t.Errorf("arrow %+v", a)
		}
		last = a.End
	}
	if len(got.Arrows)+got.More != n || n == 0 {
		t.Errorf("%d arrows and %d more of %d waits", len(got.Arrows), got.More, n)
	}
}
