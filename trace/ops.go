package trace

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// A chunk of operations holds those of one thread, in the order in which they ended:
//
//	uvarint TID, uvarint number of operations, uvarint time, operations
//
// An operation is a byte (bits 0..3 sort, bit 4 a stack follows), the varint of its begin minus that of
// the operation before (at first the time of the head), a uvarint duration, the uvarints of descriptor,
// file + 1 and call + 1, the varints of requested bytes and result, and with bit 4 a uvarint stack.
const (
	opSort  = 15
	opStack = 1 << 4
)

func appendOps(b []byte, ops []IOOp) []byte {
	at := ops[0].Begin
	b = binary.AppendUvarint(b, uint64(uint32(ops[0].TID)))
	b = binary.AppendUvarint(b, uint64(len(ops)))
	b = binary.AppendUvarint(b, uint64(at))
	for i := range ops {
		o := &ops[i]
		flags := byte(o.Op) & opSort
		if o.Stack >= 0 {
			flags |= opStack
		}
		b = append(b, flags)
		b = binary.AppendVarint(b, int64(o.Begin-at))
		at = o.Begin
		for _, n := range []uint64{uint64(max(o.Took, 0)), uint64(uint32(o.FD)), uint64(o.File + 1), uint64(o.Call + 1)} {
			b = binary.AppendUvarint(b, n)
		}
		b = binary.AppendVarint(b, o.Want)
		b = binary.AppendVarint(b, o.Ret)
		if o.Stack >= 0 {
			b = binary.AppendUvarint(b, uint64(o.Stack))
		}
	}
	return b
}

// decodeOps calls yield for each operation of a chunk until it says no.
func decodeOps(b []byte, yield func(IOOp) bool) (more bool, err error) {
	i := 0
	bad := func(what string) error { return fmt.Errorf("operation chunk: byte %d: bad %s", i, what) }
	u := func() uint64 {
		v, n := binary.Uvarint(b[i:])
		if n <= 0 {
			err = bad("number")
			return 0
		}
		i += n
		return v
	}
	s := func() int64 {
		v, n := binary.Varint(b[i:])
		if n <= 0 {
			err = bad("number")
			return 0
		}
		i += n
		return v
	}
	tid, n, at := u(), u(), u()
	if err == nil && (tid > 1<<31-1 || at > 1<<63-1 || n > uint64(len(b)-i)) {
		err = fmt.Errorf("operation chunk: thread %d, %d operations, time %d in %d bytes", tid, n, at, len(b))
	}
	o := IOOp{TID: stack.TID(tid), Begin: stack.Time(at)}
	for ; n > 0 && err == nil; n-- {
		if i >= len(b) {
			err = bad("flags")
			break
		}
		flags := b[i]
		i++
		o.Begin += stack.Time(s())
		took, fd, file, call := u(), u(), u(), u()
		o.Want, o.Ret = s(), s()
		o.Stack = -1
		if flags&opStack != 0 {
			o.Stack = int(min(u(), maxIOStacks))
		}
		o.Op, o.Took, o.FD = iowatch.Op(flags&opSort), int64(took), int32(uint32(fd))
		o.File, o.Call = int(min(file, maxIOFiles))-1, int(min(call, maxIOCalls))-1
		switch {
		case err != nil:
		case !validOp(o.Op):
			err = bad(fmt.Sprintf("operation of sort %d", flags&opSort))
		case o.Begin < 0 || took > 1<<62 || o.End() < o.Begin:
			err = bad(fmt.Sprintf("times, %d and %d ns", o.Begin, took))
		case fd > 1<<31-1:
			err = bad(fmt.Sprintf("descriptor %d", fd))
		case !yield(o):
			return false, nil
		}
	}
	return err == nil, err
}

// validOp reports whether an operation may be in a recording.
func validOp(o iowatch.Op) bool {
	return o > iowatch.OpNone && o <= iowatch.OpClose || o == iowatch.OpConnect
}

// Ops writes operations of any threads. It sorts ops by thread.
func (w *Writer) Ops(ops []IOOp) error {
	slices.SortStableFunc(ops, func(a, b IOOp) int { return int(a.TID) - int(b.TID) })
	for len(ops) > 0 {
		n := 1
		for n < len(ops) && n < maxOpChunk && ops[n].TID == ops[0].TID {
			n++
		}
		w.payload = appendOps(w.payload[:0], ops[:n])
		if err := w.chunk(chunkOps, w.payload); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// noteOps keeps where a chunk of operations is.
func (rec *Recording) noteOps(off int64, length int, crc uint32) {
	if len(rec.ops) < maxOpChunks {
		rec.ops = append(rec.ops, chunkRef{off: off, length: length, crc: crc})
	}
}

// Ops yields the I/O operations of all threads, those of one thread in the order in which they ended.
// Those in damaged chunks are left out; damage is reported once the iteration is over, as an error of
// the last call of yield.
func (rec *Recording) Ops() iter.Seq2[IOOp, error] {
	return func(yield func(IOOp, error) bool) {
		var buf []byte
		var first error
		for _, ref := range rec.ops {
			b, err := payloadAt(rec.r, ref.off, chunkOps, ref.length, ref.crc, buf)
			more := true
			if err == nil {
				buf = b
				more, err = decodeOps(b, func(o IOOp) bool {
					if o.File >= len(rec.IONames.Files) {
						o.File = -1
					}
					if o.Call >= len(rec.IONames.Calls) {
						o.Call = -1
					}
					if o.Stack >= len(rec.IONames.Stacks) {
						o.Stack = -1
					}
					return yield(o, nil)
				})
			}
			if err != nil {
				if first == nil {
					first = at(ref.off, err)
				}
				continue
			}
			if !more {
				return
			}
		}
		if first != nil {
			yield(IOOp{}, first)
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
	var batch []IOOp
	for o, err := range rec.Ops() {
		if err != nil || o.End() < p.From || p.To != 0 && o.Begin > p.To || !rec.hasThread(p, o.TID, o.End()) {
			continue
		}
		if batch = append(batch, o); len(batch) == maxOpChunk {
			if err := tw.Ops(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return tw.Ops(batch)
}

// hasThread reports whether a thread is in the part.
func (rec *Recording) hasThread(p Part, tid stack.TID, t stack.Time) bool {
	if p.Threads == nil {
		return true
	}
	i := rec.ThreadOf(tid, t)
	return i >= 0 && slices.Contains(p.Threads, rec.Threads[i].Seq)
}
