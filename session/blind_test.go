package session

import (
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// stacksLog records stacks by duration, root first.
type stacksLog struct {
	n     *trace.Names
	stack []string
	begun stack.Time
	times map[string]time.Duration
}

func (l *stacksLog) note(at stack.Time) {
	if len(l.stack) > 0 {
		l.times[strings.Join(l.stack, " ")] += time.Duration(at - l.begun)
	}
	l.begun = at
}

func (l *stacksLog) Begin(at stack.Time, depth int, s *trace.Slice) {
	l.note(at)
	l.stack = append(l.stack[:depth], l.n.Func(&s.Frame).Name)
}

func (l *stacksLog) End(at stack.Time, depth int, _ *trace.Slice) {
	l.note(at)
	l.stack = l.stack[:depth]
}

func (l *stacksLog) Other(event.Event) {}

// A thread that sleeps in a call which a stop would lengthen must not be stopped. With
// frame pointers its stack must still be complete. If that is impossible, no frame may
// be invented, and the callers must remain.
func TestBlindFrames(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	for _, variant := range []string{"O0", "O2fp"} {
		t.Run(variant, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "c/naps", variant), "--wait-go")
			p.Ready()
			p.Go()
			rec := recordUntil(t, p.PID, 10*time.Millisecond, func(s stack.ThreadStats) bool { return s.Samples > 150 })
			l := &stacksLog{n: trace.NewNames(rec), times: map[string]time.Duration{}}
			rec.Replay(rec.Threads[0].Seq, l.n, l)
			var dozing, dreaming, others time.Duration
			for s, d := range l.times {
				if i := strings.LastIndex(s, "main "); i >= 0 {
					s = s[i+len("main "):]
				}
				switch {
				case s == "night doze epoll_wait":
					dozing += d
				case strings.HasPrefix(s, "night ") && strings.HasSuffix(s, "dream epoll_wait"):
					dreaming += d // with or without a mark for unknown frames
				default:
					others += d
					t.Logf("%v in %q", d, s)
				}
			}
			t.Logf("dozing %v, dreaming %v, else %v", dozing, dreaming, others)
			if all := dozing + dreaming + others; dozing < all/2 || dreaming < all/5 || others > all/10 {
				t.Errorf("dozing %v, dreaming %v, else %v; want two thirds, one third and next to nothing", dozing, dreaming, others)
			}
		})
	}
}
