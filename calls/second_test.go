package calls

import (
	"encoding/binary"
	"testing"
)

// The instruction behind the entry follows it unless that one branches or faults.
func TestSecond(t *testing.T) {
	for _, c := range []struct {
		name string
		code []byte
		size uint64 // of the first instruction; 0: none follows for certain
	}{
		{"push rbp", []byte{0x55, 0xc3}, 1},
		{"sub rsp, 24", []byte{0x48, 0x83, 0xec, 0x18, 0xc3}, 4},
		{"lea rcx, [rax+rax*2]", []byte{0x48, 0x8d, 0x0c, 0x40, 0xc3}, 4},
		{"mov [rsp+8], rax", []byte{0x48, 0x89, 0x44, 0x24, 0x08, 0xc3}, 5},
		{"mov eax, 1", []byte{0xb8, 1, 0, 0, 0, 0xc3}, 5},
		{"xorps xmm0, xmm0", []byte{0x0f, 0x57, 0xc0, 0xc3}, 3},
		{"mov rax, [rax]", []byte{0x48, 0x8b, 0x00, 0xc3}, 0},
		{"mov rax, [r12+8]", []byte{0x49, 0x8b, 0x44, 0x24, 0x08, 0xc3}, 0},
		{"mov rax, [rsp+rcx*8]", []byte{0x48, 0x8b, 0x04, 0xcc, 0xc3}, 0},
		{"idiv rcx", []byte{0x48, 0xf7, 0xf9, 0xc3}, 0},
		{"call", []byte{0xe8, 0, 0, 0, 0, 0xc3}, 0},
		{"ud2", []byte{0x0f, 0x0b, 0xc3}, 0},
		{"ret", []byte{0xc3, 0xcc}, 0},
		{"nothing follows", []byte{0x55}, 0},
	} {
		got, err := Scan(AMD64, []Part{{0x1000, c.code}}, true)
		if want := 0x1000 + c.size; err != nil || got.Second != want && c.size > 0 || got.Second != 0 && c.size == 0 {
			t.Errorf("%s: %#x, %v", c.name, got.Second, err)
		}
	}
	for _, c := range []struct {
		name string
		word uint32
		ok   bool
	}{
		{"str x30, [sp, #-32]!", 0xf81e0ffe, true},
		{"stp x29, x30, [sp, #-16]!", 0xa9bf7bfd, true},
		{"sub sp, sp, #32", 0xd10083ff, true},
		{"add x0, x0, x1", 0x8b010000, true},
		{"ldr x0, [x0]", 0xf9400000, false},
		{"ldp x0, x1, [x2]", 0xa9400440, false},
		{"cbz x0, +8", 0xb4000040, false},
		{"bl", 0x94000000, false},
		{"ret", 0xd65f03c0, false},
		{"brk", 0xd4200000, false},
	} {
		code := binary.LittleEndian.AppendUint32(nil, c.word)
		got, err := Scan(ARM64, []Part{{0x1000, append(code, 0xc0, 0x03, 0x5f, 0xd6)}}, true)
		if err != nil || (got.Second == 0x1004) != c.ok {
			t.Errorf("%s: %#x, %v", c.name, got.Second, err)
		}
	}
}
