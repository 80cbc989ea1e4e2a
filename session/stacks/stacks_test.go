package stacks

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/graph"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

var update = flag.Bool("update", false, "write the golden files anew")

func mutex(addr uint64, symbol string, holder stack.TID) *wait.Info {
	l := &wait.Lock{Lock: lock.Lock{Addr: addr, Word: addr, Kind: kind.LockMutex, Type: "recursive", Impl: "glibc", Basis: lock.ByLayout,
		Holder: lock.Holder{TID: holder, By: event.KnownByWord}}, Symbol: symbol, Key: wait.Key{PID: 50, Addr: addr}}
	return &wait.Info{Kind: kind.WaitLock, Nr: 202, Call: "futex", Args: l.String(), Lock: l}
}

func fixture() *Snapshot {
	frames := []Frame{
		{Addr: 0x7f0000001234, Func: "pthread_mutex_lock", Offset: 0x34, Module: "/lib/libc.so.6", BuildID: "ab01", Trust: stack.TrustRegs},
		{Addr: 0x401010, Func: "cache_find", Module: "/bin/x", File: "cache.h", Line: 7, Inlined: true, Trust: stack.TrustCFI},
		{Addr: 0x401010, Func: "cache_get", Offset: 0x10, Module: "/bin/x", File: "cache.c", Line: 42, Trust: stack.TrustCFI},
		{Addr: 0x500000, Trust: stack.TrustScan},
	}
	var threads []Thread
	for i := range stack.TID(4) { // behind 51's lock
		threads = append(threads, Thread{TID: 60 + i, Name: "worker", State: stack.StateBlocked, CPU: 5e6, Wait: mutex(0x1000, "cache_lock", 51), Frames: frames})
	}
	threads = append(threads,
		Thread{TID: 51, Name: "a\x1b[2J", State: stack.StateBlocked, CPU: 1234567890, Wait: mutex(0x2000, "", 52), Frames: frames[:2], Truncated: stack.ReasonShort},
		Thread{TID: 52, Name: "b", State: stack.StateBlocked, CPU: -1, Wait: mutex(0x1000, "cache_lock", 51)},
		Thread{TID: 50, Name: "main", State: stack.StateBlocked, CPU: 1e9, Wait: &wait.Info{Kind: kind.WaitSocket, Call: "read",
			Args: "7 tcp 10.0.0.5:5432 established, 4096 bytes", File: "tcp 10.0.0.5:5432 established", Peer: "10.0.0.5:5432"}, Frames: frames[2:3]},
		Thread{TID: 53, Name: "cond", State: stack.StateBlocked, CPU: 0, Wait: &wait.Info{Kind: kind.WaitLock, Call: "futex", Args: "condition variable at 0x3000, timeout 1s",
			Timeout: time.Second, Lock: &wait.Lock{Lock: lock.Lock{Addr: 0x3000, Kind: kind.LockCond, Basis: lock.ByFunction, Mutex: 0x3040,
				Holder: lock.Holder{Why: "a condition variable has no holder"}}}}},
		Thread{TID: 54, Name: "run", State: stack.StateRunning, CPU: 77e9, Frames: frames[2:3]},
		Thread{TID: 55, Name: "lost", State: stack.StateBlocked, CPU: 0, Wait: &wait.Info{Kind: kind.WaitFile, Call: "openat", Why: "the path at 0x10 cannot be read"}},
	)
	return New(50, "server", time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), threads, nil, nil, 4)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew):\n%s", path, got)
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := fixture().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), 0x1b) {
		t.Error("an escape character gets through")
	}
	golden(t, "snapshot.txt", b.String())
}

// Unreadable goroutines are reported, even without other goroutines.
// TestNoStack: nothing goes on where nothing was read.
func TestNoStack(t *testing.T) {
	for _, c := range []struct {
		frames []Frame
		want   string
	}{
		{nil, "      the stack could not be read\n"},
		{[]Frame{{Func: "f"}}, "      f\n      the stack goes on: no stack\n"},
	} {
		var out strings.Builder
		b := bufio.NewWriter(&out)
		new(Snapshot).frames(b, c.frames, stack.ReasonEmpty)
		if err := b.Flush(); err != nil || out.String() != c.want {
			t.Errorf("%v, %q, want %q", err, out.String(), c.want)
		}
	}
}

func TestUnread(t *testing.T) {
	for _, c := range []struct {
		s    Snapshot
		text string
		json string
	}{
		{Snapshot{}, "", ""},
		{Snapshot{Goroutines: []Goroutine{{ID: 1, Status: "waiting", For: -1}}}, "1 goroutine\n", ""},
		{Snapshot{Goroutines: []Goroutine{{ID: 1, Status: "waiting", For: -1}}, Unread: 2}, "1 goroutine, 2 more could not be read\n", `"goroutines_unread": 2`},
		{Snapshot{Unread: 2}, "0 goroutines, 2 more could not be read\n", `"goroutines_unread": 2`},
	} {
		var text, doc strings.Builder
		if err := errors.Join(c.s.WriteText(&text), c.s.WriteJSON(&doc)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), c.text) || strings.Contains(text.String(), "goroutine") != (c.text != "") {
			t.Errorf("%+v: %q", c.s, text.String())
		}
		if !strings.Contains(doc.String(), c.json) || strings.Contains(doc.String(), "unread") != (c.json != "") {
			t.Errorf("%+v: %s", c.s, doc.String())
		}
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := fixture().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "snapshot.json", b.String())
	// The field names that the documentation promises.
	doc, err := os.ReadFile("../../docs/stack-json.md")
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal([]byte(b.String()), &v); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	collect(v, names)
	if len(names) < 40 {
		t.Errorf("only %d names", len(names))
	}
	for n := range names {
		if !strings.Contains(string(doc), "`"+n+"`") {
			t.Errorf("docs/stack-json.md lacks %s", n)
		}
	}
}

func collect(v any, names map[string]bool) {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			names[k] = true
			collect(e, names)
		}
	case []any:
		for _, e := range x {
			collect(e, names)
		}
	}
}

func TestNew(t *testing.T) {
	s := fixture()
	if !slices.IsSortedFunc(s.Threads, func(a, b Thread) int { return int(a.TID) - int(b.TID) }) {
		t.Error("not sorted")
	}
	if len(s.Deadlocks) != 1 || len(s.Deadlocks[0].Threads) != 2 || s.Deadlocks[0].Threads[0].TID != 51 {
		t.Errorf("deadlocks %+v", s.Deadlocks)
	}
	if len(s.Convoys) != 1 || len(s.Convoys[0].Waiters) != 5 || s.Convoys[0].Lock.Holder.TID != 51 {
		t.Errorf("convoys %+v", s.Convoys)
	}
	// A deadlock across processes over shared locks belongs to both; one between other processes
	// belongs to neither.
	other := func(tid, holder stack.TID) graph.Thread {
		return graph.Thread{PID: 90, TID: tid, Info: mutex(0x9000, "", holder)}
	}
	across := New(50, "x", time.Time{}, []Thread{{TID: 50, Wait: mutex(0x1, "", 90)}}, []graph.Thread{other(90, 50), other(91, 92), other(92, 91)}, nil, 0)
	if len(across.Deadlocks) != 1 || len(across.Deadlocks[0].Threads) != 2 || across.Deadlocks[0].Threads[1].PID != 90 {
		t.Errorf("%+v", across.Deadlocks)
	}
	if none := New(50, "x", time.Time{}, s.Threads, nil, func(*graph.Thread) bool { return false }, 0); len(none.Deadlocks) != 0 {
		t.Errorf("%+v", none.Deadlocks)
	}
}
