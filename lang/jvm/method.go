package jvm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
)

const (
	// maxCode bounds the bytecode of a method, in bytes: the class file format's limit.
	maxCode = 1 << 16
	// maxLineTable bounds a method's compressed table of lines, in bytes.
	maxLineTable = 1 << 18
	// maxName bounds the recorded names of classes and methods, in bytes.
	maxName = 1 << 10
)

// method is the content of a Method. It is immutable.
type method struct {
	addr, constMethod uint64
	code              uint64 // address of its bytecodes
	size              uint64 // size of the bytecodes
	name, file        string
	sig               string // as the class file has it
	fn, fnSize        uint64 // its place in the table

	// These fields identify the method among others at the same place. Classes that are generated
	// alike may be loaded at the same addresses one after the other; then only their names differ.
	head   []byte // of its ConstMethod
	pool   uint64 // address of its constants, from head
	holder uint64 // its class, from the constants
	key    uint64 // name of the class
	sym    []byte // head of that name: hash, length, the first letters
}

// place returns the table's address of the bytecode at bci.
func (m *method) place(bci int) uint64 {
	if bci < 0 || uint64(bci) >= m.fnSize {
		return m.fn
	}
	return m.fn + uint64(bci)
}

// symHead is the compared length of a class name, in bytes.
const symHead = 64

