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
