package jvm

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
)

// noise is memory with different content at each place, made of a few bytes. It counts reads.
type noise struct {
	b            []byte
	bytes, reads int
}

func (n *noise) ReadAt(p []byte, addr int64) (int, error) {
	n.bytes += len(p)
	n.reads++
	if len(n.b) == 0 || uint64(addr) >= 1<<47 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = n.b[(uint64(addr)+uint64(i))%uint64(len(n.b))]
	}
	return len(p), nil
}

// Word implements Words.
func (n *noise) Word(addr uint64) (uint64, bool) {
	var b [8]byte
	k, _ := n.ReadAt(b[:], int64(addr&(1<<63-1)))
	return binary.LittleEndian.Uint64(b[:]), k == 8
}

// someLayout returns a layout as of 17 or of 25, for arbitrary memory.
func someLayout(major int) *layout {
	l := &layout{major: major, block: 16, blockUsed: 8, blob: 104, nmethod: 352, blobName: 8, blobSize: 16, blobComplete: 24, blobFrame: 32, blobCode: 40, blobEnd: 48,
		nmMethod: 112, nmCompileID: 120, nmLevel: 124, nmOrigPC: 128, nmEntryBCI: 132, nmPcs: 136, nmData: 144, nmMetadata: 152, nmDependencies: 156,
		nmDeopt: 160, nmDeoptMH: 168, nmOSR: 176, pcOffset: 0, pcScope: 4, pcDesc: 16, methodConst: 8, cmConstants: 8, cmFlags: 32, cmCodeSize: 34, cmName: 36,
		cmSig: 38, constMethod: 48, hasLines: 1, poolHolder: 24, poolLength: 60, poolSource: 56, pool: 72, klassName: 24, symbolLength: 4, symbolBody: 6,
		listLength: 4, listThreads: 8, osThread: 8, osThreadID: 16, threadObj: 24, stackBase: 32, stackSize: 40, pending: 48, waiting: 56,
		anchorSP: 64, anchorPC: 72, anchorFP: 80, monitorOwner: 8, ownerID: none, lockStack: none, lockStackTop: none, osState: 24, condWait: 4, vthread: none, layoutHelper: none,
		blobMutable: none, blobMutableSize: none, blobRelocation: none, nmImmutable: none, nmImmutableSize: none}
	if major >= 23 {
		l.blobMutable, l.blobMutableSize, l.blobRelocation, l.nmImmutable, l.nmImmutableSize = 56, 64, 68, 184, 192
		l.ownerID, l.lockStack, l.lockStackTop = 88, 104, 96
	}
	return l
}

// FuzzMemory: a walk ends soon on any memory and does not panic. It reads at most 256 KiB in 682
// reads, plus the bounded first looks.
func FuzzMemory(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, uint64(0x10000), uint64(0x20000))
	f.Add([]byte{1, 0x10, 1, 0, 0, 0, 0, 0, 0x55, 0x48, 0x83, 0xec, 0x20, 0x5d, 0xc3, 0, 8, 0, 2}, uint64(0x11234), uint64(0x20008))
	f.Add([]byte("nmethod\x00\x10\x00\x01\x00\x00\x00\x00\x00"), uint64(0x10100), uint64(0x10000))
	f.Fuzz(func(t *testing.T, b []byte, pc, sp uint64) {
		for _, major := range []int{17, 25} {
			mem, account, credit := &noise{b: b}, &meter.Meter{}, &meter.Credit{}
			r := &Runtime{&known{Major: major, l: someLayout(major), s: &structs{}, table: managed.NewTable(managed.Of(stack.KindJava), nil),
				blobs: map[uint64]*blob{}, methods: map[uint64]*method{}, names: map[uint64]string{}, offsets: map[string]uint64{}, classes: map[uint64]class{}, callReturn: 0x10800}, account}
			r.heaps.Store(&[]heap{{low: 0x10000, end: 0x90000, segmap: 0x100000, log2: 7}})
			// Entries for the walk to find, as if they had been read.
			for i, k := range []codeKind{kindOther, kindStub, kindInterpreter, kindNmethod, kindVtable, kindAdapter} {
				at := 0x10000 + uint64(i)<<12
				x := &blob{addr: at, kind: k, code: at, end: at + 0x1000, frame: 8 * uint64(i), complete: 24, head: string(make([]byte, 9))}
				if k == kindNmethod {
					x.nm = &nmethod{method: 0x1000, pcs: 0x2000, pcsEnd: 0x2100, scopes: 0x3000, scopesEnd: 0x3100, meta: 0x4000, metaEnd: 0x4040, origPC: 8, deopt: at + 64}
				}
				r.blobs[at+16] = x
			}
			s := &State{Words: &noise{b: b}}
			for _, looks := range []int{meter.MaxLooks, 0} {
				if looks == 0 { // no more first looks allowed
					credit.Spend(meter.Ahead + meter.Share)
				}
				mem.bytes, mem.reads = 0, 0
				account.Begin(mem, credit)
				s.Begin()
				s.PC, s.Exact, s.Known = pc, true, 1<<rbp|1<<rsp|1<<r13|1<<rbx|1<<rax
				s.R[rsp], s.R[rbp], s.R[r13], s.R[rbx], s.R[rax] = sp, sp+16, sp+64, 0x1000, pc
				var frames []stack.Frame
				for range 64 {
					var why stack.Reason
					if frames, why = r.Step(s, frames); why != stack.ReasonNone {
						break
					}
				}
				if len(frames) > 64*(maxInlined+1) {
					t.Fatalf("%d frames", len(frames))
				}
				s.Dedup(0)
				spans := r.Spans(s, nil)
				for _, x := range spans {
					_, _ = account.ReadAt(make([]byte, x.Len), int64(x.Addr))
				}
				_, _, _ = r.Virtual(Carrier{Own: 0x6000, Mounted: 0x6008}, pc, sp, looks == 0)
				account.End()
				if most := meter.Budget + looks; mem.bytes > most || mem.reads > most/meter.LeastRead {
					t.Fatalf("%d bytes in %d reads", mem.bytes, mem.reads)
				}
				r.Still(s, func(i int) []byte { return make([]byte, spans[i].Len) })
			}
			r = r.On(&noise{b: b})
			_, _ = r.Threads()
			r.Wanted(0x5000, int32(pc))
		}
		if _, err := New(&Image{syms: map[string]uint64{"gHotSpotVMStructs": pc}}, 0, &noise{b: b}, managed.NewTable(managed.Of(stack.KindJava), nil)); err == nil {
			t.Fatal("noise is a virtual machine")
		}
	})
}

