package trace

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// maxThreadCalls is how many calls of a thread become slices: they are in memory at once, 48 bytes each.
const maxThreadCalls = 1 << 21

// callIndex finds the chunks of calls of a thread.
type callIndex struct {
	once sync.Once
	refs map[stack.TID][]chunkRef
}

// of returns the chunks of calls of a thread.
func (x *callIndex) of(rec *Recording, tid stack.TID) []chunkRef {
	x.once.Do(func() {
		x.refs = map[stack.TID][]chunkRef{}
		head := make([]byte, binary.MaxVarintLen64)
		for _, ref := range rec.calls {
			b := head[:min(ref.length, len(head))]
			if n, err := rec.r.ReadAt(b, ref.off+chunkHead); err != nil && n < len(b) {
				continue
			}
			if id, n := binary.Uvarint(b); n > 0 && id <= 1<<31-1 {
				x.refs[stack.TID(id)] = append(x.refs[stack.TID(id)], ref)
			}
		}
	})
	return x.refs[tid]
}

// ThreadCalls yields the traced calls of thread i of Threads, in the order of Calls.
func (rec *Recording) ThreadCalls(i int) iter.Seq[calls.Call] {
	return func(yield func(calls.Call) bool) {
		if rec.Traced == nil {
			return
		}
		tid, sharing := rec.Threads[i].TID, 0
		for k := range rec.Threads {
			if rec.Threads[k].TID == tid {
				sharing++
			}
		}
		for c, err := range callRecords.all(rec, rec.callsOf.of(rec, tid)) {
			if err != nil || c.Fn >= len(rec.Traced.Functions) || sharing > 1 && rec.ThreadOf(tid, c.Exit) != i {
				continue
			}
			if rec.ended(&c); !yield(c) {
				return
			}
		}
	}
}

// threadCalls are the traced calls of a thread, and where the traced functions are.
type threadCalls struct {
	*tracedCode
	tid    stack.TID
	all    []tracedCall // by compareCalls
	placed []uint64
	lost   bool // calls are missing
	names  *Names
	// number replaces names while a thread is recorded: see NewLiveSharp.
	number func(w event.Word, at stack.Time) (of int32, known bool)

	methodOf map[*Loc]int32 // by location; -1: it is of none
	locs     map[int32]*Loc
	callers  map[uint64]int32
	named    map[string]int // functions with symbols
}

// tracedCode is where traced functions are.
type tracedCode struct {
	functions []TracedFunction
	same      []int32 // by number: the first function that is the same, or has its name; -1: frames of the kind are left out
	ranges    []codeRange
	methods   map[method]int32 // functions of runtimes
}

// code returns where the functions are. less has bits for the kinds of frames that are left out.
func (t *Traced) code(less Kinds) *tracedCode {
	x := &tracedCode{functions: t.Functions, same: make([]int32, len(t.Functions)), methods: map[method]int32{}}
	at := map[uint64]int32{}
	for fn := range x.functions {
		f := &x.functions[fn]
		first, ok := at[f.Addr]
		if f.managed() {
			first, ok = x.methods[method{f.Kind, f.Name}]
		}
		switch {
		case ok:
		case f.managed():
			first = int32(fn)
			x.methods[method{f.Kind, f.Name}] = first
		default:
			first = int32(fn)
			at[f.Addr] = first
			for _, r := range f.Ranges {
				x.ranges = append(x.ranges, codeRange{r[0], r[1], first})
			}
		}
		if x.same[fn] = first; less>>(f.Kind&7)&1 != 0 {
			x.same[fn] = -1
		}
	}
	slices.SortFunc(x.ranges, func(a, b codeRange) int { return cmp.Compare(a.from, b.from) })
	return x
}

// incomplete reports whether calls are not in the recording.
func (t *Traced) incomplete() bool {
	return t.Lost > 0 || t.Dropped > 0 || t.Slower > 0 || t.LostBytes > 0 || t.Missing > 0
}

// codeRange is code of a traced function.
type codeRange struct {
	from, to uint64
	fn       int32
}

// method identifies a function of a runtime. Its activations have no address, so that the order of frames and calls
// alone says which belong together.
type method struct {
	kind stack.Kind
	name string
}

// threadCalls loads the calls of thread i; nil: there are none to place. Calls of tasks are not among them: a task
// may change threads while it is in a call.
func (rec *Recording) threadCalls(i int, names *Names) *threadCalls {
	if rec.Traced == nil || len(rec.calls) == 0 {
		return nil
	}
	x := &threadCalls{tracedCode: rec.Traced.code(rec.less), tid: rec.Threads[i].TID, names: names, lost: rec.Traced.incomplete(),
		locs: map[int32]*Loc{}, callers: map[uint64]int32{}, methodOf: map[*Loc]int32{}}
	n := 0
	for c := range rec.ThreadCalls(i) {
		if fn := x.same[c.Fn]; fn >= 0 && c.Task == 0 && len(x.all) < maxThreadCalls {
			x.all = append(x.all, tracedCall{enter: c.Enter, exit: c.Exit, ret: c.Ret, fn: fn, n: int32(n),
				how: c.How, before: c.Before, unsure: c.Unsure})
		}
		if n++; n > maxPlaced {
			break
		}
	}
	if len(x.all) == 0 {
		return nil
	}
	slices.SortFunc(x.all, compareCalls)
	x.placed = make([]uint64, n/64+1)
	return x
}

// maxPlaced bounds the numbers of calls.
const maxPlaced = 1 << 30

