package breakpoint

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
)

// words reads a record piece by piece; past its end it is 0 and torn.
type words struct {
	b    []byte
	torn bool
}

func (w *words) u64() (v uint64) {
	if len(w.b) < 8 {
		w.torn = true
		return 0
	}
	v, w.b = binary.NativeEndian.Uint64(w.b), w.b[8:]
	return v
}

func (w *words) two() (a, b int32) {
	if len(w.b) < 8 {
		w.torn = true
		return 0, 0
	}
	a, b = int32(binary.NativeEndian.Uint32(w.b)), int32(binary.NativeEndian.Uint32(w.b[4:]))
	w.b = w.b[8:]
	return a, b
}

// take keeps one record (perf_event_open(2), "MMAP layout").
func (e *Engine) take(b []byte) {
	const header = 8
	if len(b) < header {
		return
	}
	w := words{b: b[header:]}
	switch binary.NativeEndian.Uint32(b) {
	case unix.PERF_RECORD_SAMPLE:
		if h, ok := e.hit(&w); ok {
			e.pending = append(e.pending, record{hit: h})
		}
	case unix.PERF_RECORD_LOST: // id, lost; then the trailer: tid, time, id
		w.u64()
		n := w.u64()
		w.two()
		t := w.u64()
		if !w.torn && n > 0 {
			e.pending = append(e.pending, record{hit: calls.Hit{Time: stack.Time(t)}, lost: n})
		}
	case unix.PERF_RECORD_EXIT: // pid, ppid; tid, ptid; time
		pid, _ := w.two()
		tid, _ := w.two()
		t := w.u64()
		if !w.torn && int(pid) == e.o.PID {
			e.pending = append(e.pending, record{hit: calls.Hit{Time: stack.Time(t), TID: stack.TID(tid)}, gone: true})
		}
	}
}

// hit reads a sample: id, ip, pid and tid, time, registers, and of an entry the words on the stack.
func (e *Engine) hit(w *words) (h calls.Hit, ok bool) {
	id := w.u64()
	w.u64() // the address, which the event's number says too
	pid, tid := w.two()
	t := w.u64()
	src, known := e.probes[id]
	if !known || int(pid) != e.o.PID {
		return h, false
	}
	if o, ok := e.owner[place{stack.TID(tid), src.probe}]; !ok {
		e.owner[place{stack.TID(tid), src.probe}] = src.tid
	} else if o != src.tid {
		return h, false
	}
	const abi64 = 2 // PERF_SAMPLE_REGS_ABI_64
	if abi := w.u64(); abi != abi64 {
		return h, false
	}
	p := &e.o.Probes[src.probe]
	var regs [maxRegs]uint64
	n := bits.OnesCount64(regsMask(p))
	for i := range n {
		regs[i] = w.u64()
	}
	h = calls.Hit{Time: stack.Time(t), TID: stack.TID(tid), Fn: p.Fn, Where: p.Where}
	var top uint64
	if p.top() {
		if size := w.u64(); size == 8*wordsOfStack {
			top = w.u64()
			if n := w.u64(); n < 8 { // how much of it could be read
				top = 0
			}
		}
	}
	if w.torn {
		return h, false
	}
	fill(&h, p, &regs, top)
	if p.All {
		h.Regs = digest(regs[:n])
	}
	return h, true
}

// digest is a number for the contents of registers, and not 0.
func digest(regs []uint64) uint64 {
	const prime, odd = 0x100000001b3, 1 // of FNV
	sum := uint64(0xcbf29ce484222325)
	for _, r := range regs {
		sum = bits.RotateLeft64((sum^r)*prime, 29)
	}
	return sum | odd
}
