package target

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// record returns a record of a thread that died, with n bytes of stack requested and copied bytes
// copied.
func record(n, copied int) []byte {
	var b []byte
	word := func(v uint64) { b = binary.NativeEndian.AppendUint64(b, v) }
	b = binary.NativeEndian.AppendUint32(b, unix.PERF_RECORD_SAMPLE)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, 70)
	b = binary.NativeEndian.AppendUint32(b, 71)
	word(1234)
	word(2)
	for i := range perfRegsLen {
		word(uint64(1000 + i))
	}
	word(uint64(n))
	for i := range n {
		b = append(b, byte(i))
	}
	if n > 0 {
		word(uint64(copied))
	}
	return b
}

// The kernel's record of a death is parsed as the manual defines it. A truncated record, or one
// of a 32-bit program, is rejected.
func TestParseDeath(t *testing.T) {
	x, ok := parseDeath(record(64, 40))
	if !ok || x.PID != 70 || x.TID != 71 || x.At != 1234 || len(x.Stack) != 40 || !bytes.Equal(x.Stack[:3], []byte{0, 1, 2}) ||
		x.SP != x.Regs.R[nativeSP] || x.SP < 1000 || x.Regs.PC < 1000 || x.Regs.PC == x.SP {
		t.Errorf("%+v, %v", x, ok)
	}
	if x, ok := parseDeath(record(0, 0)); !ok || len(x.Stack) != 0 {
		t.Errorf("without a stack: %+v, %v", x, ok)
	}
	if x, ok := parseDeath(record(8, 1<<20)); !ok || len(x.Stack) != 8 {
		t.Errorf("more copied than there is: %+v, %v", x, ok)
	}
	whole := record(64, 64)
	for n := range whole {
		if x, ok := parseDeath(whole[:n]); ok {
			t.Fatalf("%d bytes of %d: %+v", n, len(whole), x)
		}
	}
	small := record(8, 8)
	binary.NativeEndian.PutUint64(small[24:], 1) // PERF_SAMPLE_REGS_ABI_32
	if x, ok := parseDeath(small); ok {
		t.Errorf("%+v", x)
	}
	for s, want := range map[string][]int{"0": {0}, "0-3,5": {0, 1, 2, 3, 5}, "": nil, "3-1": nil, "0-x": nil, "0-999999999": nil} {
		if got, err := parseCPUs(s); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}
