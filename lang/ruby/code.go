package ruby

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
)

// Types of instruction sequences: enum rb_iseq_type of vm_core.h.
const (
	iseqTop = iota
	iseqMethod
	iseqBlock
	iseqClass
	iseqRescue
	iseqEnsure
	iseqEval
	iseqMain
	iseqPlain
)

// Types of methods: rb_method_type_t of method.h, 4 bits.
const (
	methodISeq = 0
	methodMask = 0xf
)

// cTrace is BUILTIN_ATTR_C_TRACE: a method in Ruby that is shown as one in C.
const cTrace = 0x08

const (
	maxWords   = 1 << 20 // of one instruction sequence
	maxLines   = 1 << 16 // entries of its table of lines
	maxParents = 256     // blocks in blocks
	cSize      = 16      // bytes of a method in C in a managed.Table
)

// Func is a method, block, class body or program, as Ruby shows it.
type Func struct {
	Label string // as Thread::Backtrace::Location#label
	Path  string // as Location#path; "": a method in C, which is shown at its caller's line
	First int    // first line
	Size  uint64 // bytes of its instructions

	code  uint64 // address of its instructions; 0: a method in C
	kind  uint32
	alike bool    // shown as a method in C
	index []byte  // succ_index_table: the entry of lines for each word of the instructions
	lines []int32 // line of each entry
	hash  []byte

	// The data in which another function at the same place would differ: see is.
	body, def uint64 // addresses; 0: none
	iseq      []byte // of the body
	entry     []byte // of the method entry
	typ       uint32 // type of the method's definition
	id        uint64
}

// C reports whether Ruby shows the function as a method in C, with its caller's file and line.
func (f *Func) C() bool { return f.code == 0 || f.alike }

// In returns the function's address in t and its size there, in bytes.
func (f *Func) In(t *managed.Table) (addr, size uint64) {
	return t.Add(managed.Key{Name: f.Label, File: f.Path, First: f.First, Size: f.Size, Lines: t.Hash(f.hash)}, f.Each)
}

// Offset returns how far into the function a frame is, in bytes. ok is false if pc is not in it: then
// it is another function's.
func (f *Func) Offset(pc uint64) (off uint64, ok bool) {
	if f.code == 0 {
		return 0, pc == 0
	}
	off = pc - f.code
	if off > f.Size || off&7 != 0 {
		return 0, false
	}
	if off > 0 { // pc is behind the instruction (calc_pos in vm_backtrace.c)
		off -= 8
	}
	return off, true
}

// Line returns the line at an offset from Offset, or 0 if it has none.
func (f *Func) Line(off uint64) int {
	i := f.lineEntry(off / 8)
	if i < 0 || i >= len(f.lines) {
		return 0
	}
	return int(f.lines[i])
}

// Each yields the runs of instructions of one line: the end in bytes and the line.
func (f *Func) Each(yield func(end uint64, line int) bool) {
	if f.code == 0 {
		return
	}
	line := f.Line(0)
	for at := uint64(8); at < f.Size; at += 8 {
		if l := f.Line(at); l != line {
			if !yield(at, line) {
				return
			}
			line = l
		}
	}
	yield(f.Size, line)
}

// Layout of struct succ_index_table (iseq.c): six words for the first 54 positions, 7 bits each, then
// blocks of 80 bytes for 512 positions each.
const (
	immediate    = 54
	perWord      = 9
	indexHead    = immediate / perWord * 8
	indexBlock   = 80
	perBlock     = 512
	blockRanks   = 8
	blockBits    = 16
	rankBits     = 9
	immediateLen = 7
)

// lineEntry returns the entry of lines for the word at pos: succ_index_lookup of iseq.c, less one.
func (f *Func) lineEntry(pos uint64) int {
	if len(f.lines) == 1 {
		return 0
	}
	if pos < immediate {
		at := pos / perWord * 8
		if at+8 > uint64(len(f.index)) {
			return -1
		}
		return int(le(f.index, at)>>(pos%perWord*immediateLen)&(1<<immediateLen-1)) - 1
	}
	at := indexHead + (pos-immediate)/perBlock*indexBlock
	if at+indexBlock > uint64(len(f.index)) {
		return -1
	}
	b := f.index[at:]
	bit := (pos - immediate) % perBlock
	small := bit / 64
	rank := uint64(le32(b, 0))
	if small > 0 {
		rank += le(b, blockRanks) >> ((small - 1) * rankBits) & (1<<rankBits - 1)
	}
	rank += uint64(bits.OnesCount64(le(b, blockBits+8*small) << (63 - bit%64)))
	return int(rank) - 1
}

