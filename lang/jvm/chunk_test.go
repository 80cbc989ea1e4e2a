package jvm

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
)

// bounded is memory that ends.
type bounded struct {
	words
	end uint64
}

// ReadAt implements io.ReaderAt.
func (b bounded) ReadAt(p []byte, addr int64) (int, error) {
	if uint64(addr)+uint64(len(p)) > b.end {
		return 0, io.EOF
	}
	return b.words.ReadAt(p, addr)
}

const (
	threadClass, contClass, chunkClass = 0x100, 0x200, 0x300
	threadAt, contAt                   = 0x1000, 0x1100
	fieldsAt, stackAt                  = 0x10, 0x40 // of the tests' objects: class, then their first field, and a chunk's words
)

// chunkRuntime is a virtual machine with chunks as of the tests.
func chunkRuntime(mem io.ReaderAt) *Runtime {
	k := &known{Major: 25, l: someLayout(25), s: &structs{}, table: managed.NewTable(managed.Of(stack.KindJava), nil), blobs: map[uint64]*blob{},
		methods: map[uint64]*method{}, names: map[uint64]string{}, offsets: map[string]uint64{}, classes: map[uint64]class{}, callReturn: 0x10800,
		oops: &oops{classAt: 8, super: 0x18, gc: collector{active: none, count: none}}}
	k.chunks.fields = &chunkFields{thread: threadClass, scheduling: contClass, class: chunkClass, cont: fieldsAt, tail: fieldsAt,
		parent: fieldsAt, size: fieldsAt + 8, sp: fieldsAt + 16, bottom: fieldsAt + 24, stack: stackAt}
	return &Runtime{k, mem}
}

// put stores the words of an object of a class.
func put(mem words, at, class uint64, fields ...uint64) {
	mem[at+8] = class
	for i, v := range fields {
		mem[at+fieldsAt+8*uint64(i)] = v
	}
}

// TestChunks: the chunks of a virtual thread are found, innermost first. An object that is not a chunk, or
// more bytes than the bounds allow, ends the walk.
func TestChunks(t *testing.T) {
	const inner, outer, empty = 0x2000, 0x3000, 0x4000
	good := func() words {
		m := words{}
		put(m, threadAt, threadClass, contAt)
		put(m, contAt, contClass, inner)
		put(m, inner, chunkClass, empty, 20, 10, 14) // parent, size, sp, bottom
		put(m, empty, chunkClass, outer, 8, 8, 8)
		put(m, outer, chunkClass, 0, 6, 0, 6)
		for i := range uint64(64) {
			m[inner+stackAt+8*i], m[outer+stackAt+8*i] = 0xa00+i, 0xb00+i
		}
		m[outer+stackAt-16], m[outer+stackAt-8] = 0xc00, 0xc01 // the head of a full chunk is in its fields
		return m
	}
	for _, c := range []struct {
		name   string
		change func(m words)
		chunks int
		want   stack.Reason
	}{
		{"two, one of them empty", nil, 2, stack.ReasonNone},
		{"none", func(m words) { put(m, contAt, contClass, 0) }, 0, stack.ReasonNone},
		{"a circle", func(m words) { put(m, outer, chunkClass, inner, 6, 0, 6) }, 43, stack.ReasonBound}, // 64, of which 21 are empty
		{"frames of 128 KiB", func(m words) {
			put(m, outer, chunkClass, 0, maxChunkBytes/8, 0, maxChunkBytes/8)
		}, 1, stack.ReasonBound},
		{"a chunk that is too large", func(m words) { put(m, outer, chunkClass, 0, maxChunkWords+1, 0, 6) }, 0, stack.ReasonHeap},
		{"frames that begin after their end", func(m words) { put(m, outer, chunkClass, 0, 6, 5, 4) }, 0, stack.ReasonHeap},
		{"frames beyond the chunk", func(m words) { put(m, outer, chunkClass, 0, 6, 0, 7) }, 0, stack.ReasonHeap},
		{"an object of another class", func(m words) { put(m, outer, contClass, 0, 6, 0, 6) }, 0, stack.ReasonHeap},
		{"a thread of another class", func(m words) { put(m, threadAt, contClass, contAt) }, 0, stack.ReasonHeap},
		{"a parent outside of memory", func(m words) { put(m, inner, chunkClass, 1<<40, 20, 10, 14) }, 0, stack.ReasonHeap},
	} {
		m := good()
		if c.change != nil {
			c.change(m)
		}
		got, buf, why := chunkRuntime(bounded{m, 1 << 20}).Chunks(Carrier{Mounted: 0x6008}, threadAt, nil, nil)
		if len(got) != c.chunks || why != c.want || len(buf) > maxChunkBytes {
			t.Errorf("%s: %d chunks of %d bytes, %v; want %d, %v", c.name, len(got), len(buf), why, c.chunks, c.want)
		}
		if c.change != nil {
			continue
		}
		for i, x := range []struct{ addr, end, first uint64 }{
			{inner + stackAt + 8*10 - chunkHead, inner + stackAt + 8*14, 0xa08},
			{outer + stackAt - chunkHead, outer + stackAt + 8*6, 0xc00},
		} {
			if g := got[i]; g.Addr != x.addr || g.bottom != x.end || uint64(len(g.Data)) != x.end-x.addr || binary.LittleEndian.Uint64(g.Data) != x.first {
				t.Errorf("chunk %d: %#x to %#x, %d bytes, %x", i, g.Addr, g.bottom, len(g.Data), g.Data[:8])
			}
		}
	}
	// Earlier chunks in the list stay.
	m := good()
	put(m, outer, contClass, 0)
	got, buf, _ := chunkRuntime(bounded{m, 1 << 20}).Chunks(Carrier{}, threadAt, []Chunk{{Addr: 1}}, []byte{7})
	if len(got) != 1 || len(buf) != 1 || got[0].Addr != 1 {
		t.Errorf("%d chunks and %d bytes are left of those before", len(got), len(buf))
	}
}

