package session

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// recordJavaTurns records testdata/targets/java/Turns.java until it ends.
func recordJavaTurns(t *testing.T, version, kind string, waits int, interval time.Duration, flags ...string) (*trace.Recording, *turnsLog) {
	t.Helper()
	args := append(flags, "-Xmx32m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "Turns"), "Turns", kind, "5", fmt.Sprint(waits), "45")
	p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, version), args...))
	var said struct{ Threads []stack.TID }
	if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
		t.Fatal(err)
	}
	sel, err := sampler.ParseSelection("turn-*")
	if err != nil {
		t.Fatal(err)
	}
	l := &turnsLog{threads: said.Threads}
	return l.record(t, p, Options{Interval: interval, Jitter: .1, Selection: sel}), l
}

// owners counts how a recording names the owners of a lock.
type owners struct {
	waits, seen, known int // waits of 1 ms or longer; with a sample while another thread had the lock and kept it for 1 ms more; with an owner
	named, wrong       int // number of named owners; of those that cannot have had the lock
	other              int // samples of a blocked thread in such waits with another lock, or none
	causes             []string
}

func (o *owners) String() string {
	return fmt.Sprintf("%d waits of 1 ms, %d seen, owner known in %d; named %d times, %d wrong; %d samples without the lock%s",
		o.waits, o.seen, o.known, o.named, o.wrong, o.other, strings.Join(o.causes[:min(len(o.causes), 8)], ""))
}

// parking holds the times at which a thread was seen in Unsafe.park.
type parking struct {
	n  *trace.Names
	in [][2]stack.Time
}

func (p *parking) Begin(stack.Time, int, *trace.Slice) {}
func (p *parking) Other(event.Event)                   {}
func (p *parking) End(t stack.Time, _ int, s *trace.Slice) {
	if s.Loc.Word.Kind() == stack.KindJava && strings.HasSuffix(p.n.Func(&s.Frame).Name, "Unsafe.park") {
		p.in = append(p.in, [2]stack.Time{s.Entered, t})
	}
}

func (p *parking) at(t stack.Time) bool {
	return slices.ContainsFunc(p.in, func(x [2]stack.Time) bool { return x[0] <= t && t < x[1] })
}

// judgeOwners compares a recording with the log: a thread may have had the lock from
// the time the previous owner was about to release it until the next owner had it. is
// reports whether a description may be that of the lock. Some waits do not count. Until
// each thread has had the lock once, the threads also wait for the virtual machine's
// own locks while it links the code they call. A thread that parks for the lock may
// first wait for memory for its place in the queue, which the collector must free.
func judgeOwners(rec *trace.Recording, log *turnsLog, parked bool, is func(*trace.Wait) bool) *owners {
	const asked = stack.Time(time.Millisecond) // the read happened within this time before or after
	o := &owners{}
	holds := log.holds
	slices.SortFunc(holds, func(a, b turn) int { return int(a.from - b.from) })
	begun, first := stack.Time(0), map[stack.TID]bool{}
	for _, h := range holds {
		if !first[h.tid] {
			first[h.tid], begun = true, max(begun, h.to)
		}
	}
	had := func(tid stack.TID, at stack.Time) bool {
		i, _ := slices.BinarySearchFunc(holds, at, func(h turn, at stack.Time) int { return int(h.from - at) })
		for k := max(0, i-8); k < len(holds) && (k == 0 || holds[k-1].to <= at+asked); k++ {
			if holds[k].tid == tid && (k+1 == len(holds) || holds[k+1].from >= at-asked) {
				return true
			}
		}
		return false
	}
	// held: one thread had it during the whole time that a read for a sample at that time takes.
	held := func(at stack.Time) bool {
		i, found := slices.BinarySearchFunc(holds, at, func(h turn, at stack.Time) int { return int(h.from - at) })
		if !found {
			i--
		}
		return i >= 0 && holds[i].to >= at+asked
	}
	n := trace.NewNames(rec)
	for tid, k := range tracks(rec) {
		if !slices.Contains(log.threads, tid) {
			continue
		}
		parks := &parking{n: n}
		if i := slices.IndexFunc(rec.Threads, func(th trace.Thread) bool { return th.TID == tid }); parked && i >= 0 {
			rec.Replay(rec.Threads[i].Seq, n, parks)
		}
		for i := range k.pics {
			p := &k.pics[i]
			if p.holder == 0 || p.from < begun || !is(&p.wait) || i > 0 && k.pics[i-1].holder == p.holder && !p.fresh {
				continue
			}
			o.named++
			if p.by != event.KnownByRuntime || !had(p.holder, p.from) {
				o.wrong++
				var near []string // the owners around that time
				for _, h := range holds {
					if h.to > p.from-20*asked && h.from < p.from+20*asked {
						near = append(near, fmt.Sprintf("%d from %v to %v", h.tid, time.Duration(h.from-p.from), time.Duration(h.to-p.from)))
					}
				}
				o.causes = slices.Insert(o.causes, 0, fmt.Sprintf("\nthread %d at %d: holder %d, known by %v; had by %s", tid, p.from, p.holder, p.by, strings.Join(near, ", ")))
			}
		}
		for i := range log.waits {
			w := &log.waits[i]
			if w.tid != tid || w.from < max(k.first, begun) || w.to-w.from < stack.Time(time.Millisecond) {
				continue
			}
			o.waits++
			seen, known := false, false
			for j := range k.pics {
				p := &k.pics[j]
				if p.from > w.to {
					break
				}
				if p.from < w.from || p.state != stack.StateBlocked || w.to-p.from < asked {
					continue
				}
				if !seen && !is(&p.wait) && (j+1 == len(k.pics) || k.pics[j+1].from != p.from) {
					o.other++
				}
				seen = seen || held(p.from) && (is(&p.wait) || !parked || parks.at(p.from))
				known = known || p.holder != 0 && is(&p.wait)
			}
			if !seen {
				continue
			}
			o.seen++
			if known {
				o.known++
			} else {
				o.causes = append(o.causes, fmt.Sprintf("\nthread %d from %d to %d: no owner", tid, w.from, w.to))
			}
		}
	}
	return o
}

