package jvm

import "testing"

// TestFollow follows HotSpot's own code: the slow path of a barrier in 25 (G1), C1's stub that
// looks up an exception handler in 17, and C2's in 25.
func TestFollow(t *testing.T) {
	// vmovsd [rsp], %xmm0; mov 0x8(rsp), rax; add rsp, 0x40; jmp -0x40
	barrier := []byte{0xc5, 0xfb, 0x10, 0x04, 0x24, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x83, 0xc4, 0x40, 0xe9, 0xc0, 0xff, 0xff, 0xff}
	// add rsp, 8; jmp +5; call; mov rbx, rax; pop rdx; jmp rbx
	unwind := []byte{0x48, 0x83, 0xc4, 0x08, 0xe9, 5, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0xd8, 0x5a, 0xff, 0xe3}
	for _, x := range []struct {
		name    string
		code    []byte
		through bool
		want    way
	}{
		{"barrier", barrier, false, way{endsJump, 0x40, -1, 0x1000 + 0x13 - 0x40}},
		{"barrier, within", append([]byte{0xe8, 0, 0, 0, 0}, barrier...), true, way{endsJump, 0x40, -1, 0x1000 + 0x18 - 0x40}},
		{"barrier, before a call", append([]byte{0xe8, 0, 0, 0, 0}, barrier...), false, way{popped: -1}},
		{"unwind, with the stack aligned", unwind, true, way{endsBranch, 0x10, 8, 0}},
		{"unwind, without", unwind[14:], true, way{endsBranch, 8, 0, 0}},
		{"a return that takes arguments", []byte{0xc2, 8, 0}, false, way{popped: -1}},
		{"evex, then ret", []byte{0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x44, 0x24, 0x01, 0xc3}, false, way{endsReturn, 0, -1, 0}},
	} {
		if got := follow(x.code, 0x1000, maxAhead, x.through); got != x.want {
			t.Errorf("%s: %+v, not %+v", x.name, got, x.want)
		}
	}
	b := &blob{code: 0xf00, end: 0x2000}
	if d, back := b.slow(barrier, 0x1000, false); d != 0x40 || back != 0xfd3 {
		t.Errorf("slow path of %d bytes back to %#x", d, back)
	}
	b.code = 0x1000 // the jump leaves it
	if d, back := b.slow(barrier, 0x1000, false); d != 0 || back != 0 {
		t.Errorf("a jump elsewhere is a slow path of %d bytes back to %#x", d, back)
	}
}

// TestVex: lengths of instructions that x86asm does not decode.
func TestVex(t *testing.T) {
	for _, x := range []struct {
		code []byte
		want int
	}{
		{[]byte{0xc5, 0xf8, 0x77}, 3},                                      // vzeroupper
		{[]byte{0xc5, 0xfb, 0x11, 0x44, 0x24, 0x08}, 6},                    // vmovsd %xmm0, 8(%rsp)
		{[]byte{0xc5, 0xfa, 0x6f, 0x05, 1, 2, 3, 4}, 8},                    // vmovdqu 0x4030201(%rip), %xmm0
		{[]byte{0xc4, 0xe3, 0x7d, 0x39, 0x44, 0x24, 0x10, 0x01}, 8},        // vextracti128 $1, %ymm0, 0x10(%rsp)
		{[]byte{0xc4, 0xe1, 0xfb, 0x91, 0x84, 0x24, 0, 1, 0, 0}, 10},       // kmovq %k0, 0x100(%rsp)
		{[]byte{0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x04, 0x25, 1, 2, 3, 4}, 11}, // vmovdqu64 %zmm0, 0x4030201
		{[]byte{0xc5, 0xfd, 0x70, 0xc0, 0x1b}, 5},                          // vpshufd $0x1b, %ymm0, %ymm0
		{[]byte{0xc5, 0xfb, 0x11}, 0},                                      // cut off
		{[]byte{0x48, 0x89, 0xe5}, 0},                                      // mov %rsp, %rbp
	} {
		if got := vex(x.code); got != x.want {
			t.Errorf("% x: %d bytes, not %d", x.code, got, x.want)
		}
	}
	for code, want := range map[string]bool{
		"\x48\x81\xec\x18\x00\x00\x00":                     false, // sub rsp, 0x18
		"\x48\x81\xec\x18\x00\x00\x00\x48\x89\x6c\x24\x10": true,  // and mov 0x10(rsp), rbp
		"\x89\x84\x24\x00\xc0\xfe\xff\x55":                 true,  // mov -0x14000(rsp), eax; push rbp
	} {
		if got := keeps([]byte(code)); got != want {
			t.Errorf("% x: %v", code, got)
		}
	}
}
