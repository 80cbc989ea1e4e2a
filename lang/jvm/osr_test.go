package jvm

import "testing"

// TestOSREntry: where a method that C1 compiled for a running loop is entered, the distance to the return
// address and whether rbp is stored follow from the instructions before. It has two entries.
func TestOSREntry(t *testing.T) {
	const base = 0x1000
	entry := []struct {
		code  []byte
		depth uint64 // before it, up to the return address
		early bool
	}{
		{[]byte{0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff}, 0, true},                             // mov %eax, -0x14000(%rsp)
		{[]byte{0x55}, 0, true},                                                              // push %rbp
		{[]byte{0x48, 0x83, 0xec, 0x30}, 8, false},                                           // sub $0x30, %rsp
		{[]byte{0x41, 0x81, 0x7f, 0x20, 1, 0, 0, 0}, 0x38, false},                            // cmpl $1, 0x20(%r15)
		{[]byte{0x0f, 0x85, 0x40, 0, 0, 0}, 0x38, false},                                     // jne
		{[]byte{0x48, 0x8b, 0x46, 0x08, 0x48, 0x8b, 0xd8, 0x48, 0x8b, 0xd8}, 0x38, false},    // mov 8(%rsi), %rax …
		{[]byte{0x0f, 0x1f, 0x40, 0, 0x0f, 0x1f, 0x40, 0, 0x0f, 0x1f, 0x40, 0}, 0x38, false}, // nop
	}
	var code []byte
	ends := map[uint64]bool{} // after a jump: unknown from the entry
	type expected struct {
		depth uint64
		early bool
	}
	want := map[uint64]expected{}
	for range 2 {
		for i, x := range entry {
			at := base + uint64(len(code))
			want[at], ends[at] = expected{x.depth, x.early}, i > 4
			code = append(code, x.code...)
		}
	}
	size := uint64(len(code))
	mem := words{}
	for i, c := range code {
		mem[(base+uint64(i))&^7] |= uint64(c) << (8 * (i & 7))
	}
	b := &blob{addr: base, kind: kindNmethod, code: base, end: base + size, frame: 0x40, complete: 12, nm: &nmethod{osr: base + size/2}}
	r := &Runtime{&known{}, mem}
	for pc, w := range want {
		d, ok := r.leafDepth(b, pc)
		if first := pc < b.nm.osr && pc >= base+b.complete; first || ends[pc] {
			if ok {
				t.Errorf("%#x: the distance is %#x, though the frame is complete", pc, d)
			}
			continue
		}
		if !ok || d != w.depth {
			t.Errorf("%#x: the distance is %#x, %v, want %#x", pc, d, ok, w.depth)
		}
		if early := r.early(&place{b: b}, pc); early != w.early {
			t.Errorf("%#x: rbp is not stored: %v, want %v", pc, early, w.early)
		}
	}
}