// TestChunkReturnsToStub: a frame in the heap returns to the stub that continues in the heap, as one may that is being copied.
// The walk ends there.
func TestChunkReturnsToStub(t *testing.T) {
	r := chunkRuntime(words{})
	r.heaps.Store(&[]heap{{low: 0x10000, end: 0x90000, segmap: 0x100000, log2: 7}})
	for i, k := range []codeKind{kindStub, kindInterpreter} {
		at := 0x11000 + uint64(i)<<12
		r.blobs[at+16] = &blob{addr: at, kind: k, code: at, end: at + 0x1000, frame: 16, complete: 24, head: string(make([]byte, 9)), continuation: k == kindStub}
	}
	const stub, method = 0x11050, 0x12040
	c := Chunk{Addr: 0x200000, Data: make([]byte, chunkHead+64), bottom: 0x200000 + chunkHead + 64}
	binary.LittleEndian.PutUint64(c.Data[chunkHead-8:], stub)
	binary.LittleEndian.PutUint64(c.Data[chunkHead+8:], method)
	s := &State{Words: &chunkWords{c: &c}, Chunks: func() ([]Chunk, stack.Reason) { return []Chunk{c}, stack.ReasonNone }}
	s.Begin()
	out, ok := r.inHeap(s, 0x7000, []stack.Frame{{PC: method, CFA: 0x6ff0, Kind: stack.KindJava}})
	if ok || len(out) != 1 {
		t.Errorf("%d frames, continued %v", len(out), ok)
	}
}

// FuzzChunks: a walk through frames in the heap ends on any memory, does not panic, and has at most one
// frame for each word.
func FuzzChunks(f *testing.F) {
	seed := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		return b
	}
	// The noise is the code cache's segment map too: compiled frames, an interpreted one, two chunks.
	f.Add(seed(0, 0x13040, 0, 0, 0, 0x13040, 0, 0), uint16(0))
	f.Add(seed(3, 0x12040, 2, 0, 0x13000, 0, 0, 0, 0, 1, 0, 0), uint16(0))
	f.Add(seed(0, 0x13040, 0, 0, 0, 0x13040, 0, 0), uint16(6))
	f.Add(seed(0x11010, 0x11010, 0x12010, 0x13010, 0x14010, 0x15010), uint16(2))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		mem, account, credit := &noise{b: b}, &meter.Meter{}, &meter.Credit{}
		r := chunkRuntime(account)
		r.heaps.Store(&[]heap{{low: 0x10000, end: 0x90000, segmap: 0x100000, log2: 7}})
		for i, k := range []codeKind{kindOther, kindStub, kindInterpreter, kindNmethod, kindVtable, kindAdapter} {
			at := 0x10000 + uint64(i)<<12
			x := &blob{addr: at, kind: k, code: at, end: at + 0x1000, frame: 8 * uint64(i+1), complete: 24, head: string(make([]byte, 9)), continuation: k == kindStub}
			if k == kindNmethod {
				x.nm = &nmethod{method: 0x1000, pcs: 0x2000, pcsEnd: 0x2100, scopes: 0x3000, scopesEnd: 0x3100, meta: 0x4000, metaEnd: 0x4040, origPC: 8, deopt: at + 64}
			}
			r.blobs[at+16] = x
		}
		b = b[:min(len(b)&^7, maxChunkBytes)]
		n := min(int(cut)*8, len(b))
		if n%16 != 0 {
			n -= 8
		}
		var list []Chunk
		for _, data := range [][]byte{b[:n], b[n:]} {
			if len(data) > chunkHead {
				addr := 0x200000 + uint64(len(list))<<20
				list = append(list, Chunk{Addr: addr, Data: data, bottom: addr + uint64(len(data))})
			}
		}
		account.Begin(mem, credit)
		s := &State{Words: mem, Chunks: func() ([]Chunk, stack.Reason) { return list, stack.ReasonNone }}
		s.Begin()
		s.PC, s.Known = 0x13050, 1<<rsp
		s.R[rsp] = 0x7000
		was := *s
		in := []stack.Frame{{PC: 0x13050, CFA: 0x6ff0, Kind: stack.KindJava}}
		out, ok := r.inHeap(s, 0x7000, in)
		account.End()
		if !ok && (len(out) != 1 || out[0].CFA != 0x6ff0) {
			t.Fatalf("the walk went on without the chunks, with %d frames", len(out))
		}
		if most := len(b)/8*(maxInlined+1) + 2; len(out) > most {
			t.Fatalf("%d frames of %d bytes", len(out), len(b))
		}
		if s.PC != was.PC || s.R != was.R || s.Words != was.Words {
			t.Fatal("the walk left the thread's registers changed")
		}
		_, _, _ = chunkRuntime(mem).Chunks(Carrier{}, uint64(cut), nil, nil)
	})
}
