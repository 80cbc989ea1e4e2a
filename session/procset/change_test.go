package procset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/target"
)

// TestChanges: reports of threads, names, execs and ends reach OnChange for processes of the set alone, and a process is
// due by the time of its report, not by when that was read.
func TestChanges(t *testing.T) {
	s := New(Options{Children: true, Once: true, Grace: 5 * time.Millisecond})
	defer s.Close()
	var got []string
	s.OnChange(func(pid int, what target.BirthKind) { got = append(got, fmt.Sprint(pid, " ", what)) })
	s.kin[10] = &kin{pid: 10}
	s.kin[30] = &kin{pid: 30, stranger: true}
	at := target.Now() - 1_000_000_000
	for _, b := range []target.Birth{
		{Kind: target.Threaded, PID: 10, At: at}, {Kind: target.Renamed, PID: 10, At: at}, {Kind: target.Threaded, PID: 20, At: at},
		{Kind: target.Threaded, PID: 30, At: at}, {Kind: target.Born, PID: 11, Parent: 10, At: at}, {Kind: target.Threaded, PID: 11, At: at},
		{Kind: target.Ended, PID: 10, At: at},
	} {
		s.apply(&b)
	}
	want := []string{fmt.Sprint(10, " ", target.Threaded), fmt.Sprint(10, " ", target.Renamed), fmt.Sprint(11, " ", target.Threaded), fmt.Sprint(10, " ", target.Ended)}
	if !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
	if len(s.due) != 1 || s.due[0].pid != 11 || s.due[0].due.After(time.Now()) {
		t.Errorf("due: %+v", s.due)
	}
}

// TestOutlived: a process ends with its last thread, also if the reports of all are read when it is gone.
func TestOutlived(t *testing.T) {
	const none = 1 << 30 // the number of no process
	s := New(Options{Children: true, Once: true})
	defer s.Close()
	s.kin[10] = &kin{pid: 10}
	at := target.Now() - 1_000_000_000
	for _, b := range []target.Birth{
		{Kind: target.Born, PID: none, Parent: 10, At: at}, {Kind: target.Threaded, PID: none, At: at + 1}, {Kind: target.Ended, PID: none, At: at + 2},
		{Kind: target.Unthreaded, PID: none, At: at + 9}, {Kind: target.Unthreaded, PID: none, At: at + 4},
	} {
		s.apply(&b)
	}
	if got := s.Gone(none, at, true); got != at+9 {
		t.Errorf("it ended %d ns after its birth, want 9", got-at)
	}
}

// TestNumberUsedAgain: the end and the CPU time of a process are known when its number belongs to another one.
func TestNumberUsedAgain(t *testing.T) {
	s := New(Options{Children: true, Once: true})
	defer s.Close()
	s.kin[10] = &kin{pid: 10}
	at := target.Now() - 1_000_000_000
	s.apply(&target.Birth{Kind: target.Born, PID: 11, Parent: 10, At: at})
	s.apply(&target.Birth{Kind: target.Ended, PID: 11, At: at + 5})
	s.lived(11, lifetime{born: at, gone: at + 5, used: 7})
	s.apply(&target.Birth{Kind: target.Born, PID: 11, Parent: 10, At: at + 20})
	if got := s.Gone(11, at, true); got != at+5 {
		t.Errorf("the first one ended at %d, want %d", got, at+5)
	}
	if got := s.CPU(11, at); got != 7 {
		t.Errorf("the first one used %d ns", got)
	}
	if got := s.Gone(11, at+20, false); got != 0 {
		t.Errorf("the second one ended at %d", got)
	}
	if got := s.CPU(11, at+20); got != 0 {
		t.Errorf("the second one used %d ns", got)
	}
	s.Missed(11, 10, "first", "a reason", at)
	if l := s.Left().Processes; len(l) != 2 || l[1].Born != at || l[1].Gone != at+5 || l[1].CPU != 7 {
		t.Errorf("left out: %+v", l)
	}
}