// Func reads the function of a frame.
func (r *Runtime) Func(mem io.ReaderAt, f *Frame) (*Func, error) {
	if f.ISeq == 0 {
		return r.cFunc(mem, f.Entry)
	}
	body, b, err := r.body(mem, f.ISeq)
	if err != nil {
		return nil, err
	}
	out := &Func{kind: le32(b, bodyType), Size: 8 * uint64(le32(b, bodySize)), code: le(b, bodyCode)}
	if out.Size > 8*maxWords || out.Size == 0 || !pointer(out.code) {
		return nil, fmt.Errorf("the instructions of %#x are at %#x with %d bytes", f.ISeq, out.code, out.Size)
	}
	out.First = int(int32(le32(b, bodyFirst)))
	if r.img.Minor == 1 {
		out.First = int(int64(le(b, bodyFirst)) >> 1)
	}
	if r.eval.Load() == 0 {
		if at, err := word(mem, out.code); err == nil {
			if fn := r.img.function(at - r.bias); fn != 0 {
				r.eval.Store(fn + r.bias)
			}
		}
	}
	if out.Path, err = r.path(mem, le(b, bodyPath)); err != nil {
		return nil, err
	}
	if err := r.readLines(mem, b, out); err != nil {
		return nil, err
	}
	out.body, out.iseq = body, b[:bodyKey]
	out.Label, err = r.label(mem, f, b, out)
	return out, err
}

// Spans appends the memory that Is compares for the function of a frame.
func (f *Func) Spans(x *Frame, out []stack.Span) []stack.Span {
	if f.body != 0 {
		out = append(out, stack.Span{Addr: x.ISeq, Len: iseqHead}, stack.Span{Addr: f.body, Len: bodyKey})
	}
	if f.def != 0 {
		out = append(out, stack.Span{Addr: x.Entry, Len: entryHead}, stack.Span{Addr: f.def, Len: defHead})
	}
	return out
}

// Is reports whether a function is still f. b begins with the contents of its Spans, and n is their
// size. The other bits of flags and counters change with each garbage collection.
func (f *Func) Is(b []byte) (is bool, n int) {
	is = true
	take := func(size int) []byte {
		if n += size; n > len(b) {
			return nil
		}
		return b[n-size : n]
	}
	if f.body != 0 {
		head, body := take(iseqHead), take(bodyKey)
		is = body != nil && isImemo(le(head, 0), imemoISeq) && le(head, iseqBody) == f.body && bytes.Equal(body, f.iseq)
	}
	if f.def != 0 {
		entry, def := take(entryHead), take(defHead)
		is = is && def != nil && isImemo(le(entry, 0), imemoEntry) && bytes.Equal(entry[8:], f.entry) && le32(def, 0)&methodMask == f.typ && le(def, defID) == f.id
	}
	return is, n
}

// Eval returns the address of the C function that runs Ruby code, or 0 if it is not known yet. The
// interpreter stores the addresses of its instructions' machine code in instruction sequences.
func (r *Runtime) Eval() uint64 { return r.eval.Load() }

// body reads the rb_iseq_constant_body of an instruction sequence.
func (r *Runtime) body(mem io.ReaderAt, iseq uint64) (addr uint64, b []byte, err error) {
	var head [iseqHead]byte
	if !pointer(iseq) {
		return 0, nil, fmt.Errorf("no instruction sequence at %#x", iseq)
	}
	if err := read(mem, head[:], iseq); err != nil {
		return 0, nil, err
	}
	if !isImemo(le(head[:], 0), imemoISeq) {
		return 0, nil, fmt.Errorf("no instruction sequence at %#x", iseq)
	}
	b = make([]byte, bodyHead)
	addr = le(head[:], iseqBody)
	return addr, b, read(mem, b, addr)
}

// path reads a pathobj: the String of the path, or an Array of it and of the real path.
func (r *Runtime) path(mem io.ReaderAt, v uint64) (string, error) {
	f, err := flags(mem, v)
	if err != nil {
		return "", err
	}
	if f&typeMask == typeArray {
		if v, err = r.element(mem, v, 0); err != nil {
			return "", err
		}
	}
	return r.stringOf(mem, v)
}

// readLines reads the table of lines of the instruction sequence with the body b.
func (r *Runtime) readLines(mem io.ReaderAt, b []byte, out *Func) error {
	n := uint64(le32(b, r.l.infoSize))
	if n == 0 {
		return nil
	}
	if n > maxLines {
		return fmt.Errorf("an instruction sequence with %d entries of lines; at most %d are read", n, maxLines)
	}
	if n > 1 {
		size := uint64(indexHead)
		if words := out.Size / 8; words > immediate {
			size += (words - immediate + perBlock - 1) / perBlock * indexBlock
		}
		out.index = make([]byte, size)
		if err := read(mem, out.index, le(b, r.l.infoIndex)); err != nil {
			return err
		}
	}
	info := make([]byte, n*infoEntry)
	if err := read(mem, info, le(b, r.l.infoLines)); err != nil {
		return err
	}
	out.lines = make([]int32, n)
	for i := range out.lines {
		out.lines[i] = int32(le32(info, uint64(i)*infoEntry))
		out.hash = binary.LittleEndian.AppendUint32(out.hash, uint32(out.lines[i]))
	}
	out.hash = append(out.hash, out.index...)
	return nil
}

