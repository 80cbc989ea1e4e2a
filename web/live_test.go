package web_test

import (
	"context"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/wire"
)

// tally sums the frames of a client: how many calls ended at each depth.
type tally struct {
	ended map[[2]uint32]int
	gaps  int
	lost  int
}

func (a *tally) take(f *wire.Frame) {
	if f.Type == wire.TypeGap {
		a.gaps++
		return
	}
	if f.Type == wire.TypeView {
		a.ended = map[[2]uint32]int{}
	}
	for _, t := range f.Threads {
		a.lost += int(t.Lost)
		for _, r := range t.Rows {
			for _, x := range r.Items {
				if x.End < 1e300 && r.Depth < wire.FirstLane {
					a.ended[[2]uint32{t.Seq, r.Depth}] += int(x.Count)
				}
			}
		}
	}
}

func live(t *testing.T, threads int, o web.Options) (*synth.Feed, *web.Live, *web.Server) {
	t.Helper()
	f, err := synth.NewFeed(5, threads, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	l := web.NewLive(f.Rec, web.LiveOptions{Namer: synth.Namer{}, Poll: 2 * time.Millisecond})
	o.Source = l
	return f, l, serve(t, o)
}

// TestLiveAddsUp compares the frames of a live feed with a view of the whole timeline
// afterwards.
func TestLiveAddsUp(t *testing.T) {
	f, l, s := live(t, 4, web.Options{})
	w, err := dial(t, s).Watch(t.Context(), client.View{Follow: true, T0: -1e18, Bin: 5e6})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	var a tally
	named, more := false, 0
	for more < 25 || !named {
		fr, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if fr.Type == wire.TypeMore {
			more++
		}
		a.take(fr)
		for _, x := range w.Funcs {
			named = named || x.Name == "EventLoop::run()"
		}
	}
	stop()
	<-done
	l.End("target ended")
	for w.Status == nil || !w.Status.Done {
		fr, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		a.take(fr)
	}
	if w.Status.Reason != "target ended" || len(w.Status.Threads) != 4 || !w.Status.Threads[0].Ended {
		t.Errorf("status %+v", w.Status)
	}
	// A frame that was in transit when the end was reported.
	if err := w.Show(client.View{T0: -1e18, T1: 1e18, Bin: 1}); err != nil {
		t.Fatal(err)
	}
	var whole tally
	for {
		fr, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if fr.Type == wire.TypeView && fr.Bin == 1 {
			whole.take(fr)
			break
		}
		a.take(fr)
	}
	if a.lost != 0 || len(whole.ended) < 10 {
		t.Fatalf("%d lost, rows %v", a.lost, whole.ended)
	}
	for k, n := range whole.ended {
		if a.ended[k] != n {
			t.Errorf("thread %d depth %d: %d calls were told of, there are %d", k[0], k[1], a.ended[k], n)
		}
	}
}

// TestSharedAddsUp lets clients join one after another, with equal and different views of
// a live feed. Clients that have read equally far share frames. Each of them must still
// receive each call once, with its own view number.
func TestSharedAddsUp(t *testing.T) {
	f, l, s := live(t, 4, web.Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	all := client.View{Follow: true, T0: -1e18, Bin: 5e6}
	fine, two := all, all
	fine.Bin = 1
	two.Threads = []int{0, 2}
	views := []client.View{all, all, fine, all, two, all, two, all}
	tallies := make([]tally, len(views))
	watches := make([]*client.Watch, len(views))
	var more atomic.Int64 // frames that continued others
	var wg sync.WaitGroup
	for i, v := range views {
		w, err := dial(t, s).Watch(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		watches[i] = w
		first := make(chan struct{})
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; w.Status == nil || !w.Status.Done; n++ {
				fr, err := w.Next()
				if err != nil {
					t.Error(err)
					break
				}
				tallies[i].take(fr)
				if fr.Type == wire.TypeMore {
					more.Add(1)
				}
				if n == 0 {
					close(first)
				}
			}
		}()
		<-first
	}
	// Clients of one view converge and share frames.
	for begin := time.Now(); ; {
		n, made := more.Load(), s.Made()
		for more.Load() < n+80 {
			if runtime.Gosched(); time.Since(begin) > time.Minute {
				t.Fatalf("for %d frames %d were made", more.Load()-n, s.Made()-made)
			}
		}
		if s.Made()-made < 60 {
			break
		}
	}
	stop()
	<-done
	l.End("target ended")
	wg.Wait()
	var whole tally
	w := watches[0]
	if err := w.Show(client.View{T0: -1e18, T1: 1e18, Bin: 1}); err != nil {
		t.Fatal(err)
	}
	for whole.ended == nil {
		fr, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if fr.Type == wire.TypeView && fr.Bin == 1 {
			whole.take(fr)
		} else {
			tallies[0].take(fr)
		}
	}
	for i := range views {
		// A frame that was in transit when the end was reported.
		for n := 0; n < 100 && i > 0 && !tallies[i].same(&whole, views[i].Threads); n++ {
			fr, err := watches[i].Next()
			if err != nil {
				t.Fatalf("client %d: %v", i, err)
			}
			tallies[i].take(fr)
		}
		if !tallies[i].same(&whole, views[i].Threads) || tallies[i].lost > 0 {
			t.Errorf("client %d was told of %v, %d lost; there are %v", i, tallies[i].ended, tallies[i].lost, whole.ended)
		}
	}
}

// same reports whether a has the same calls as whole for these threads, nil: all.
func (a *tally) same(whole *tally, threads []int) bool {
	want := maps.Clone(whole.ended)
	maps.DeleteFunc(want, func(k [2]uint32, _ int) bool { return threads != nil && !slices.Contains(threads, int(k[0])) })
	return maps.Equal(a.ended, want)
}

// TestSlowClients: some clients never read. The others, and the recording, must not be
// affected.
func TestSlowClients(t *testing.T) {
	f, l, s := live(t, 8, web.Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	var wg sync.WaitGroup
	for range 5 {
		d := websocket.Dialer{Subprotocols: []string{wire.Protocol}, NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				err = c.(*net.TCPConn).SetReadBuffer(4096)
			}
			return c, err
		}}
		c, _, err := d.DialContext(t.Context(), "ws://"+s.Addr().String()+"/ws", http.Header{"X-Sliver-Token": {s.Token()}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.WriteMessage(websocket.TextMessage, []byte(`{"op":"view","id":1,"follow":true,"t0":-1e18,"bin":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	const good = 6
	for range good {
		wg.Add(1)
		go func() {
			defer wg.Done()
			w, err := dial(t, s).Watch(t.Context(), client.View{Follow: true, T0: -1e18, Bin: 1e6})
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()
			var a tally
			for range 30 {
				fr, err := w.Next()
				if err != nil {
					t.Error(err)
					return
				}
				a.take(fr)
			}
			if a.lost > 0 {
				t.Errorf("a client that reads was told of %d losses", a.lost)
			}
		}()
	}
	wg.Wait()
	stop()
	<-done
	st, err := f.Rec.Close(trace.Stats{Threads: []stack.ThreadStats{{TID: 4242}}}, trace.End{At: f.Now(), Reason: "test"})
	if err != nil || st.Threads[0].Overwritten != 0 {
		t.Errorf("the recording lost %d events: %v", st.Threads[0].Overwritten, err)
	}
	l.End("test")
}

// TestOverwrittenRing reads a ring too late: the loss is drawn as a gap, without
// half-known calls.
func TestOverwrittenRing(t *testing.T) {
	f, err := synth.NewFeed(6, 1, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	sink := f.Rec.Sinks()[0]
	th := f.Program.Thread(0)
	var x stack.Sample
	base := f.Now()
	for i := range 200_000 {
		th.Sample(base+stack.Time(i)*1_000_000, &x)
		sink.Sample(&x)
	}
	sink.End(base+200_000*1_000_000, stack.WhyGone)
	l := web.NewLive(f.Rec, web.LiveOptions{Poll: time.Hour})
	c := dial(t, serve(t, web.Options{Source: l}))
	l.End("over")
	var st client.Status
	for !st.Done {
		if err := c.Ask(t.Context(), client.Query{Op: "status"}, &st); err != nil {
			t.Fatal(err)
		}
	}
	if st.Held == 0 || st.Held > 20_000 {
		t.Errorf("%d slices of a ring of %d events", st.Held, trace.DefaultRingCap)
	}
	var tree client.Tree
	if err := c.Ask(t.Context(), client.Query{Op: "tree", From: 1}, &tree); err != nil {
		t.Fatal(err)
	}
	// Frames have no names here; the outermost function is always the same.
	roots := 0
	for i, p := range tree.Parent {
		if i > 0 && p == 0 {
			roots++
		}
	}
	if roots > 2 {
		t.Errorf("%d outermost functions: half-known stacks were drawn", roots)
	}
}

func TestRenamedThread(t *testing.T) {
	f, l, s := live(t, 2, web.Options{})
	f.Round()
	l.Renamed(4243, "new name")
	for {
		var st client.Status
		if err := dial(t, s).Ask(t.Context(), client.Query{Op: "status"}, &st); err != nil {
			t.Fatal(err)
		}
		for _, th := range st.Threads {
			if th.TID == 4243 && th.Name == "new name" {
				return
			}
		}
	}
}
