package main

import (
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/wire"
)

// shopCode makes calls of handle_request, of which one in twenty waits for 30 ms.
const shopCode = `#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile long sum;
__attribute__((noinline)) static void query(void) {
	struct timespec t = {0, 30000000};
	nanosleep(&t, NULL);
	sum++;
}
__attribute__((noinline)) static void handle_request(int i) {
	for (int k = 0; k < 100000; k++) sum += k;
	if (i % 20 == 0) query();
	sum++;
}
int main(void) {
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (int i = 0; i < 4000; i++) { // half a minute at most
		handle_request(i);
		usleep(5000);
	}
}
`

// times counts the slices of a function on a page by begin and end. base is where the page's times count from.
func times(t *testing.T, url, function string, base stack.Time) map[[2]stack.Time]int {
	t.Helper()
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), client.View{T0: -1e18, T1: 1e18, Bin: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var fr *wire.Frame
	for fr == nil || fr.Type != wire.TypeView {
		if fr, err = w.Next(); err != nil {
			t.Fatal(err)
		}
	}
	out := map[[2]stack.Time]int{}
	for _, th := range fr.Threads {
		for _, r := range th.Rows {
			for _, x := range r.Items {
				if r.Depth < wire.FirstLane && w.Name(x.Value) == function {
					out[[2]stack.Time{base + stack.Time(x.Start), base + stack.Time(x.End)}] += int(x.Count)
				}
			}
		}
	}
	return out
}

// TestLiveTraced: in the end of a recording, of a process or of a command with its children, its live page has the calls
// that a page of the file has.
func TestLiveTraced(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.GCC(t, "shop", shopCode, "-O1", "-g")
	t.Run("process", func(t *testing.T) {
		p := testprog.Start(t, program)
		p.Ready()
		liveTraced(t, "-p", pidOf(p))
	})
	t.Run("command", func(t *testing.T) { liveTraced(t, "--", program) })
	t.Run("slower", func(t *testing.T) { liveTraced(t, "--slower", "20ms", "--", program) })
}

func liveTraced(t *testing.T, what ...string) {
	dir := t.TempDir()
	s := serve(t, dir, nil, append([]string{"record", "-i", "5ms", "-d", "2s", "--trace", "handle_request", "-o", "x.sliver", "--web"}, what...)...)
	s.until("the recording is complete", func() bool {
		var st client.Status
		if err := s.client().Ask(t.Context(), client.Query{Op: "status"}, &st); err != nil {
			t.Fatal(err)
		}
		return st.Done
	})
	s.until("the file is complete", func() bool { _, err := os.Stat(filepath.Join(dir, "x.sliver")); return err == nil })
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	if what[len(what)-2] == "--" { // a command goes on when its recording has ended
		t.Cleanup(func() { _ = syscall.Kill(rec.Process.PID, syscall.SIGKILL) })
	}
	live := times(t, s.url, "handle_request", rec.Process.Clocks.Monotonic)
	srv, err := web.Serve(t.Context(), web.Options{Source: web.NewRecording(rec)})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	var st client.Status
	for !st.Done {
		c, err := client.New(srv.URL())
		if err == nil {
			err = c.Ask(t.Context(), client.Query{Op: "status"}, &st)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := times(t, srv.URL(), "handle_request", rec.Begin())
	exact := map[[2]stack.Time]bool{}
	for c := range rec.Calls() {
		exact[[2]stack.Time{c.Enter, c.Exit}] = true
	}
	pages := map[string]map[[2]stack.Time]int{"the live page": maps.Clone(live), "the page of the file": maps.Clone(file)}
	for _, m := range []map[[2]stack.Time]int{live, file} { // samples alone show the others
		maps.DeleteFunc(m, func(k [2]stack.Time, _ int) bool { return !exact[k] })
	}
	around := func(k [2]stack.Time) { // shows what may have made the difference
		t.Logf("lost %d, dropped %d", rec.Traced.Lost, rec.Traced.Dropped)
		for page, m := range pages {
			for x, n := range m {
				if x[0] <= k[1]+20e6 && k[0]-20e6 <= x[1] {
					t.Logf("near it, %s has %d from %d to %d, exact: %v", page, n, x[0]-rec.Begin(), x[1]-rec.Begin(), exact[x])
				}
			}
		}
		for i := range rec.Threads {
			for e := range rec.Events(rec.Threads[i].Seq) {
				if e.Time <= k[1]+20e6 && k[0]-20e6 <= e.Time {
					t.Logf("thread %d, %d: %v", rec.Threads[i].TID, e.Time-rec.Begin(), e)
				}
			}
		}
	}
	for k, n := range file {
		if live[k] != n {
			t.Errorf("from %d to %d the file has %d slices, the live page %d", k[0]-rec.Begin(), k[1]-rec.Begin(), n, live[k])
			around(k)
		}
	}
	for k, n := range live {
		if file[k] == 0 {
			t.Errorf("from %d to %d the live page has %d slices, the file none", k[0]-rec.Begin(), k[1]-rec.Begin(), n)
			around(k)
		}
	}
	if t.Logf("%d calls", len(file)); len(file) < 5 {
		t.Error("too few calls")
	}
}
