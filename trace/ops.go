package trace

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// opRecords are chunks of operations. An operation is a byte (bits 0..3 sort, bit 4 a stack follows, bit 5 the
// read waited since the page cache did not have the data, bit 6 a wait for a CPU follows), the
// varint of its begin minus that of the operation before (at first the time of the head), a uvarint
// duration, the uvarints of descriptor, file + 1 and call + 1, the varints of requested bytes and result,
// with bit 4 a uvarint stack, and with bit 6 the uvarint ns in which the thread waited for a CPU.
var opRecords = records[IOOp]{
	chunk: chunkOps, what: "operation",
	tid:   func(o *IOOp) stack.TID { return o.TID },
	span:  func(o *IOOp) (from, to stack.Time) { return o.Begin, o.End() },
	first: func(tid stack.TID, at stack.Time) IOOp { return IOOp{TID: tid, Begin: at} },
	put:   putOp, take: takeOp,
}

const (
	opSort  = 15
	opStack = 1 << 4
	opMiss  = 1 << 5
	opQueue = 1 << 6
)

func putOp(b []byte, o, before *IOOp) []byte {
	flags := byte(o.Op) & opSort
	if o.Stack >= 0 {
		flags |= opStack
	}
	if o.Missed {
		flags |= opMiss
	}
	if o.Queued > 0 {
		flags |= opQueue
	}
	b = append(b, flags)
	b = binary.AppendVarint(b, int64(o.Begin-before.Begin))
	for _, n := range [...]uint64{uint64(max(o.Took, 0)), uint64(uint32(o.FD)), uint64(o.File + 1), uint64(o.Call + 1)} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendVarint(b, o.Want)
	b = binary.AppendVarint(b, o.Ret)
	if o.Stack >= 0 {
		b = binary.AppendUvarint(b, uint64(o.Stack))
	}
	if o.Queued > 0 {
		b = binary.AppendUvarint(b, uint64(o.Queued))
	}
	return b
}

func takeOp(n *recordNumbers, o *IOOp) {
	flags := n.flags()
	o.Begin += stack.Time(n.signed())
	took, fd, file, call := n.unsigned(), n.unsigned(), n.unsigned(), n.unsigned()
	o.Want, o.Ret = n.signed(), n.signed()
	o.Missed = flags&opMiss != 0
	o.Stack = -1
	if flags&opStack != 0 {
		o.Stack = int(min(n.unsigned(), maxIOStacks))
	}
	queued := uint64(0)
	if flags&opQueue != 0 {
		queued = n.unsigned()
	}
	o.Queued = int64(queued)
	o.Op, o.Took, o.FD = iowatch.Op(flags&opSort), int64(took), int32(uint32(fd))
	o.File, o.Call = int(min(file, maxIOFiles))-1, int(min(call, maxIOCalls))-1
	switch {
	case !validOp(o.Op):
		n.bad("operation of sort %d", flags&opSort)
	case o.Begin < 0 || took > 1<<62 || queued > took || o.End() < o.Begin:
		n.bad("times, %d and %d ns", o.Begin, took)
	case fd > 1<<31-1 && (o.Op != iowatch.OpCall || fd != 1<<32-1):
		n.bad("descriptor %d", fd)
	}
}

// validOp reports whether an operation may be in a recording.
func validOp(o iowatch.Op) bool {
	return o > iowatch.OpNone && o <= iowatch.OpClose || o == iowatch.OpConnect || o == iowatch.OpFault || o == iowatch.OpCall
}

// Ops writes operations of any threads. It sorts ops by thread.
func (w *Writer) Ops(ops []IOOp) error { return opRecords.write(w, ops) }

// Ops yields the I/O operations of all threads, those of one thread in the order in which they ended.
// Those in damaged chunks are left out; damage is reported once the iteration is over, as an error of
// the last call of yield.
func (rec *Recording) Ops() iter.Seq2[IOOp, error] {
	return func(yield func(IOOp, error) bool) {
		for o, err := range opRecords.all(rec, rec.ops) {
			if o.File >= len(rec.IONames.Files) {
				o.File = -1
			}
			if o.Call >= len(rec.IONames.Calls) {
				o.Call = -1
			}
			if o.Stack >= len(rec.IONames.Stacks) {
				o.Stack = -1
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// HasOps reports whether the recording has I/O operations.
func (rec *Recording) HasOps() bool { return len(rec.ops) > 0 }

// cutIO writes the accounts, which are those of the whole recording, and the operations of the part.
func cutIO(tw *Writer, rec *Recording, p Part) error {
	if rec.IO == nil {
		return nil
	}
	x := *rec.IO
	x.Findings = slices.DeleteFunc(slices.Clone(x.Findings), func(f IOFinding) bool {
		return f.At < p.From || p.To != 0 && f.At > p.To || !rec.hasThread(p, f.TID, f.At)
	})
	names := rec.IONames
	names.First = [4]int{}
	if err := tw.IONames(&names); err != nil {
		return err
	}
	if err := tw.IO(&x); err != nil {
		return err
	}
	return opRecords.cut(tw, rec, p, rec.Ops())
}
