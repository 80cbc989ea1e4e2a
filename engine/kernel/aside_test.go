package kernel

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// asideRecord is a record of a copy at that time and place, with two blocks, a task's data and n bytes of its stack.
func asideRecord(at stack.Time, sp, pc uint64, n int) []byte {
	b := make([]byte, xrStack+n)
	put := func(off int, v uint64) { binary.NativeEndian.PutUint64(b[off:], v) }
	put(xrTime, uint64(at))
	put(xrSP, sp)
	put(xrPC, pc)
	put(xrRead, 1|1<<2|1<<MaxAsideBlocks)
	put(xrPlan, 0x1000)
	put(xrPlan+8, 8)
	put(xrPlan+32, 0x3000)
	put(xrPlan+40, 16)
	put(xrTask, 0x5000)
	put(xrTaskLen, 64)
	put(xrAddr, 0x7000)
	put(xrLen, uint64(n))
	for i := xrBlocks; i < len(b); i++ {
		b[i] = byte(i * 7)
	}
	return b
}

func TestAsideRecord(t *testing.T) {
	b := asideRecord(1, 2, 3, 32)
	got := parseAside(b, false, nil)
	want := []Page{{0x1000, b[xrBlocks : xrBlocks+8]}, {0x3000, b[xrBlocks+2*MaxAsideBlock:][:16]}, {0x5000, b[xrData : xrData+64]}, {0x7000, b[xrStack : xrStack+32]}}
	if len(got) != len(want) {
		t.Fatalf("%d blocks, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Addr != want[i].Addr || !bytes.Equal(got[i].Data, want[i].Data) {
			t.Errorf("block %d: %#x, %d bytes; want %#x, %d", i, got[i].Addr, len(got[i].Data), want[i].Addr, len(want[i].Data))
		}
	}
	for off := 0; off < xrBlocks; off += 8 { // lengths and bits that no program of ours writes
		bad := bytes.Clone(b)
		binary.NativeEndian.PutUint64(bad[off:], ^uint64(0))
		for _, x := range parseAside(bad, false, nil) {
			if len(x.Data) > MaxAsideStack {
				t.Errorf("word at %d: a block of %d bytes", off, len(x.Data))
			}
		}
	}
}

// TestAsideListRecord: a record of a list has as many elements as it is long, whatever it says.
func TestAsideListRecord(t *testing.T) {
	const elements = 3
	b := asideRecord(1, 2, 3, lnLinks+elements*listedBytes)
	put := func(off int, v uint64) { binary.NativeEndian.PutUint64(b[off:], v) }
	for off, v := range map[int]uint64{lnHead: 0x9000, lnSize: 24, lnLen: 80, lnObjLen: 0, lnNew: 0, lnCount: elements} {
		put(xrStack+off, v)
	}
	for i := range elements {
		put(xrStack+lnLinks+i*listedBytes, uint64(0xa000+i*0x100))
	}
	got := parseAside(b, true, nil)[3:] // behind the blocks and the task
	if len(got) != 1+elements || got[0].Addr != 0x9000 || len(got[0].Data) != 24 || got[3].Addr != 0xa200 || len(got[3].Data) != 80 {
		t.Errorf("%d blocks: %+v", len(got), got)
	}
	for _, n := range []uint64{elements + 1, 1 << 40} {
		put(xrStack+lnCount, n)
		if got := parseAside(b, true, nil); len(got) != 3+1+elements {
			t.Errorf("%d elements in a record of %d: %d blocks", n, elements, len(got))
		}
	}
	for n := range lnLinks + 1 {
		put(xrLen, uint64(n))
		if got := parseAside(b, true, nil); n < lnLinks && len(got) != 3 || len(got) > 4 {
			t.Fatalf("%d bytes of a list: %d blocks", n, len(got))
		}
	}
}

// TestAsidePool: records of all threads together are bounded, and their memory is used again.
func TestAsidePool(t *testing.T) {
	p := &asidePool{}
	qs := []asideQueue{{pool: p}, {pool: p}}
	const size = 1 << 20
	kept := 0
	for i := range 2 * asideBytes / size {
		b := make([]byte, size)
		if free := qs[i&1].add(b); free == nil {
			kept++
		} else if &free[0] != &b[0] {
			t.Fatal("a record that is not kept does not give its memory back")
		}
	}
	if kept != asideBytes/size || p.bytes != asideBytes {
		t.Errorf("%d records of %d bytes are kept, %d bytes", kept, size, p.bytes)
	}
	for i := range qs {
		qs[i].drop(len(qs[i].queue))
	}
	if p.bytes != 0 || len(p.free) > freeAsides || len(p.free) == 0 {
		t.Errorf("%d bytes and %d free records are left", p.bytes, len(p.free))
	}
	if free := qs[0].add(make([]byte, 100)); len(free) != size || p.bytes != 100 {
		t.Errorf("the next record has %d bytes of memory, and %d are kept", len(free), p.bytes)
	}
}

// TestAsideQueue: a copy gets the record that was made with it, whichever of both has the earlier time, and never
// that of another copy.
func TestAsideQueue(t *testing.T) {
	const ms = stack.Time(1_000_000)
	for _, x := range []struct {
		name   string
		sp, pc uint64
		at     stack.Time
		want   stack.Time // of the record; 0: none
		left   int        // records that remain
	}{
		{"the program ran first", 100, 200, 2*ms + 3000, 2 * ms, 1},
		{"the kernel read the time first", 100, 200, 2*ms - 3000, 2 * ms, 1},
		{"a record was lost", 100, 200, 2*ms + 500_000, 0, 1},
		{"at another place", 100, 204, 2 * ms, 0, 2},
		{"on another stack", 108, 200, 2 * ms, 0, 2},
		{"older than all", 100, 200, ms / 2, 0, 3},
		{"newer than all", 100, 200, 9 * ms, 0, 0},
		{"the last one", 100, 200, 3 * ms, 3 * ms, 0},
	} {
		q := asideQueue{pool: &asidePool{}}
		for i := range stack.Time(3) {
			q.add(asideRecord((i+1)*ms, 100, 200, 0))
		}
		got := stack.Time(0)
		if b := q.take(x.at, x.sp, x.pc); b != nil {
			got = recordTime(b)
		}
		if got != x.want || len(q.queue) != x.left {
			t.Errorf("%s: the record of %d and %d left, want %d and %d", x.name, got, len(q.queue), x.want, x.left)
		}
	}
}

func BenchmarkOpenAsides(b *testing.B) {
	for _, lists := range []bool{false, true} {
		b.Run(map[bool]string{false: "tasks", true: "lists"}[lists], func(b *testing.B) {
			for b.Loop() {
				e, err := OpenAsides(lists)
				if err != nil {
					b.Skip(err)
				}
				_ = e.Close()
			}
		})
	}
}