// TestJavaTurns: threads take turns with a monitor, and with locks of
// java.util.concurrent, whose objects move. No named owner may be wrong, and of the
// observed waits of 1 ms or longer 99 in 100 must have an owner.
func TestJavaTurns(t *testing.T) {
	testprog.Whole(t, "TestTurnsAreRecorded has the owners of monitors")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	type way struct {
		version, kind string
		flags         []string
	}
	waits := 500
	ways := []way{{"java17", "monitor", nil}, {"java25", "lock", nil}}
	if os.Getenv("SLIVER_LONG") != "" {
		waits = 10_000
		ways = nil
		for _, v := range []string{"java17", "java21", "java25"} {
			for _, k := range []string{"monitor", "lock"} {
				ways = append(ways, way{v, k, nil})
			}
			ways = append(ways, way{v, "fair", nil}, way{v, "write", nil}, way{v, "lock", []string{"-XX:+UseSerialGC"}}, way{v, "lock", []string{"-XX:+UseShenandoahGC"}},
				way{v, "lock", []string{"-XX:+UseZGC"}})
		}
		ways = append(ways, way{"java21", "lock", []string{"-XX:+UseZGC", "-XX:+ZGenerational"}}, way{"java25", "lock", []string{"-XX:+UseCompactObjectHeaders"}},
			way{"java25", "monitor", []string{"-XX:+UseCompactObjectHeaders"}})
	}
	for _, w := range ways {
		t.Run(w.version+"/"+w.kind+strings.Join(w.flags, ""), func(t *testing.T) {
			rec, log := recordJavaTurns(t, w.version, w.kind, waits, time.Millisecond, w.flags...)
			want, class := kind.LockSynchronizer, "java.util.concurrent.locks.Reentrant"
			if w.kind == "monitor" {
				want, class = kind.LockMonitor, "java.lang.StringBuilder"
			}
			o := judgeOwners(rec, log, w.kind != "monitor", func(d *trace.Wait) bool {
				return d.Lock == want && (d.LockType == "" || strings.HasPrefix(d.LockType, class))
			})
			locks := map[string]map[uint64]bool{}
			for _, k := range tracks(rec) {
				for i := range k.pics {
					if p := &k.pics[i]; p.wait.Lock == want && p.lock != 0 {
						if locks[p.wait.LockType] == nil {
							locks[p.wait.LockType] = map[uint64]bool{}
						}
						locks[p.wait.LockType][p.lock] = true
					}
				}
			}
			t.Log(o)
			for name, l := range locks {
				t.Logf("%s: %d addresses", name, len(l))
			}
			if o.seen < waits/4 || o.named < o.known {
				t.Errorf("%d of %d waits were seen", o.seen, o.waits)
			}
			if o.wrong > 0 {
				t.Errorf("%d of %d owners are wrong", o.wrong, o.named)
			}
			if (o.seen-o.known-2)*100 > o.seen {
				t.Errorf("the owner is known in %d of %d waits", o.known, o.seen)
			}
		})
	}
}