// image returns memory that holds only HotSpot's tables of a version.
func image(major uint32) (*Image, io.ReaderAt) {
	const base = 0x1000
	mem := make([]byte, 0x1000)
	at := uint64(0x400)
	put := func(off, v uint64) { binary.LittleEndian.PutUint64(mem[off:], v) }
	text := func(s string) uint64 {
		a := at
		copy(mem[a:], s)
		at += uint64(len(s)) + 1
		return base + a
	}
	img := &Image{syms: map[string]uint64{}}
	next := uint64(8)
	sym := func(name string, v uint64) {
		img.syms[name] = base + next
		put(next, v)
		next += 8
	}
	for _, x := range []struct {
		table, entry string
		columns      []string
	}{
		{"gHotSpotVMStructs", "gHotSpotVMStructEntry", []string{"TypeName", "FieldName", "IsStatic", "Offset", "Address"}},
		{"gHotSpotVMTypes", "gHotSpotVMTypeEntry", []string{"TypeName", "Size"}},
		{"gHotSpotVMIntConstants", "gHotSpotVMIntConstantEntry", []string{"Name", "Value"}},
		{"gHotSpotVMLongConstants", "gHotSpotVMLongConstantEntry", []string{"Name", "Value"}},
	} {
		begin := uint64(0xe00) // an entry of zeros ends the table
		if x.table == "gHotSpotVMStructs" {
			begin = 0x300
		}
		sym(x.table, base+begin)
		sym(x.entry+"ArrayStride", 48)
		for i, c := range x.columns {
			sym(x.entry+c+"Offset", 8*uint64(i))
		}
	}
	put(0x300, text("Abstract_VM_Version"))
	put(0x308, text("_vm_major_version"))
	put(0x310, 1)
	put(0x320, base+0x3f0)
	put(0x3f0, uint64(major))
	return img, section{base, mem}
}

// section is memory from base on.
type section struct {
	base uint64
	b    []byte
}

func (s section) ReadAt(p []byte, addr int64) (int, error) {
	if uint64(addr) < s.base || uint64(addr)-s.base >= uint64(len(s.b)) {
		return 0, io.EOF
	}
	n := copy(p, s.b[uint64(addr)-s.base:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestVersions: an untested version is rejected with an error that says so. A tested version with
// incomplete tables is an error too.
func TestVersions(t *testing.T) {
	for _, major := range []uint32{8, 11, 18, 22, 26, 17, 21, 25} {
		img, mem := image(major)
		_, err := New(img, 0, mem, managed.NewTable(managed.Of(stack.KindJava), nil))
		var version *VersionError
		if !errors.As(err, &version) || version.Version == "" {
			t.Errorf("%d: %v", major, err)
			continue
		}
		if known := tried(int64(major)); known != (version.Why != "17, 21 and 25 are known") {
			t.Errorf("%d: %v", major, err)
		}
	}
}
