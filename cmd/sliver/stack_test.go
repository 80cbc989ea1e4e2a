package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// look decodes the document of docs/stack-json.md.
type look struct {
	Version int
	PID     int
	Name    string
	Threads []struct {
		TID    int
		Name   string
		State  string
		CPU    *int64 `json:"cpu_ns"`
		Frames []struct {
			Func string
			File string
			Line int
			Kind string
		}
		Wait *struct {
			Kind string
			Call string
			Lock *struct {
				Addr    string
				Kind    string
				Symbol  string
				Holder  int    `json:"holder_tid"`
				KnownBy string `json:"holder_known_by"`
			}
		}
	}
	Deadlocks []struct {
		Threads []struct{ PID, TID int }
	}
	Convoys []struct {
		Waiters []struct{ TID int }
		Lock    struct {
			Holder int `json:"holder_tid"`
		}
		HolderFrames []struct{ Func string } `json:"holder_frames"`
	}
}

// locks starts a program of testdata/targets/locks and reads its output.
func locks(t *testing.T, program string, to any, args ...string) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "locks/"+program, "O2"), args...)
	if err := json.Unmarshal([]byte(p.Line("{")), to); err != nil {
		t.Fatal(err)
	}
	return p
}

// stackUntil runs sliver stack --json until the result satisfies ok: the program
// announces that its threads are about to wait, not that they do.
func stackUntil(t *testing.T, ok func(*look) bool, args ...string) (l look, last result) {
	t.Helper()
	waitFor(t, func() bool {
		last = sliver(t, t.TempDir(), append([]string{"stack", "--json"}, args...)...)
		l = look{}
		if err := json.Unmarshal([]byte(last.out), &l); err != nil {
			t.Fatalf("%v: %+v", err, last)
		}
		return ok(&l)
	})
	return l, last
}

func TestStackDeadlock(t *testing.T) {
	var said struct {
		Threads []int
		Locks   []string
	}
	p := locks(t, "deadlock", &said)
	l, r := stackUntil(t, func(l *look) bool { return len(l.Deadlocks) == 1 }, "--fail-on-deadlock", pidOf(p))
	if r.status != 3 || r.errors != "" {
		t.Errorf("status %d, %q; want 3", r.status, r.errors)
	}
	d := l.Deadlocks[0].Threads
	if l.Version != 1 || l.PID != p.PID || l.Name != "deadlock" || len(l.Threads) != 4 || len(d) != 3 {
		t.Fatalf("%+v", l)
	}
	for i := range d {
		me := slices.Index(said.Threads, d[i].TID)
		if me < 0 || d[(i+1)%3].TID != said.Threads[(me+1)%3] || d[i].PID != p.PID {
			t.Errorf("the circle %v, want %v", d, said.Threads)
		}
	}
	for _, th := range l.Threads {
		me := slices.Index(said.Threads, th.TID)
		if me < 0 {
			continue
		}
		if th.Wait == nil || th.Wait.Lock == nil || th.State != "blocked" || th.Wait.Kind != "lock" || th.Wait.Call != "futex" || th.CPU == nil {
			t.Fatalf("%+v", th)
		}
		if w := th.Wait.Lock; w.Addr != said.Locks[(me+1)%3] || w.Kind != "mutex" || !strings.HasPrefix(w.Symbol, "ring") ||
			w.Holder != said.Threads[(me+1)%3] || w.KnownBy != "lock word" {
			t.Errorf("%d waits for %+v", th.TID, w)
		}
	}
	// The same as text, and status 0 without --fail-on-deadlock.
	r = sliver(t, t.TempDir(), "stack", pidOf(p))
	if r.status != 0 || !strings.Contains(r.out, "DEADLOCK of 3 threads") || !strings.Contains(r.out, "lock_next") || !strings.Contains(r.out, "deadlock.c:") {
		t.Errorf("status %d:\n%s", r.status, r.out)
	}
	for i, tid := range said.Threads {
		if want := fmt.Sprintf("held by TID %d", said.Threads[(i+1)%3]); strings.Count(r.out, want) < 2 {
			t.Errorf("%d: no %q in\n%s", tid, want, r.out)
		}
	}
	free(t, p.PID)
}

