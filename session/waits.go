package session

import (
	"sync"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/trace"
)

// waits records what threads wait for. Samplers only queue it: a separate goroutine
// writes the file.
type waits struct {
	live  *live.Target
	rec   notebook
	known live.Descriptions
	vars  *live.Variables
	queue chan trace.Wait // never closed: a sampler may send until the very end
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu  sync.Mutex
	all map[int]trace.Wait // guarded by mu
}

// waitsBacklog bounds the queue of new descriptions; that of each of several processes, waitsOfOne. One that does not
// fit is queued again with the next sample of the wait.
const (
	waitsBacklog = 512
	waitsOfOne   = 64
)

// newWaits begins to record waits. If eager, the names of variables are read at once, otherwise
// when a wait needs them.
func newWaits(t *live.Target, r notebook, debugDirs []string, eager bool) *waits {
	backlog := waitsBacklog
	if !eager {
		backlog = waitsOfOne
	}
	w := &waits{live: t, rec: r, vars: t.Variables(debugDirs), queue: make(chan trace.Wait, backlog),
		stop: make(chan struct{}), done: make(chan struct{}), all: map[int]trace.Wait{}}
	w.known.Put = func(d trace.Wait) bool {
		select {
		case w.queue <- d:
			return true
		default:
			return false
		}
	}
	if eager {
		w.vars.Preload()
	}
	go w.run()
	return w
}

// group implements sampler.Config.Waits.
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

// rest appends the current content of the queue.
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

// settle writes the rest of the queue; later descriptions are dropped.
func (w *waits) settle() {
	w.once.Do(func() { close(w.stop) })
	<-w.done
	w.vars.Close()
}
