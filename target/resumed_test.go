package target

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// account returns a file like schedstat, with content set by the test.
func account(t *testing.T) (fd uintptr, say func(string)) {
	t.Helper()
	n, err := unix.MemfdCreate("schedstat", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return uintptr(n), func(s string) {
		t.Helper()
		if err := unix.Ftruncate(n, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Pwrite(n, []byte(s), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWaited: unreadable content is not zero.
func TestWaited(t *testing.T) {
	w := NewWindow(1)
	if got := w.waited(); got != -1 {
		t.Errorf("%d without a file", got)
	}
	fd, say := account(t)
	defer unix.Close(int(fd))
	w.raw.self = fd
	for _, c := range []struct {
		line string
		want int64
	}{
		{"123456 7890 12\n", 7890},
		{"0 0 0\n", 0},
		{"1 9000000000000000000 2\n", 9_000_000_000_000_000_000},
		{"", -1},
		{"123456", -1},
		{"123456 78", -1},
		{strings.Repeat("1", len(w.raw.own)), -1},
	} {
		if say(c.line); w.waited() != c.want {
			t.Errorf("%q: %d, want %d", c.line, w.waited(), c.want)
		}
	}
}

// TestResumed: if a stopper has lost its CPU to the thread that it released, and waited for it,
// that time is subtracted from its reading of the clock: only time that it waited, and at most
// the time since the stop.
func TestResumed(t *testing.T) {
	w := NewWindow(1)
	fd, say := account(t)
	defer unix.Close(int(fd))
	for _, c := range []struct {
		name          string
		self          uintptr
		before        int64 // result of waited
		after         string
		stood, waited int64 // ns since the stop, and ns of that to subtract
	}{
		{"lost its CPU", fd, 1000, "5 9001000 7", 10_000_000, 9_000_000},
		{"waited for longer than since the stop", fd, 1000, "5 50001000 7", 10_000_000, 10_000_000},
		{"was at work", fd, 1000, "5 1000 7", 10_000_000, 0},
		{"was quick", fd, 1000, "5 9001000 7", leastWaited - 1, 0},
		{"not known before", fd, -1, "5 9001000 7", 10_000_000, 0},
		{"not known after", fd, 1000, "", 10_000_000, 0},
		{"need not ask", 0, -1, "5 9001000 7", 10_000_000, 0},
	} {
		say(c.after)
		w.raw.self = c.self
		now := monotonic()
		w.Stopped, w.Resumed = now-stack.Time(c.stood), now
		w.resumed(c.before)
		// The clock is read once more, possibly later.
		least, most := now-stack.Time(c.waited), now
		if c.waited == 0 {
			least = now
		}
		if w.Resumed < least || w.Resumed > most || w.Resumed < w.Stopped {
			t.Errorf("%s: %d ns taken, want at most %d", c.name, now-w.Resumed, c.waited)
		}
		if spent := monotonic() - now; c.waited > 0 && now-w.Resumed < stack.Time(c.waited)-spent {
			t.Errorf("%s: %d ns taken, want %d", c.name, now-w.Resumed, c.waited)
		}
	}
}

// TestResumedIsAsked: the process that makes a stop reads its own schedstat, unless it is a
// stopper with priority over all others.
func TestResumedIsAsked(t *testing.T) {
	_, _, th, tr, w := knownRegs(t)
	for _, how := range []string{"stopper", "own"} {
		w.More = nil
		if how == "own" {
			w.More = func() []stack.Span { return nil }
		}
		capture(t, tr, th, w)
		s := tr.stopper()
		if s == nil {
			t.Skip("stops are made without a stopper here")
		}
		if attr, err := unix.SchedGetAttr(s.proc, 0); err != nil || (attr.Policy == unix.SCHED_FIFO) != (s.b.self == 0) {
			t.Fatalf("policy %+v (%v), account %d", attr, err, s.b.self)
		}
		fd, say := account(t)
		defer unix.Close(int(fd))
		line := fmt.Sprintf("1 2 3 %s\n", how)
		say(line)
		was, own := s.b.self, tr.self
		s.b.self, tr.self = fd, fd
		capture(t, tr, th, w)
		s.b.self, tr.self = was, own
		if got := string(w.raw.own[:len(line)]); got != line {
			t.Errorf("%s: read %q", how, got)
		}
	}
}