// methodAt returns the method at addr. It uses the cached one if it is still valid.
func (r *Runtime) methodAt(addr uint64) (*method, error) {
	r.mu.Lock()
	m := r.methods[addr]
	r.mu.Unlock()
	if m != nil {
		return m, nil
	}
	m, err := r.readMethod(addr)
	if err != nil {
		return nil, fmt.Errorf("method at %#x: %w", addr, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.methods) >= maxKept {
		clear(r.methods)
	}
	r.methods[addr] = m
	return m, nil
}

// freshMethod reads the method at addr.
func (r *Runtime) freshMethod(addr uint64) (*method, error) {
	r.mu.Lock()
	m := r.methods[addr]
	r.mu.Unlock()
	if m != nil {
		parts := m.parts(r.l, nil)
		if !m.same(func(i int) []byte {
			b := make([]byte, parts[i].Len)
			if read(r.mem, b, parts[i].Addr) != nil {
				return nil
			}
			return b
		}) {
			r.forgetMethod(addr)
		}
	}
	return r.methodAt(addr)
}

// constHead bounds the bytes read of a ConstMethod.
const constHead = 128

func (r *Runtime) readMethod(addr uint64) (*method, error) {
	defer r.firstLook()()
	l := r.l
	m := &method{addr: addr}
	var err error
	if addr&7 != 0 {
		return nil, fmt.Errorf("no address of one")
	}
	if m.constMethod, err = word(r.mem, addr+l.methodConst); err != nil {
		return nil, err
	}
	if l.constMethod > constHead {
		return nil, fmt.Errorf("a ConstMethod of %d bytes", l.constMethod)
	}
	m.head = make([]byte, l.constMethod+room)
	if err := read(r.mem, m.head[:l.constMethod], m.constMethod); err != nil {
		return nil, err
	}
	m.code, m.size = m.constMethod+l.constMethod, uint64(u16(m.head, l.cmCodeSize))
	cp := u64(m.head, l.cmConstants)
	m.pool = cp
	pool := make([]byte, l.pool+room)
	if err := read(r.mem, pool[:l.pool], cp); err != nil {
		return nil, fmt.Errorf("constants: %w", err)
	}
	n := u32(pool, l.poolLength)
	entry := func(i uint16) (string, error) {
		if i == 0 || uint32(i) >= n {
			return "", fmt.Errorf("entry %d of %d constants", i, n)
		}
		p, err := word(r.mem, cp+l.pool+8*uint64(i))
		if err != nil {
			return "", err
		}
		return r.symbol(p &^ 1)
	}
	m.holder = u64(pool, l.poolHolder)
	if m.key, err = word(r.mem, m.holder+l.klassName); err != nil {
		return nil, fmt.Errorf("class: %w", err)
	}
	class, err := r.symbol(m.key)
	if err != nil {
		return nil, fmt.Errorf("name of the class: %w", err)
	}
	// Leave out the reference count before the length.
	m.sym = make([]byte, min(symHead, int(l.symbolBody-l.symbolLength)+len(class)))
	if err := read(r.mem, m.sym, m.key+l.symbolLength); err != nil {
		return nil, err
	}
	name, err := entry(u16(m.head, l.cmName))
	if err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	sig, err := entry(u16(m.head, l.cmSig))
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	// Methods that link method handles have no file, and mark it in several ways.
	m.file, _ = entry(u16(pool, l.poolSource))
	if r.spent() {
		return nil, meter.ErrSpent
	}
	m.name, m.sig = ClassName(class)+"."+name, sig
	var lines []lineRun
	var raw []byte
	if u16(m.head, l.cmFlags)&uint16(l.hasLines) != 0 {
		if raw, lines, err = r.lines(m.code + m.size); err != nil {
			return nil, fmt.Errorf("lines: %w", err)
		}
	}
	first := 0
	for _, x := range lines {
		if first == 0 || x.line < first {
			first = x.line
		}
	}
	id := append(append([]byte(sig), 0), raw...)
	if r.apart {
		id = binary.LittleEndian.AppendUint64(id, addr)
	}
	m.fn, m.fnSize = r.table.Add(managed.Key{Name: m.name, File: m.file, First: first, Size: max(m.size, 1),
		Lines: r.table.Hash(id)}, func(yield func(uint64, int) bool) {
		for i, x := range lines {
			end := m.size
			if i+1 < len(lines) {
				end = lines[i+1].from
			}
			if !yield(end, x.line) {
				return
			}
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.name == "jdk.internal.vm.Continuation.doYield" {
		r.chunks.yield = m.fn
	}
	if r.apart && m.fn != r.table.Range().Start {
		r.byFn[m.fn] = m
	}
	return m, nil
}

// ClassName converts the virtual machine's internal name of a class to Java's form. Names of hidden
// classes have a '+' before their address, which Java shows as a '/'.
func ClassName(s string) string {
	plus := strings.LastIndex(s, "+0x")
	s = strings.ReplaceAll(s, "/", ".")
	if plus >= 0 {
		s = s[:plus] + "/" + s[plus+1:]
	}
	return s
}

// symbol reads a Symbol.
func (r *Runtime) symbol(addr uint64) (string, error) {
	var b [constHead]byte
	n, _ := r.mem.ReadAt(b[:], int64(addr&(1<<63-1)))
	if l := r.l; uint64(n) < l.symbolBody || addr == 0 || l.symbolBody > 32 {
		return "", fmt.Errorf("a name at %#x cannot be read", addr)
	}
	size := uint64(u16(b[:], r.l.symbolLength))
	if size > maxName {
		size = maxName
	}
	text := make([]byte, size)
	k := copy(text, b[r.l.symbolBody:n])
	if uint64(k) < size {
		if err := read(r.mem, text[k:], addr+r.l.symbolBody+uint64(k)); err != nil {
			return "", err
		}
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return "", fmt.Errorf("no name at %#x", addr)
	}
	return string(text), nil
}

// lineRun is a run of bytecode of one line.
type lineRun struct {
	from uint64
	line int
}

// lines reads the compressed line table at addr. It returns the raw bytes and the beginnings of
// lines.
func (r *Runtime) lines(addr uint64) (raw []byte, out []lineRun, err error) {
	for size := 256; ; size *= 4 {
		raw = make([]byte, size)
		n, err := r.mem.ReadAt(raw, int64(addr))
		raw = raw[:max(n, 0)]
		used, list, ok := decodeLines(raw, r.l.major < 20)
		if ok {
			return raw[:used], list, nil
		}
		if err != nil || n < size || size >= maxLineTable {
			return nil, nil, fmt.Errorf("the table at %#x is damaged: %w", addr, io.ErrUnexpectedEOF)
		}
	}
}

// decodeLines decodes a line table (CompressedLineNumberReadStream in
// src/hotspot/share/oops/method.cpp). It has pairs of differences in one byte each; pairs that do
// not fit follow a byte 255; a 0 ends the table. The list is sorted by place.
func decodeLines(raw []byte, plain bool) (used int, list []lineRun, ok bool) {
	in := stream{b: raw, plain: plain}
	bci, line := int64(0), int64(0)
	for !in.bad && len(list) <= maxCode {
		switch c := in.byte(); {
		case in.bad:
			return 0, nil, false
		case c == 0:
			return len(raw) - len(in.b), sortRuns(list), true
		case c == 0xff:
			bci += int64(in.signed())
			line += int64(in.signed())
		default:
			bci += int64(c >> 3)
			line += int64(c & 7)
		}
		if in.bad || bci < 0 || bci >= maxCode || line < 0 || line > 1<<24 {
			return 0, nil, false
		}
		list = append(list, lineRun{uint64(bci), int(line)})
	}
	return 0, nil, false
}

// sortRuns sorts runs by place; most are sorted already. Of two at one place the first counts, as
// in Method::line_number_from_bci.
func sortRuns(list []lineRun) []lineRun {
	slices.SortStableFunc(list, func(a, b lineRun) int { return cmp.Compare(a.from, b.from) })
	out := list[:0]
	for _, x := range list {
		if n := len(out); n > 0 && out[n-1].from == x.from {
			continue
		}
		out = append(out, x)
	}
	return out
}

// methodParts is the number of memory parts that identify a method.
const methodParts = 5

// parts appends the spans of these parts.
func (m *method) parts(l *layout, out []stack.Span) []stack.Span {
	return append(out, stack.Span{Addr: m.addr + l.methodConst, Len: 8},
		stack.Span{Addr: m.constMethod, Len: int(l.constMethod)},
		stack.Span{Addr: m.pool + l.poolHolder, Len: 8},
		stack.Span{Addr: m.holder + l.klassName, Len: 8},
		stack.Span{Addr: m.key + l.symbolLength, Len: len(m.sym)})
}

// same reports whether the parts are still those of m. mem returns the i-th part, or nil if it
// could not be read.
func (m *method) same(mem func(i int) []byte) bool {
	for i := range methodParts {
		b := mem(i)
		if b == nil {
			return false
		}
		switch i {
		case 1:
			if !bytes.Equal(b, m.head[:len(m.head)-room]) {
				return false
			}
		case 4:
			if !bytes.Equal(b, m.sym) {
				return false
			}
		default:
			if u64(b, 0) != [...]uint64{m.constMethod, 0, m.holder, m.key}[i] {
				return false
			}
		}
	}
	return true
}
