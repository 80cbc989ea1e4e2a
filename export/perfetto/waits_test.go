package perfetto

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Three threads and two locks: one whose word names its owner, and one without an owner,
// where the waker can only be inferred. The reader's result matches the recording.
func TestWaits(t *testing.T) {
	b := exporttest.New(t)
	cache := b.Wait(trace.Wait{Call: "futex", Args: "mutex cache_lock, timeout 1s", Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: "cache_lock",
		Module: "/opt/app/server", Timeout: 1e9})
	rust := b.Wait(trace.Wait{Call: "futex", Args: "mutex at 0x9000", Kind: "lock", Lock: "mutex", KnownBy: "function", NoHolder: "rust's mutex keeps no owner"})
	sock := b.Wait(trace.Wait{Call: "recvfrom", Args: "7 unix /run/db.sock", File: "unix /run/db.sock", Kind: "socket", Peer: "PID 77 (db)"})
	run, wait := stack.StateRunning, stack.StateBlocked
	main, one, two := b.Thread(1234, "main"), b.Thread(1240, "one"), b.Thread(1241, "two")

	main.Look(exporttest.Look{At: 0, State: run, Times: 1, Stack: "main:1 fill:2"})
	main.Look(exporttest.Look{At: 50 * ms, CPU: 50 * ms, Times: 1, State: run, Stack: "main:1 fill:3"})
	main.Look(exporttest.Look{At: 60 * ms, CPU: 58 * ms, Times: 2, State: wait, Call: 46, Stack: "main:1 librecv:1"})
	main.Event(60*ms, event.Wait, sock)
	main.Look(exporttest.Look{At: 100 * ms, CPU: 58 * ms, Times: 2, State: wait, Call: 46, Way: stack.WayUnrun})

	behind := func(th *exporttest.Thread, from, to int64) {
		th.Look(exporttest.Look{At: 0, State: run, Stack: "start:1 work:1"})
		th.Look(exporttest.Look{At: from, CPU: from, Times: 1, State: wait, Call: 203, Stack: "start:1 find:2 pthread_mutex_lock:1"})
		th.Event(from, event.Wait, cache)
		th.Event(from, event.Lock, 0x8000)
		th.Event(from, event.Holder, event.HolderOf(1234, event.KnownByWord))
		th.Look(exporttest.Look{At: to - ms, CPU: from, Times: 1, State: wait, Call: 203, Way: stack.WayUnrun})
		th.Look(exporttest.Look{At: to, CPU: from, Times: 2, State: run, Stack: "start:1 take:1"})
	}
	behind(one, 10*ms, 50*ms)
	behind(two, 20*ms, 52*ms)
	// two continues in take, which one now waits to enter.
	one.Look(exporttest.Look{At: 60 * ms, CPU: 20 * ms, Times: 3, State: wait, Call: 203, Stack: "start:1 take:3 pthread_mutex_lock:2"})
	one.Event(60*ms, event.Wait, rust)
	one.Event(60*ms, event.Lock, 0x9000)
	one.Look(exporttest.Look{At: 79 * ms, CPU: 20 * ms, Times: 3, State: wait, Call: 203, Way: stack.WayUnrun})
	one.Look(exporttest.Look{At: 80 * ms, CPU: 20 * ms, Times: 4, State: run, Stack: "start:1 take:4"})
	two.Look(exporttest.Look{At: 79 * ms, CPU: 47 * ms, Times: 2, State: run, Stack: "start:1 take:1"})
	two.Look(exporttest.Look{At: 80 * ms, CPU: 48 * ms, Times: 2, State: run, Stack: "start:1 rest:1"})
	rec := b.Finish(100 * ms)

	file := export(t, rec, view.Options{})
	a := exporttest.Ask(t, file,
		`select t.name thread, s.name, s.ts - 5000000000 ts, s.dur, p.name state, extract_arg(s.arg_set_id, 'debug.call') call, extract_arg(s.arg_set_id, 'debug.lock') lock,
			extract_arg(s.arg_set_id, 'debug.file') file, extract_arg(s.arg_set_id, 'debug.holder') holder 
			from slice s join thread_track k on k.id = s.track_id join thread t using (utid) join slice p on p.id = s.parent_id
			where s.category = 'wait' and s.dur > 0 order by thread, ts`,
		`select t.name thread, s.name, s.ts - 5000000000 ts, s.dur, extract_arg(s.arg_set_id, 'debug.cpu_us') cpu, extract_arg(s.arg_set_id, 'debug.switches') n
			from slice s join thread_track k on k.id = s.track_id join thread t using (utid) where k.name = 'state' and s.depth = 0 order by thread, ts`,
		`select wt.name waiter, o.name lock, ht.name holder, i.name, i.ts - 5000000000 ts
			from flow f join slice o on o.id = f.slice_out join slice i on i.id = f.slice_in
			join thread_track ok on ok.id = o.track_id join thread wt on wt.utid = ok.utid
			join thread_track ik on ik.id = i.track_id join thread ht on ht.utid = ik.utid order by ts, waiter`,
		`select k.name lane, s.name, s.ts - 5000000000 ts, s.dur from slice s join track k on k.id = s.track_id
			join track up on up.id = k.parent_id where up.name = 'locks' order by lane, ts`,
		`select k.name lane, c.ts - 5000000000 ts, c.value n from counter c join track k on k.id = c.track_id where k.name like 'waiting for %' order by lane, ts`)
	for i, want := range []string{
		"[map[call:recvfrom 7 unix /run/db.sock dur:42000000 file:unix /run/db.sock holder:<nil> lock:<nil> name:unix /run/db.sock to PID 77 (db) " +
			"state:blocked: recvfrom thread:main ts:58000000] " +
			"map[call:futex mutex cache_lock, timeout 1s dur:40000000 file:<nil> holder:main (1234), known by lock word " +
			"lock:mutex cache_lock at 0x8000 in /opt/app/server, known by layout name:mutex cache_lock state:blocked: futex thread:one ts:10000000] " +
			"map[call:<nil> dur:20000000 file:<nil> holder:two (1241), inferred lock:mutex at 0x9000, known by function name:mutex at 0x9000 " +
			"state:blocked: futex thread:one ts:60000000] " +
			"map[call:futex mutex cache_lock, timeout 1s dur:32000000 file:<nil> holder:main (1234), known by lock word " +
			"lock:mutex cache_lock at 0x8000 in /opt/app/server, known by layout name:mutex cache_lock state:blocked: futex thread:two ts:20000000]]",
		"",
		"[map[holder:main lock:mutex cache_lock name:lets go of mutex cache_lock ts:50000000 waiter:one] " +
			"map[holder:main lock:mutex cache_lock name:lets go of mutex cache_lock ts:52000000 waiter:two] " +
			"map[holder:two lock:mutex at 0x9000 name:lets go of mutex at 0x9000 (inferred) ts:80000000 waiter:one]]",
		"[map[dur:20000000 lane:mutex at 0x9000 name:wanted ts:60000000] map[dur:42000000 lane:mutex cache_lock name:held by main (1234), known by lock word ts:10000000]]",
		"[map[lane:waiting for mutex at 0x9000 n:1 ts:60000000] map[lane:waiting for mutex at 0x9000 n:0 ts:80000000] " +
			"map[lane:waiting for mutex cache_lock n:1 ts:10000000] map[lane:waiting for mutex cache_lock n:2 ts:20000000] " +
			"map[lane:waiting for mutex cache_lock n:1 ts:50000000] map[lane:waiting for mutex cache_lock n:0 ts:52000000]]",
	} {
		if got := fmt.Sprint(a[i]); want != "" && got != want {
			t.Errorf("answer %d\n%s\nwant\n%s", i, got, want)
		}
	}
	// CPU time before the wait was observed counts as running, and the state lasts as long as the CPU time says.
	for _, want := range []string{"map[cpu:58000 dur:58000000 n:1 name:running thread:main ts:0]", "map[cpu:<nil> dur:42000000 n:<nil> name:blocked: recvfrom thread:main ts:58000000]"} {
		found := false
		for _, r := range a[1] {
			found = found || fmt.Sprint(r) == want
		}
		if !found {
			t.Errorf("no state %s in %v", want, a[1])
		}
	}
	off := exporttest.Ask(t, export(t, rec, view.Options{Side: view.OffCPU}), calls)[0]
	for _, r := range off {
		if n := r.Text("name"); n == "fill" || n == "rest" || r.Int("dur") <= 0 {
			t.Errorf("off the CPUs: %v", r)
		}
	}
	if len(off) != 2+3*3 {
		t.Errorf("%d slices off the CPUs: %v", len(off), off)
	}
}
