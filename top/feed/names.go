package feed

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/live"
	"github.com/sliverprof/sliver/naming"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/top"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/wait/syscalls"
)

const (
	// maxPlaces bounds the names that are kept; above it they are asked anew.
	maxPlaces = 1 << 18
	// tries is how often an address in no mapping is looked up: the maps as the
	// sampler last read them may be older than the code.
	tries = 3
)

// names finds the names of places. What is asked goes through flush to a
// goroutine of its own, so that nobody waits for files; the answer is there
// the next time.
type names struct {
	r resolver

	mu     sync.Mutex
	waits  map[int]trace.Wait
	places map[place][]top.Frame // nil: asked, no answer yet
	fresh  []place
	queue  []place
	busy   bool
	idle   chan struct{} // replaced and closed whenever there is nothing left to do
	wake   chan struct{}
	stop   chan struct{}
	done   chan struct{}
}

type place struct {
	prog int
	word event.Word
}

func newNames(p *target.Process, t *live.Target, rts *live.Runtimes, o *Options) *names {
	no := naming.Options{Finder: symbol.Dirs{Root: fmt.Sprintf("/proc/%d/root", p.PID()), Extra: o.DebugDirs}, FullNames: o.FullNames, Cache: o.Cache}
	if o.Finder != nil {
		no.Finder = symbol.Finders{no.Finder, o.Finder}
	}
	n := &names{
		r:     resolver{p: p, t: t, runtimes: rts, o: no, files: map[fileKey]*file{}},
		waits: map[int]trace.Wait{}, places: map[place][]top.Frame{}, idle: make(chan struct{}),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	n.r.made = n.r.madeOf()
	go n.run()
	return n
}

// madeOf asks the program that the target runs now.
func (r *resolver) madeOf() naming.Made {
	return naming.Made{PerfMap: naming.PerfMapOf(r.p.PerfMap),
		Objects: func() []*symbol.JITObject { return r.t.GDBObjects(r.o.FullNames) }}
}

// wait is live.Descriptions.Put.
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

// flush hands on what was asked.
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

// answer stores what was found; nothing has it asked again the next time.
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
	files    map[fileKey]*file
	prog     int
	again    map[uint64]int // addresses in no mapping: how often they were asked

	made  naming.Made
	later []place // that the program does not name yet
}

type fileKey struct {
	dev, inode uint64
	path       string
}

// file is a mapped file with its names; sym is nil where it has none.
type file struct {
	path string
	f    target.File
	sym  *naming.Source
	segs [][3]uint64
}

type question struct {
	place
	addr, vaddr uint64
}

// resolve answers each place, those of a file together: neighbours are quick.
func (r *resolver) resolve(asked []place, answer func(place, []top.Frame)) {
	maps := r.t.Maps()
	byFile := map[*file][]question{}
	for _, p := range asked {
		if p.prog > r.prog { // the target became another program
			r.close()
			r.files, r.prog, r.made, r.again, r.later = map[fileKey]*file{}, p.prog, r.madeOf(), nil, nil
		}
		q := question{place: p, addr: p.word.Lookup()}
		if p.prog < r.prog {
			answer(p, unnamed("", q.addr)) // it is no longer there
			continue
		}
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
		f := r.file(&maps[i])
		if _, ok := managed.Named(f.path); ok {
			r.managed(p, f.path, answer)
			continue
		}
		if len(f.segs) == 0 {
			r.ask(p, f.path, answer)
			continue
		}
		q.vaddr = f.vaddr(q.addr - maps[i].Start + maps[i].Off)
		byFile[f] = append(byFile[f], q)
	}
	for f, qs := range byFile {
		f.names(qs, answer)
	}
}

func unnamed(module string, addr uint64) []top.Frame {
	return []top.Frame{{Func: trace.PlaceName(module, addr), Module: module}}
}

// file opens the file of a mapping, once.
func (r *resolver) file(m *stack.Mapping) *file {
	k := fileKey{m.Dev, m.Inode, m.Path}
	f := r.files[k]
	if f != nil {
		return f
	}
	f = &file{path: m.Path}
	r.files[k] = f
	if m.Inode == 0 && m.Path != "[vdso]" {
		return f
	}
	var err error
	if f.f, err = r.p.OpenMapping(*m); err != nil {
		f.f = nil
		return f
	}
	if f.segs, err = live.Segments(f.f); err != nil {
		return f // not ELF
	}
	f.sym, err = naming.Open(f.f, f.path, runtime.GOARCH, r.o)
	if err != nil {
		f.sym = nil // its code is called by its place
	}
	return f
}

// page is the least that a file is mapped by: the first page of a segment may
// begin before it.
const page = 4096

// vaddr turns an offset in the file into the file's own address, as far as
// there is one.
func (f *file) vaddr(off uint64) uint64 {
	for _, s := range f.segs {
		if off >= s[0]&^(page-1) && off < s[0]+s[2] {
			return s[1] + (off - s[0])
		}
	}
	return off
}

func (f *file) names(qs []question, answer func(place, []top.Frame)) {
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
		buf = f.sym.Frames(q.vaddr, buf[:0])
		fs := framesOf(f.path, buf)
		if len(fs) == 0 {
			fs = unnamed(f.path, q.vaddr)
		}
		answer(q.place, fs)
	}
}

// managed names a place of a runtime's functions.
func (r *resolver) managed(p place, module string, answer func(place, []top.Frame)) {
	f, ok := r.runtimes.Find(p.word.Lookup())
	if !ok {
		answer(p, unnamed(module, p.word.Lookup()))
		return
	}
	answer(p, []top.Frame{{Func: f.Func, Module: module, File: f.File, Line: f.Line}})
}

// ask names code that the program made itself. What that does not name is asked
// again when the program has been asked anew.
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

// framesOf are frames of a module as tables have them.
func framesOf(module string, in []symbol.Frame) []top.Frame {
	out := make([]top.Frame, 0, len(in))
	for i := range in {
		out = append(out, top.Frame{Func: in[i].Func, Module: module, File: in[i].File, Line: in[i].Line, Inlined: in[i].Inlined})
	}
	return out
}

func (r *resolver) close() {
	for _, f := range r.files {
		if f.sym != nil {
			f.sym.Close()
		}
		if f.f != nil {
			f.f.Close()
		}
	}
}