// label returns what Ruby calls the function: its stored label, and in 3.4 what calculate_iseq_label
// (vm_backtrace.c) makes of it and the method's owner.
func (r *Runtime) label(mem io.ReaderAt, f *Frame, b []byte, out *Func) (string, error) {
	if r.img.Minor != 4 {
		return r.stringOf(mem, le(b, bodyLabel))
	}
	owner := uint64(0)
	if f.Entry != 0 {
		var err error
		if owner, err = r.readEntry(mem, f.Entry, out); err != nil {
			return "", err
		}
		if out.typ == methodISeq && b[r.l.attrs]&cTrace != 0 && out.kind == iseqMethod {
			out.alike = true
			name, err := r.idName(mem, out.id)
			if err != nil {
				return "", err
			}
			return r.owned(mem, owner, name)
		}
	}
	return r.labelOf(mem, owner, f.ISeq, b, 0)
}

// labelOf is calculate_iseq_label of vm_backtrace.c. n counts the instruction sequences read.
func (r *Runtime) labelOf(mem io.ReaderAt, owner, iseq uint64, b []byte, n int) (string, error) {
	for ; n < maxParents; n++ {
		switch le32(b, bodyType) {
		case iseqTop, iseqClass, iseqMain:
			return r.stringOf(mem, le(b, bodyLabel))
		case iseqMethod:
			name, err := r.stringOf(mem, le(b, bodyLabel))
			if err != nil {
				return "", err
			}
			return r.owned(mem, owner, name)
		case iseqBlock, iseqPlain:
			local := le(b, r.l.local)
			if local == iseq || le(b, r.l.parent) == 0 { // a program made from text
				return r.stringOf(mem, le(b, bodyLabel))
			}
			level := 0
			for ; iseq != local; n++ {
				if le32(b, bodyType) == iseqBlock {
					level++
				}
				var err error
				if iseq = le(b, r.l.parent); n >= maxParents {
					return "", errAstray
				}
				if _, b, err = r.body(mem, iseq); err != nil {
					return "", err
				}
			}
			in, err := r.labelOf(mem, owner, iseq, b, n)
			if err != nil || level <= 1 {
				return "block in " + in, err
			}
			return fmt.Sprintf("block (%d levels) in %s", level, in), nil
		default: // rescue, ensure, eval
			var err error
			iseq = le(b, r.l.parent)
			if _, b, err = r.body(mem, iseq); err != nil {
				return "", err
			}
		}
	}
	return "", errAstray
}

// readEntry reads a method entry into out: its original name and the type of its definition. It returns
// its owner.
func (r *Runtime) readEntry(mem io.ReaderAt, at uint64, out *Func) (owner uint64, err error) {
	var e [entryHead]byte
	if !pointer(at) {
		return 0, fmt.Errorf("no method at %#x", at)
	}
	if err := read(mem, e[:], at); err != nil {
		return 0, err
	}
	if !isImemo(le(e[:], 0), imemoEntry) {
		return 0, fmt.Errorf("no method at %#x", at)
	}
	var d [defHead]byte
	if err := read(mem, d[:], le(e[:], entryDef)); err != nil {
		return 0, err
	}
	out.entry, out.def, out.typ, out.id = e[8:], le(e[:], entryDef), le32(d[:], 0)&methodMask, le(d[:], defID)
	return le(e[:], entryOwner), nil
}

// cFunc reads a method in C.
func (r *Runtime) cFunc(mem io.ReaderAt, at uint64) (*Func, error) {
	out := &Func{Size: cSize}
	owner, err := r.readEntry(mem, at, out)
	if err != nil {
		return nil, err
	}
	if out.Label, err = r.idName(mem, out.id); err == nil && r.img.Minor == 4 {
		out.Label, err = r.owned(mem, owner, out.Label)
	}
	return out, err
}

// Hide marks the frames that Ruby does not show: from 3.4 on, the frame around a rescue or ensure. code
// returns the function of the i-th frame; nil: unknown.
func (r *Runtime) Hide(s *Stack, code func(i int) *Func) {
	hide := false
	for i := range s.Frames {
		f := &s.Frames[i]
		f.Hidden = false
		if f.ISeq == 0 || r.img.Minor < 4 {
			continue
		}
		f.Hidden = hide
		c := code(i)
		hide = c != nil && (c.kind == iseqRescue || c.kind == iseqEnsure)
	}
}
