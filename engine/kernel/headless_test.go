package kernel

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// log yields what an engine reads of one thread.
type log struct {
	tid   stack.TID
	yield func(string)
}

func (l *log) Hit(h *calls.Hit) {
	l.tid = h.TID
	l.yield(fmt.Sprint(h.Fn, " ", map[calls.Where]string{calls.Enter: "enter", calls.Return: "return"}[h.Where]))
}
func (l *log) Lost(uint64) { l.yield("lost") }
func (l *log) Gone(tid stack.TID, _ stack.Time) {
	if tid == l.tid {
		l.yield("gone")
	}
}

// TestHeadless: calls of a process whose first thread has ended are seen, and the end of another thread in a call.
func TestHeadless(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	if err := Check(); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	path := testprog.Build(t, "c/headless", "O2")
	p := testprog.Start(t, path, "goes")
	p.Ready()
	for {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), ") Z ") {
			break
		}
		<-time.After(time.Millisecond)
	}
	probes := places(t, path, "told", false)
	for _, p := range places(t, path, "leaves", false) {
		p.Fn = 1
		probes = append(probes, p)
	}
	e, err := Open(p.PID, probes)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p.Go()
	p.Wait()
	var got []string
	e.Read(target.Now(), &log{yield: func(s string) { got = append(got, s) }}, true)
	if want := []string{"0 enter", "0 return", "1 enter", "gone"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}
