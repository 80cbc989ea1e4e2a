package v8

import (
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

const (
	// maxKnown bounds the functions, and the pieces of code, that are remembered;
	// above it all are read anew.
	maxKnown   = 1 << 17
	maxScripts = 1 << 14
	// maxSpans bounds what is read ahead for one stack.
	maxSpans = 512
	// MaxFrames bounds the frames that one stack is asked about.
	MaxFrames = 1 << 16
	// maxInline bounds the calls that one frame has compiled in.
	maxInline = 64
	// proofs is how many functions must have been read, and failures how many
	// tries may have failed, until a version counts as one that can be read.
	proofs   = 4
	failures = 256
	// doubt is how many tries without one function are enough to say so.
	doubt = 6
)

// Runtime is the V8 of a process. All isolates of it are alike.
type Runtime struct {
	l      *layout
	img    *Image
	make   func(*Function) any
	regexp *Function // stands for the code of all regular expressions

	mu        sync.Mutex // guards what follows
	functions map[uint64]*Function
	scripts   map[uint64]*script
	runs      map[uint64]uint64 // bytecode to the function that it is of
	codes     []*code           // by start
	walks     uint64            // stacks so far
	barren    map[uint64]barren // by page: where no code's beginning was found
	read      int               // functions that were read
	failed    int               // tries that did not bring one
}

// New makes one. make, which may be called from several goroutines, is called with
// each function when it is first seen; Handle gives what it made.
func New(img *Image, make func(*Function) any) *Runtime {
	r := &Runtime{l: &img.layout, img: img, make: make}
	r.regexp = &Function{Name: "(regular expression)", script: &script{first: -1, ends: []int32{0}}}
	r.regexp.handle = make(r.regexp)
	r.Forget()
	return r
}

// Version is that of V8.
func (r *Runtime) Version() string { return r.img.Version }

// Forget drops what is known of the heap.
func (r *Runtime) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.functions, r.scripts, r.runs, r.codes, r.barren = map[uint64]*Function{}, map[uint64]*script{}, map[uint64]uint64{}, nil, map[uint64]barren{}
}

// Problem says why there are no functions, nil where there are: this V8's data is not
// where it is looked for. A version that was not tried has it until it has proved itself.
func (r *Runtime) Problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read < proofs && (r.failed > failures || !r.l.tried) || r.read == 0 && r.failed >= doubt {
		return &VersionError{r.img.Version, "its data is not where it is in the versions that are known (Node 18, 20, 22, 24)"}
	}
	return nil
}

// proved reports whether functions may be shown: a version that was not tried must
// first have been read several times.
func (r *Runtime) proved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.l.tried && (r.read > 0 || r.failed <= failures) || r.read >= proofs && r.read*4 > r.failed
}

func (r *Runtime) count(ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		r.read = min(r.read+1, 1<<30)
	} else {
		r.failed = min(r.failed+1, 1<<30)
	}
}

// readAhead reads what the last stack of the same thread wanted.
func (h *heap) readAhead(spans []stack.Span, buf []byte) []byte {
	clear(h.ahead)
	if len(spans) == 0 {
		return buf
	}
	size := 0
	for i, s := range spans {
		if size+max(s.Len, meter.LeastSpan) > meter.Budget/2 {
			spans = spans[:i]
			break
		}
		size += s.Len
	}
	if size > len(buf) {
		buf = make([]byte, size+size/2)
	}
	b := buf[:size]
	for len(spans) > 0 {
		got := h.mem.ReadSpans(spans, b)
		for len(spans) > 0 && got >= spans[0].Len {
			n := spans[0].Len
			h.ahead[spans[0].Addr] = block{data: b[:n]}
			got, b, spans = got-n, b[n:], spans[1:]
		}
		if len(spans) > 0 { // that one is gone
			b, spans = b[spans[0].Len:], spans[1:]
		}
	}
	return buf
}

// barren is a page in which code has no beginning that could be found, as code of
// WebAssembly: it is sought again once in a while.
type barren struct {
	until, wait uint64 // in stacks
}

const (
	maxBarren  = 1 << 14
	leastWait  = 1
	mostWait   = 1 << 12
	barrenPage = 12 // bits
)

// mayFind reports whether it is worth to look for the code that pc is in.
func (r *Runtime) mayFind(pc uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	x, ok := r.barren[pc>>barrenPage]
	return !ok || r.walks >= x.until
}

// found notes whether it was there.
func (r *Runtime) found(pc uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	page := pc >> barrenPage
	if ok {
		delete(r.barren, page)
		return
	}
	if len(r.barren) >= maxBarren {
		clear(r.barren)
	}
	wait := min(max(2*r.barren[page].wait, leastWait), mostWait)
	r.barren[page] = barren{r.walks + wait, wait}
}

// begin counts a stack.
func (r *Runtime) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.walks++
}
