package exporttest

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Sample returns a small recording that covers every feature: two threads, inlined calls,
// a frame that moves, states, waits, pauses, gaps, a loss, an error frame, code without a
// symbol, and a thread that ends.
func Sample(tb testing.TB) *trace.Recording {
	b := New(tb)
	b.Inline("parse", 20, "scan", "next<char>")
	m := b.Thread(1234, "server")
	run, wait := stack.StateRunning, stack.StateBlocked
	m.Look(Look{At: 0, CPU: 0, State: run, Pause: 40_000, Stack: "main:3 serve:5"})
	m.Look(Look{At: 10 * Ms, CPU: 10 * Ms, State: run, Pause: 41_000, Stack: "main:3 serve:6 parse:20"})
	m.Look(Look{At: 20 * Ms, CPU: 20 * Ms, State: run, Pause: 42_000, Stack: "main:3 serve:6 parse:21"})
	m.Look(Look{At: 30 * Ms, CPU: 28 * Ms, State: wait, Call: 233, Pause: 43_000, Stack: "main:3 serve:7 libpoll:9"})
	m.Event(30*Ms, event.Wait, b.Wait(trace.Wait{Call: "epoll_wait", Args: "5 epoll of 12, timeout 1s", File: "epoll of 12", Kind: "poll", Timeout: 1e9}))
	m.Look(Look{At: 40 * Ms, CPU: 28 * Ms, State: wait, Call: 233, Way: stack.WayUnrun})
	m.Look(Look{At: 50 * Ms, CPU: 28 * Ms, State: wait, Call: 233, Way: stack.WayUnrun})
	m.Gap(80*Ms, stack.WhyLate, 20*Ms)
	m.Look(Look{At: 90 * Ms, CPU: 40 * Ms, State: run, Pause: 44_000, Stack: "main:3 serve:8 ?0x7f0000123456"})
	m.Look(Look{At: 100 * Ms, CPU: 50 * Ms, State: run, Pause: 45_000, Stack: "!2 libdeep:4"})
	m.Event(101*Ms, event.Rate, 20*Ms)
	m.Look(Look{At: 120 * Ms, CPU: 60 * Ms, State: run, Pause: 46_000, Stack: "main:3 serve:5"})

	w := b.Thread(1240, "worker-1")
	w.Look(Look{At: 5 * Ms, CPU: 0, State: run, Pause: 30_000, Stack: "start:1 loop:2 hash:3"})
	w.Look(Look{At: 15 * Ms, CPU: 9 * Ms, State: run, Pause: 30_000, Stack: "start:1 loop:2 hash:4"})
	w.Lose(15 * Ms)
	w.Look(Look{At: 45 * Ms, CPU: 40 * Ms, State: run, Stack: "start:1 loop:3"})
	w.Sync()
	w.Look(Look{At: 55 * Ms, CPU: 50 * Ms, State: run, Pause: 30_000, Stack: "start:1 loop:3 hash:3"})
	w.Look(Look{At: 65 * Ms, CPU: 50 * Ms, State: wait, Call: 203, Pause: 30_000, Stack: "start:1 loop:4 liblock:8"})
	w.Event(65*Ms, event.Wait, b.Wait(trace.Wait{Call: "futex", Args: "mutex cache_lock", Kind: "lock", Lock: "mutex", KnownBy: "layout",
		Symbol: "cache_lock", Module: "/opt/app/server"}))
	w.Event(65*Ms, event.Lock, 0xdead00)
	w.Event(65*Ms, event.Holder, event.HolderOf(1234, event.KnownByWord))
	w.Look(Look{At: 75 * Ms, CPU: 50 * Ms, State: run, Stack: "start:1 loop:5"})
	w.End(80*Ms, stack.WhyGone)
	b.Stats.Threads[0].Late = 2
	b.Stats.Threads[0].Truncated = 1
	b.Stats.Pause = stack.Pauses{Count: 12, Mean: 38_000, P99: 46_000, Max: 46_000}
	return b.Finish(125 * Ms)
}
