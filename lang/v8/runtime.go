package v8

import "sync"

const (
	// maxKnown bounds the cached functions, and the cached pieces of code. A full cache is cleared.
	maxKnown   = 1 << 17
	maxScripts = 1 << 14
	// maxSpans bounds the blocks that are read ahead for one stack.
	maxSpans = 512
	// MaxFrames bounds the frames per stack that are looked up.
	MaxFrames = 1 << 16
	// maxInline bounds the inlined calls of one frame.
	maxInline = 64
	// An untested version counts as readable after proofs functions were read and at most failures
	// tries failed.
	proofs   = 4
	failures = 256
	// doubt is the number of tries without any function after which this is reported.
	doubt = 6
)

// Runtime is the V8 of a process, with all its isolates.
type Runtime struct {
	l      *layout
	img    *Image
	make   func(*Function) any
	regexp *Function // represents the code of all regular expressions

	mu        sync.Mutex // guards the fields below
	functions map[uint64]*Function
	scripts   map[uint64]*script
	runs      map[uint64]uint64 // bytecode to its function
	codes     []*code           // sorted by start
	walks     uint64            // number of stacks so far
	barren    map[uint64]barren // by page: no code begins there
	read      int               // functions read
	failed    int               // tries without a result
}

// New returns a Runtime. It calls make with each function that is seen first, possibly from several
// goroutines. Handle returns make's result.
func New(img *Image, make func(*Function) any) *Runtime {
	r := &Runtime{l: &img.layout, img: img, make: make}
	r.regexp = &Function{Name: "(regular expression)", script: &script{first: -1, ends: []int32{0}}}
	r.regexp.handle = make(r.regexp)
	r.Forget()
	return r
}

// Version returns the version of V8.
func (r *Runtime) Version() string { return r.img.Version }

// Forget drops all cached data about the heap.
func (r *Runtime) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.functions, r.scripts, r.runs, r.codes, r.barren = map[uint64]*Function{}, map[uint64]*script{}, map[uint64]uint64{}, nil, map[uint64]barren{}
}

// Problem returns why no functions are shown, or nil if they are: this V8's data is not at the
// expected places. An untested version always has one: even after it passed validation, some of its
// functions may be missing.
func (r *Runtime) Problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read < proofs && (r.failed > failures || !r.l.tried) || r.read == 0 && r.failed >= doubt {
		return &VersionError{Version: r.img.Version, Why: "its data is not where it is in the versions that are known (Node 18, 20, 22, 24)"}
	}
	if !r.l.tried {
		return &VersionError{Version: r.img.Version, Why: "is not known (Node 18, 20, 22, 24 are)", partly: true}
	}
	return nil
}

// proved reports whether functions may be shown. An untested version must first have been read
// several times.
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

// barren is a page for which the beginning of its code was not found, as for WebAssembly. It is
// searched again occasionally.
type barren struct {
	until, wait uint64 // in stacks
}

const (
	maxBarren  = 1 << 14
	leastWait  = 1
	mostWait   = 1 << 12
	barrenPage = 12 // bits
)

// mayFind reports whether it is worth searching for the code that contains pc.
func (r *Runtime) mayFind(pc uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	x, ok := r.barren[pc>>barrenPage]
	return !ok || r.walks >= x.until
}

// found records the result of that search.
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
