package watch

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/flight"
	"github.com/sliverprof/sliver/watch/dumps"
)

// If several recorders start at once, one recovers the ring of a killed one.
func TestRecoveredOnce(t *testing.T) {
	const rounds, many, left = 5, 6, 3
	for range rounds {
		rings, folder := t.TempDir(), t.TempDir()
		for pid := 1; pid <= left; pid++ {
			m, err := ringfile.Create(RingFile(rings, "server", pid), ringfile.MinSize)
			if err != nil {
				t.Fatal(err)
			}
			r := flight.New(trace.Process{PID: pid, Comm: "server"}, flight.Options{Memory: m})
			s := r.Thread(trace.Thread{TID: stack.TID(pid), Name: "server", Main: true})
			s.Sample(&stack.Sample{Time: 1000})
			s.Flush()
			m.Close(false)
			if err := (&Watcher{o: Options{Store: &dumps.Store{Dir: folder}}}).owner().note(m.Path()); err != nil {
				t.Fatal(err)
			}
		}
		// Ring files of another recorder, of another folder, and without an owner.
		others := []string{RingFile(rings, "other", 1), RingFile(rings, "unknown", 1)}
		for _, path := range others {
			m, err := ringfile.Create(path, ringfile.MinSize)
			if err != nil {
				t.Fatal(err)
			}
			m.Close(false)
		}
		if err := (&Watcher{o: Options{Store: &dumps.Store{Dir: t.TempDir()}}}).owner().note(others[0]); err != nil {
			t.Fatal(err)
		}
		log := &lines{}
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for range many {
			w := &Watcher{o: Options{RingDir: rings, Store: &dumps.Store{Dir: folder}}, log: slog.New(slog.NewTextHandler(log, nil))}
			wg.Go(func() {
				<-begin
				w.recoverLeft()
			})
		}
		close(begin)
		wg.Wait()
		if got := log.with("msg="); len(got) != left || len(log.with("msg=recovered")) != left {
			t.Errorf("the logs say %q", got)
		}
		if rest, _ := os.ReadDir(rings); len(rest) != 3 {
			t.Errorf("ring files are left: %v", rest)
		}
		if got, _ := filepath.Glob(filepath.Join(folder, "*-recovered.sliver")); len(got) != left {
			t.Errorf("dumps: %v", got)
		}
	}
}

// Two recorders of one process have a ring file each, and a dead one's file is replaced.
func TestRingFiles(t *testing.T) {
	dir := t.TempDir()
	w := &Watcher{o: Options{RingDir: dir, KeepBytes: 1 << 20}, log: slog.New(slog.DiscardHandler)}
	x := &watched{pid: 12, name: "server"}
	for range 2 {
		first, err := w.memory(x)
		if err != nil {
			t.Fatal(err)
		}
		second, err := w.memory(x)
		if err != nil {
			t.Fatal(err)
		}
		if first.Path() != RingFile(dir, "server", 12) || second.Path() == "" || second.Path() == first.Path() {
			t.Errorf("files %q and %q", first.Path(), second.Path())
		}
		// A killed recorder's files remain, without a lock.
		first.Close(false)
		second.Close(false)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.ring")); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}
