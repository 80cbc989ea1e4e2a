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
	got := parseAside(b, nil)
	want := []AsideBlock{{0x1000, b[xrBlocks : xrBlocks+8]}, {0x3000, b[xrBlocks+2*MaxAsideBlock:][:16]}, {0x5000, b[xrData : xrData+64]}, {0x7000, b[xrStack : xrStack+32]}}
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
		for _, x := range parseAside(bad, nil) {
			if len(x.Data) > MaxAsideStack {
				t.Errorf("word at %d: a block of %d bytes", off, len(x.Data))
			}
		}
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
		var q asideQueue
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
