package session

import (
	"sync"

	"github.com/sliverprof/sliver/live"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/trace"
)

// waits notes what threads wait for in the recording. Samplers only hand it
// on: the file is written by a goroutine of its own.
type waits struct {
	live  *live.Target
	rec   notebook
	known live.Descriptions
	vars  *live.Variables
	queue chan trace.Wait // never closed: a sampler may be at work to the very end
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu  sync.Mutex
	all map[int]trace.Wait // guarded by mu
}

// waitsBacklog is how many new descriptions may wait to be written.
const waitsBacklog = 512

func newWaits(t *live.Target, r notebook, debugDirs []string) *waits {
	w := &waits{live: t, rec: r, vars: t.Variables(debugDirs), queue: make(chan trace.Wait, waitsBacklog),
		stop: make(chan struct{}), done: make(chan struct{}), all: map[int]trace.Wait{}}
	w.known.Put = func(d trace.Wait) bool {
		select {
		case w.queue <- d:
			return true
		default:
			return false
		}
	}
	w.vars.Preload()
	go w.run()
	return w
}

// group is sampler.Config.Waits.
func (w *waits) group(wake func()) sampler.Waits { return w.live.Waits(&w.known, w.vars, wake) }

func (w *waits) run() {
	defer close(w.done)
	for {
		select {
		case d := <-w.queue:
			w.write(w.rest([]trace.Wait{d}))
		case <-w.stop:
			if left := w.rest(nil); len(left) > 0 {
				w.write(left)
			}
			return
		}
	}
}

func (w *waits) write(batch []trace.Wait) {
	w.mu.Lock()
	for _, d := range batch {
		w.all[d.ID] = d
	}
	w.mu.Unlock()
	w.rec.Waits(batch)
}

func (w *waits) lookup(id int) (trace.Wait, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.all[id]
	return d, ok
}

// rest appends what is in the queue now.
func (w *waits) rest(batch []trace.Wait) []trace.Wait {
	for {
		select {
		case d := <-w.queue:
			batch = append(batch, d)
		default:
			return batch
		}
	}
}

// settle writes what is left; what comes later is dropped.
func (w *waits) settle() {
	w.once.Do(func() { close(w.stop) })
	<-w.done
	w.vars.Close()
}
