package exporttest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Big returns a recording of about n events: threads that move through a program of 300
// functions, 10 to 40 frames deep, sampled every 10 ms, four samples in five on a CPU.
func Big(tb testing.TB, n, threads int) *trace.Recording {
	_, rec := big(tb, n, threads, 0, 40)
	return rec
}

// BigFile writes Big to a file. If varied is set, nearly all stacks differ.
func BigFile(tb testing.TB, path string, n, threads int, varied bool) {
	same := 40
	if varied {
		same = 1
	}
	b, _ := big(tb, n, threads, 0, same)
	if err := os.WriteFile(path, b.buf.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// Contended is Big with every second wait for one of eight locks.
func Contended(tb testing.TB, n, threads int) *trace.Recording {
	_, rec := big(tb, n, threads, 2, 40)
	return rec
}

// big: one call in same differs from the usual callee.
func big(tb testing.TB, n, threads int, locked int32, same int) (*Builder, *trace.Recording) {
	b := New(tb)
	end := int64(0)
	var lock [8]uint64
	for i := range lock {
		if locked == 0 {
			break
		}
		lock[i] = b.Wait(trace.Wait{Call: "futex", Args: fmt.Sprintf("mutex lock_%d", i), Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: fmt.Sprintf("lock_%d", i)})
	}
	for i := range threads {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		t := b.Thread(1234+i, fmt.Sprintf("worker-%d", i))
		var st []string
		push := func() {
			// Each function calls a few others at a few lines, mostly the same one.
			turn := func(n int) int { return max(r.IntN(same*n)-(same-1)*n, 0) }
			at := len(st) * 7
			if len(st) > 0 {
				fmt.Sscanf(st[len(st)-1], "f%d", &at)
			}
			st = append(st, fmt.Sprintf("f%d:%d", (at*5+1+turn(3))%300, 1+turn(4)))
		}
		for range 10 {
			push()
		}
		at, cpu, calls := int64(0), int64(0), int32(0)
		for t.Events() < n/threads {
			for k := r.IntN(4); k > 0 && len(st) > 8; k-- {
				st = st[:len(st)-1]
			}
			for k := r.IntN(4); k > 0 && len(st) < 40; k-- {
				push()
			}
			l := Look{At: at, CPU: cpu, State: stack.StateRunning, Pause: 30_000 + r.Int64N(20_000)}
			if r.IntN(5) == 0 {
				l.State, l.Call = stack.StateBlocked, 1+calls%7
				calls++
			} else {
				cpu += 9*Ms + r.Int64N(Ms)
			}
			behind := l.Call != 0 && locked > 0 && calls%locked == 0
			if behind {
				l.Call = 203
			}
			t.LookAt(l, st...)
			if behind {
				k := r.IntN(len(lock))
				t.Event(at, event.Wait, lock[k])
				t.Event(at, event.Lock, 0x404000+uint64(k)*64)
				t.Event(at, event.Holder, event.HolderOf(stack.TID(1234+r.IntN(threads)), event.KnownByWord))
			}
			if t.seen%500 == 0 {
				t.Sync()
			}
			at += 10*Ms + r.Int64N(Ms)
		}
		end = max(end, at)
	}
	return b, b.Finish(end)
}
