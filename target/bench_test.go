package target

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/stack"
)

type series struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	P50  int64   `json:"p50"`
	P90  int64   `json:"p90"`
	P99  int64   `json:"p99"`
	P999 int64   `json:"p999"`
	Max  int64   `json:"max"`
	Net  int64   `json:"net999"` // P999 without the time that the thread waited for a CPU
	CPU  int64   `json:"cpu"`    // CPU time per stop of the process that makes it
}

func summarize(ns []int64) series {
	slices.Sort(ns)
	at := func(q float64) int64 { return ns[min(int(q*float64(len(ns))), len(ns)-1)] }
	s := series{N: len(ns), P50: at(.5), P90: at(.9), P99: at(.99), P999: at(.999), Max: ns[len(ns)-1]}
	for _, x := range ns {
		s.Mean += float64(x) / float64(len(ns))
	}
	return s
}

// BenchmarkCapture measures stops of one running thread, with 4 KiB of stack each, 1 ms apart.
func BenchmarkCapture(b *testing.B) {
	_, th, tr, w := benchTarget(b, "1")
	ns := make([]int64, 0, b.N)
	for range b.N {
		tr.SleepUntil(monotonic() + 1e6)
		capture(b, tr, th, w)
		ns = append(ns, int64(w.Resumed-w.Asked))
	}
	report(b, "stop", summarize(ns))
}

func benchTarget(b *testing.B, how string) (int, *Thread, *Tracer, *Window) {
	prog := start(b, build(b, "testdata/spin.c"), how)
	tid := 0
	fmt.Sscan(prog.line(), &tid)
	p := openProcess(b, prog.pid())
	th := openThread(b, p, tid)
	w := NewWindow(4096)
	w.StackDefault = 4096
	return tid, th, tracer(b), w
}

func report(b *testing.B, name string, s series) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(s.Mean/1e3, name+"-mean-µs")
	b.ReportMetric(float64(s.P50)/1e3, name+"-p50-µs")
	b.ReportMetric(float64(s.P99)/1e3, name+"-p99-µs")
	b.ReportMetric(float64(s.P999)/1e3, name+"-p999-µs")
}

// BenchmarkAgainstLoop alternates with the bare C loop of bench/cloop on one running thread, 30
// frames deep. It reports sliver's mean relative to the loop's two means, and sliver's 99.9th
// percentile under a garbage collection every 10 ms relative to that without: in total, without
// the time that the thread waited for a CPU (net), and for the C loop under the same collections.
// The CPU time of that loop is the minimum for a sample. A round of each is 20 stops 10 ms apart,
// or 50 stops 1 ms apart.
func BenchmarkAgainstLoop(b *testing.B) {
	for _, c := range []struct {
		name  string
		gap   int64 // ns
		stops int
	}{{"100Hz", 1e7, 20}, {"1kHz", 1e6, 50}} {
		b.Run(c.name, func(b *testing.B) { againstLoop(b, c.gap, c.stops) })
	}
}

// cell is an element of a heap that a garbage collection has to walk.
type cell struct {
	next *cell
	_    [7]uintptr
}

// heap returns about 8 MiB of cells, roughly the heap size of sliver during a recording.
func heap() (all *cell) {
	for range 8 << 20 / 64 {
		all = &cell{next: all}
	}
	return all
}

func againstLoop(b *testing.B, gap int64, stops int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The preceding part has lowered the priority of this thread, or of its creator.
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 0); err != nil {
		b.Skip("only root can run both in one program: -bench AgainstLoop/1kHz")
	}
	tid, th, tr, w := benchTarget(b, "deep")
	loop := exec.Command(build(b, "../bench/cloop/loop.c", "-O2"), fmt.Sprint(tid))
	in, err := loop.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := loop.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := loop.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewReader(out)
	held := heap()
	// As in a recording, collections have a lower priority than stops.
	if err := background.Lower(0, unix.Gettid()); err != nil {
		b.Fatal(err)
	}
	var ours, underGC, net, netGC []int64
	collected := 0
	// collecting runs f while collections take place.
	collecting := func(f func()) {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					runtime.GC()
					collected++
				case <-stop:
					return
				}
			}
		}()
		f()
		close(stop)
		<-done
	}
	round := func(to, toNet *[]int64) {
		for range stops {
			tr.SleepUntil(monotonic() + stack.Time(gap))
			capture(b, tr, th, w)
			var after Counters
			if err := th.Counters(&after); err != nil {
				b.Fatal(err)
			}
			pause := int64(w.Resumed - w.Asked)
			*to = append(*to, pause)
			*toNet = append(*toNet, pause-min(max(after.Delay-w.Counters.Delay, 0), pause))
		}
	}
	loopRound := func(how string) {
		fmt.Fprintf(in, "%s %d %d\n", how, stops, gap/1000)
		if s, err := lines.ReadString('\n'); err != nil || s != "ok\n" {
			b.Fatalf("loop: %q %v", s, err)
		}
	}
	for range b.N {
		loopRound("spin")
		loopRound("block")
		round(&ours, &net)
		collecting(func() { round(&underGC, &netGC) })
		collecting(func() { loopRound("under") })
	}
	runtime.KeepAlive(held)
	in.Close()
	var c struct{ Spin, Block, Under series }
	if err := json.NewDecoder(lines).Decode(&c); err != nil {
		b.Fatal(err)
	}
	if err := loop.Wait(); err != nil {
		b.Fatal(err)
	}
	s, g := summarize(ours), summarize(underGC)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(s.Mean/1e3, "ours-mean-µs")
	b.ReportMetric(c.Spin.Mean/1e3, "spin-mean-µs")
	b.ReportMetric(c.Block.Mean/1e3, "block-mean-µs")
	b.ReportMetric(float64(c.Spin.CPU)/1e3, "spin-cpu-µs")
	b.ReportMetric(float64(c.Block.CPU)/1e3, "block-cpu-µs")
	b.ReportMetric(s.Mean/c.Spin.Mean, "ours/spin")
	b.ReportMetric(s.Mean/c.Block.Mean, "ours/block")
	b.ReportMetric(float64(s.P50)/float64(c.Spin.P50), "ours/spin-p50")
	b.ReportMetric(float64(s.P50)/float64(c.Block.P50), "ours/block-p50")
	b.ReportMetric(float64(s.P999)/1e3, "ours-p999-µs")
	b.ReportMetric(float64(g.P999)/1e3, "gc-p999-µs")
	b.ReportMetric(float64(g.P999)/float64(s.P999), "gc/ours-p999")
	b.ReportMetric(float64(summarize(netGC).P999)/float64(summarize(net).P999), "gc/ours-net-p999")
	b.ReportMetric(float64(c.Under.P999)/1e3, "gc-spin-p999-µs")
	b.ReportMetric(float64(c.Under.P999)/float64(c.Spin.P999), "gc/spin-p999")
	b.ReportMetric(float64(c.Under.Net)/float64(c.Spin.Net), "gc/spin-net-p999")
	b.ReportMetric(float64(collected), "collections")
}
