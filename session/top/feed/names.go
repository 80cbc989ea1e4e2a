package feed

import (
	"context"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind/managed"
)

const (
	// maxPlaces limits the cache of names; beyond it, names are resolved again.
	maxPlaces = 1 << 18
	// tries is how often an unmapped address is looked up: the maps that the sampler last
	// read may be older than the code.
	tries = 3
)

// names resolves places asynchronously, so that the caller never waits for files. flush
// sends the requests to a separate goroutine, and the answer is available at the next
// call.
type names struct {
	r resolver

	mu     sync.Mutex
	waits  map[int]trace.Wait
	places map[place][]top.Frame // nil: requested, no answer yet
	fresh  []place
	queue  []place
	busy   bool
	idle   chan struct{} // replaced and closed whenever the queue is empty
	wake   chan struct{}
	stop   chan struct{}
	done   chan struct{}
}

type place struct {
	prog int
	word event.Word
}

func newNames(p *target.Process, t *live.Target, rts *live.Runtimes, o *Options) *names {
	no := naming.Options{Finder: live.Finder(p, o.DebugDirs, o.Finder), FullNames: o.FullNames, Cache: o.Cache}
	n := &names{
		r:     resolver{p: p, t: t, runtimes: rts, o: no, mapped: live.NewMapped(p)},
		waits: map[int]trace.Wait{}, places: map[place][]top.Frame{}, idle: make(chan struct{}),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	n.r.begin()
	go n.run()
	return n
}

// begin gets ready for the current program of the target.
func (r *resolver) begin() {
	r.files = naming.NewFiles[live.FileKey](runtime.GOARCH, 0, r.o)
	r.made, r.again, r.later = live.Made(r.p, func() *live.Target { return r.t }, r.o.FullNames), nil, nil
}

// wait implements live.Descriptions.Put.
func (n *names) wait(w trace.Wait) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waits[w.ID] = w
	return true
}

// Wait implements top.Names.
func (n *names) Wait(id int) (trace.Wait, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w, ok := n.waits[id]
	return w, ok
}

// Call implements top.Names.
func (n *names) Call(nr int32) string { return syscalls.Name(runtime.GOARCH, nr) }

// Frames implements top.Names.
func (n *names) Frames(prog int, w event.Word) []top.Frame {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := place{prog, w}
	fs, ok := n.places[k]
	if !ok {
		if len(n.places) >= maxPlaces {
			clear(n.places)
		}
		n.places[k] = nil
		n.fresh = append(n.fresh, k)
	}
	return fs
}