func TestStackConvoy(t *testing.T) {
	var said struct {
		Holder  int
		Waiters []int
	}
	p := locks(t, "pthread", &said, "normal", "50")
	l, r := stackUntil(t, func(l *look) bool { return len(l.Convoys) == 1 && len(l.Convoys[0].Waiters) == 50 }, "--fail-on-deadlock", pidOf(p))
	c := l.Convoys[0]
	if r.status != 0 || c.Lock.Holder != said.Holder || len(c.HolderFrames) == 0 || len(l.Deadlocks) != 0 {
		t.Errorf("status %d, %+v; holder %d", r.status, c, said.Holder)
	}
	if !slices.ContainsFunc(c.HolderFrames, func(f struct{ Func string }) bool { return f.Func == "hold" }) {
		t.Errorf("the holder's stack: %+v", c.HolderFrames)
	}
	if r = sliver(t, t.TempDir(), "stack", "-t", "main", pidOf(p)); r.status != 0 || strings.Count(r.out, "\n\"") != 1 ||
		!strings.Contains(r.out, "CONVOY of 50 threads") {
		t.Errorf("-t main: %d\n%s", r.status, r.out)
	}
	free(t, p.PID)
	p.Go()
	if st := p.Wait(); !st.Success() {
		t.Errorf("the program ended with %v", st)
	}
}

// Several processes: a document for each, and deadlocks over shared locks.
func TestStackAcross(t *testing.T) {
	var said struct{ Threads []int }
	locks(t, "shared", &said)
	args := []string{"stack", "--json", "--fail-on-deadlock", fmt.Sprint(said.Threads[0]), fmt.Sprint(said.Threads[1]), fmt.Sprint(said.Threads[0])}
	var r result
	waitFor(t, func() bool { r = sliver(t, t.TempDir(), args...); return r.status == 3 })
	d := json.NewDecoder(bytes.NewReader([]byte(r.out)))
	for i := range said.Threads {
		var l look
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if l.PID != said.Threads[i] || len(l.Deadlocks) != 1 || len(l.Deadlocks[0].Threads) != 2 {
			t.Errorf("%+v", l)
		}
	}
	if d.More() {
		t.Error("a process twice")
	}
}

func TestStackBadInput(t *testing.T) {
	p := spin(t)
	pid := pidOf(p)
	var many strings.Builder
	for i := range 65 {
		fmt.Fprintf(&many, " %d", i+1)
	}
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"stack", 2, "give a process number"},
		{"stack x", 2, `invalid PID "x"`},
		{"stack -1", 2, "-1 is not a PID, TID or flag"},
		{"stack 0", 2, "invalid PID"},
		{"stack " + pid + " y", 2, `invalid PID "y"`},
		{"stack 4194303", 1, "no process 4194303"},
		{"stack " + pid + " 4194303", 1, "no process 4194303"},
		{"stack -t /(/ " + pid, 2, "threads:"},
		{"stack -t nosuch " + pid, 1, `no thread of process ` + pid + ` matches "nosuch"; there are: 1=spin`},
		{"stack --frob " + pid, 2, "unknown flag: --frob"},
		{"stack" + many.String(), 2, "65 processes are too many"},
	} {
		r := sliver(t, t.TempDir(), strings.Fields(c.args)...)
		if r.status != c.status || !strings.Contains(r.errors, c.says) || strings.Count(r.errors, "\n") != 1 || r.out != "" {
			t.Errorf("sliver %s: status %d, %q, %q; want %d and %q", c.args, r.status, r.errors, r.out, c.status, c.says)
		}
	}
	free(t, p.PID)
}