// complete reports whether all calls of a function are known up to t, from its first call on. A thread in the function
// that is in no call then is in the trap that reported the end of one: it may wait for a CPU there.
func (x *threadCalls) complete(fn int32, t stack.Time) bool {
	f := &x.functions[fn]
	return !x.lost && (f.Hot == 0 || t < f.HotAt)
}

// function returns the traced function of a frame, -1 for none.
func (x *threadCalls) function(w event.Word, at stack.Time) int32 {
	switch k := w.Kind(); {
	case k.Managed():
		return x.method(w, at)
	case k != stack.KindNative:
		return -1
	}
	a := w.Lookup()
	i, _ := slices.BinarySearchFunc(x.ranges, a, func(r codeRange, a uint64) int {
		if r.to <= a {
			return -1
		}
		return 1
	})
	if i < len(x.ranges) && x.ranges[i].from <= a {
		return x.ranges[i].fn
	}
	return -1
}

// method returns the traced function of a frame of a runtime, -1 for none.
func (x *threadCalls) method(w event.Word, at stack.Time) int32 {
	if len(x.methods) == 0 {
		return -1
	}
	l := x.names.Resolve(w, at)
	fn, ok := x.methodOf[l]
	if !ok {
		if fn, ok = x.methods[method{w.Kind(), x.names.Func(&l.Frames[len(l.Frames)-1]).Name}]; !ok {
			fn = -1
		}
		x.methodOf[l] = fn
	}
	return fn
}

// tracing reports whether a frame is of the runtime's own code that records calls.
func (x *threadCalls) tracing(w event.Word, at stack.Time) bool {
	k := w.Kind()
	if len(x.methods) == 0 || !k.Managed() {
		return false
	}
	l := x.names.Resolve(w, at)
	return k.Tracing(x.names.Func(&l.Frames[len(l.Frames)-1]).Name)
}

// frame returns a number of a frame's function, -1 if there is none or it is not known yet, and keeps it in f.
func (x *threadCalls) frame(f *sampledFrame) int32 {
	if f.of != 0 {
		return f.of
	}
	of, known := x.funcOf(f.word, f.entered)
	if known {
		f.of = of
	}
	return of
}

// caller returns that number of the function that made a call, and keeps it in c.
func (x *threadCalls) caller(c *tracedCall) int32 {
	if c.caller != 0 {
		return c.caller
	}
	of, known := x.callers[c.ret]
	if !known {
		of, known = -1, true
		if c.ret != 0 {
			of, known = x.funcOf(event.WordOf(&stack.Frame{Func: 1, PC: c.ret}), c.enter)
		}
		if known && len(x.callers) < maxCallers {
			x.callers[c.ret] = of
		}
	}
	if known {
		c.caller = of
	}
	return of
}

// maxCallers bounds the return addresses whose functions are kept.
const maxCallers = 1 << 16

// entry returns that number of a traced function.
func (x *threadCalls) entry(fn int32, at stack.Time) int32 {
	if x.number != nil {
		return math.MaxInt32 - fn
	}
	return int32(x.loc(fn, at).Frames[0].Func) + 1
}

// funcOf returns the number of the function of native code; known: it will not change.
func (x *threadCalls) funcOf(w event.Word, at stack.Time) (of int32, known bool) {
	if w.Kind() != stack.KindNative {
		return -1, true
	}
	if fn := x.function(w, at); fn >= 0 { // whatever part of it
		return x.entry(fn, at), true
	}
	if x.number != nil {
		return x.number(w, at)
	}
	l := x.names.Resolve(w, at)
	return int32(l.Frames[len(l.Frames)-1].Func) + 1, true
}

// word is a traced function's first instruction. One of a runtime, whose address is not known, has the end of the
// runtime's range: a function that samples show begins before it.
func (x *threadCalls) word(fn int32) event.Word {
	f := &x.functions[fn]
	if _, end, ok := f.Kind.Range(); ok && f.managed() {
		a := end - 1 - uint64(fn)
		return event.WordOf(&stack.Frame{Func: a, PC: a, Exact: true, Kind: f.Kind, Trust: stack.TrustTable})
	}
	a := f.Addr
	return event.WordOf(&stack.Frame{Func: a, PC: a, Exact: true, Trust: stack.TrustRegs})
}

// loc is the location of calls of a traced function of which no sample was taken; nil: its word says it.
func (x *threadCalls) loc(fn int32, at stack.Time) *Loc {
	if x.names == nil {
		return nil
	}
	l := x.locs[fn]
	if l != nil {
		return l
	}
	f, n := &x.functions[fn], x.names
	l = n.Resolve(x.word(fn), at)
	if f.managed() {
		id := x.symbol(f, l.Key.Module)
		l = n.place(l, LocFrame{Func: id, File: n.Funcs[id].File, Line: n.Funcs[id].StartLine})
	} else if s := n.rec.Symbols; s == nil || len(s.Locs[l.Key]) == 0 {
		l = n.place(l, LocFrame{Func: x.symbol(f, l.Key.Module), File: f.File, Line: f.Line})
	} else if k := len(l.Frames); k > 1 {
		l = n.place(l, l.Frames[k-1])
	}
	x.locs[fn] = l
	return l
}

// symbol returns the function that has the name of a traced one.
func (x *threadCalls) symbol(f *TracedFunction, module int) int {
	if x.named == nil {
		x.named = map[string]int{}
		if s := x.names.rec.Symbols; s != nil {
			for i := range s.Funcs {
				if _, ok := x.named[s.Funcs[i].Name]; !ok {
					x.named[s.Funcs[i].Name] = i
				}
			}
		}
	}
	if i, ok := x.named[f.Name]; ok {
		return x.names.Same(i)
	}
	return x.names.make(f.Name, module)
}