// flush sends the collected requests.
func (n *names) flush() {
	n.mu.Lock()
	n.queue = append(n.queue, n.fresh...)
	some := len(n.fresh) > 0
	n.fresh = n.fresh[:0]
	n.mu.Unlock()
	if some {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

func (n *names) run() {
	defer close(n.done)
	defer n.r.close()
	for {
		n.mu.Lock()
		asked := n.queue
		n.queue = nil
		n.busy = len(asked) > 0
		if !n.busy {
			close(n.idle)
			n.idle = make(chan struct{})
		}
		n.mu.Unlock()
		if len(asked) == 0 {
			select {
			case <-n.wake:
				continue
			case <-n.stop:
				return
			}
		}
		n.r.resolve(asked, n.answer)
		select {
		case <-n.stop:
			return
		default:
		}
	}
}

// answer stores a result; nil makes the next call request it again.
func (n *names) answer(p place, fs []top.Frame) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if fs == nil {
		delete(n.places, p)
		return
	}
	n.places[p] = fs
}

func (n *names) settle(ctx context.Context) {
	for {
		n.mu.Lock()
		idle, done := n.idle, !n.busy && len(n.queue) == 0
		n.mu.Unlock()
		if done {
			return
		}
		select {
		case <-idle:
		case <-n.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (n *names) close() {
	close(n.stop)
	<-n.done
}

// resolver looks up addresses of a process, for one goroutine.
type resolver struct {
	p        *target.Process
	t        *live.Target
	runtimes *live.Runtimes
	o        naming.Options
	mapped   *live.Mapped
	files    *naming.Files[live.FileKey]
	prog     int
	again    map[uint64]int // unmapped addresses: number of lookups so far

	made  naming.Made
	later []place // places that the program does not name yet
}

type question struct {
	place
	addr, vaddr uint64
}

// resolve answers each place.
func (r *resolver) resolve(asked []place, answer func(place, []top.Frame)) {
	slices.SortStableFunc(asked, func(a, b place) int { return a.prog - b.prog })
	for len(asked) > 0 {
		prog, n := asked[0].prog, 1
		for n < len(asked) && asked[n].prog == prog {
			n++
		}
		if prog > r.prog { // the target executed another program
			r.close()
			r.prog = prog
			r.begin()
		}
		if prog == r.prog {
			r.program(asked[:n], answer)
		} else {
			for _, p := range asked[:n] {
				answer(p, unnamed("", p.word.Lookup())) // that program is gone
			}
		}
		asked = asked[n:]
	}
}

// program answers places of the current program, grouped by file, as neighbouring lookups are fast.
func (r *resolver) program(asked []place, answer func(place, []top.Frame)) {
	maps := r.t.Maps()
	byFile := map[*live.MappedFile][]question{}
	for _, p := range asked {
		q := question{place: p, addr: p.word.Lookup()}
		i, ok := live.MappingAt(maps, q.addr)
		if !ok {
			if r.again == nil {
				r.again = map[uint64]int{}
			}
			if r.again[q.addr]++; r.again[q.addr] < tries {
				answer(p, nil)
			} else {
				answer(p, unnamed("[unknown]", q.addr))
			}
			continue
		}
		f := r.mapped.Of(&maps[i])
		if _, ok := managed.Named(f.Key.Path); ok {
			r.managed(p, f.Key.Path, answer)
			continue
		}
		if !f.Code() {
			r.ask(p, f.Key.Path, answer)
			continue
		}
		if q.vaddr, ok = f.Vaddr(&maps[i], q.addr); !ok {
			q.vaddr = q.addr - maps[i].Start + maps[i].Off
		}
		byFile[f] = append(byFile[f], q)
	}
	for f, qs := range byFile {
		r.names(f, qs, answer)
	}
}

func unnamed(module string, addr uint64) []top.Frame {
	return []top.Frame{{Func: trace.PlaceName(module, addr), Module: module}}
}

// names answers questions about one file. Its code is named by address if it has no names.
func (r *resolver) names(f *live.MappedFile, qs []question, answer func(place, []top.Frame)) {
	source := r.files.Source(f.Key, f.Key.Path, func() (io.ReaderAt, io.Closer, error) { return f.File, nil, nil })
	slices.SortFunc(qs, func(a, b question) int {
		switch {
		case a.vaddr < b.vaddr:
			return -1
		case a.vaddr > b.vaddr:
			return 1
		}
		return 0
	})
	var buf []symbol.Frame
	for _, q := range qs {
		buf = source.Frames(q.vaddr, buf[:0])
		fs := framesOf(f.Key.Path, buf)
		if len(fs) == 0 {
			fs = unnamed(f.Key.Path, q.vaddr)
		}
		answer(q.place, fs)
	}
}

// managed names a function of a managed runtime.
func (r *resolver) managed(p place, module string, answer func(place, []top.Frame)) {
	f, ok := r.runtimes.Find(p.word.Lookup())
	if !ok {
		answer(p, unnamed(module, p.word.Lookup()))
		return
	}
	answer(p, []top.Frame{{Func: f.Func, Module: module, File: f.File, Line: f.Line}})
}

// ask names code generated by the program. Places without a name are retried after the
// program's data has been read again.
func (r *resolver) ask(p place, path string, answer func(place, []top.Frame)) {
	if r.named(p, answer) {
		return
	}
	answer(p, unnamed(path, p.word.Lookup()))
	if len(r.later) < maxPlaces {
		r.later = append(r.later, p)
	}
	if r.made.Read() {
		r.later = slices.DeleteFunc(r.later, func(p place) bool { return r.named(p, answer) })
	}
}

func (r *resolver) named(p place, answer func(place, []top.Frame)) bool {
	found := r.made.Frames(p.word.Lookup(), nil)
	if len(found) > 0 {
		answer(p, framesOf("[jit]", found))
	}
	return len(found) > 0
}

// framesOf converts frames of a module to table frames.
func framesOf(module string, in []symbol.Frame) []top.Frame {
	out := make([]top.Frame, 0, len(in))
	for i := range in {
		out = append(out, top.Frame{Func: in[i].Func, Module: module, File: in[i].File, Line: in[i].Line, Inlined: in[i].Inlined})
	}
	return out
}

func (r *resolver) close() {
	r.files.Close()
	r.mapped.Close()
}
