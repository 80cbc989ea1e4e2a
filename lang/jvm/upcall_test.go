package jvm

import (
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// upcallCode is an upcall stub of Java 25 for two pointers, up to the call that follows the stores, and its end.
var upcallCode = []byte{
	0x55,             // push rbp
	0x48, 0x8b, 0xec, // mov rbp, rsp
	0x48, 0x81, 0xec, 0x80, 0x00, 0x00, 0x00, // sub rsp, 0x80
	0x48, 0x89, 0x7c, 0x24, 0x08, // mov [rsp+8], rdi
	0x48, 0x89, 0x5c, 0x24, 0x18, // mov [rsp+0x18], rbx
	0x4c, 0x89, 0x64, 0x24, 0x20, // mov [rsp+0x20], r12
	0x4c, 0x89, 0x6c, 0x24, 0x28, // mov [rsp+0x28], r13
	0x4c, 0x89, 0x74, 0x24, 0x30, // mov [rsp+0x30], r14
	0x4c, 0x89, 0x7c, 0x24, 0x38, // mov [rsp+0x38], r15
	0xc5, 0xf8, 0xae, 0x5c, 0x24, 0x40, // vstmxcsr [rsp+0x40]
	0xe8, 0, 0, 0, 0, // call
	0x48, 0x8b, 0x5c, 0x24, 0x18, // mov rbx, [rsp+0x18]
	0xc9, // leave
	0xc3, // ret
}

// TestUpcall walks from each instruction of an upcall stub, interrupted there, and from its call.
func TestUpcall(t *testing.T) {
	const (
		code = 0x10000
		base = 0x7f00e8000000 // of the stack
		fp   = base + 0x100
		sp   = fp - 0x80
		ra   = 0x200000
	)
	u := upcallOf(upcallCode)
	if u == nil || u.body != 11 || u.size != 0x80 || len(u.saved) != 5 {
		t.Fatalf("%+v", u)
	}
	offset := uint64(0)
	for _, x := range []struct {
		length uint64 // of the instruction, in bytes
		sp     uint64
		stored int  // of rbx and r12 to r15
		exact  bool // no call returns there
	}{
		{1, fp + 8, 0, true}, {3, fp, 0, true}, {7, fp, 0, true}, {5, sp, 0, true}, {5, sp, 0, true}, {5, sp, 1, true},
		{5, sp, 2, true}, {5, sp, 3, true}, {5, sp, 4, true}, {6, sp, 5, true}, {5, sp, 5, true}, {5, sp, 5, false},
		{1, sp, 5, true}, {1, fp + 8, 5, true},
	} {
		words := map[uint64]uint64{fp: 0xb9, fp + 8: ra}
		s := &State{PC: code + offset, Exact: x.exact, Words: wordsOf(words)}
		s.R[rsp], s.Known = x.sp, 1<<rsp|1<<rbp|1<<rbx|1<<r12|1<<r13|1<<r14|1<<r15
		s.R[rbp] = 0xb9 // before it is pushed and after it was restored
		if x.sp == sp {
			s.R[rbp] = fp
		}
		for i, r := range []int{rbx, r12, r13, r14, r15} {
			s.R[r] = uint64(r)
			if i < x.stored && x.sp == sp {
				words[sp+0x18+8*uint64(i)], s.R[r] = uint64(r), 0xbad
			}
		}
		mem := readerAt(func(p []byte, addr int64) (int, error) { return copy(p, upcallCode[addr-code:]), nil })
		frames, why := u.step(&Runtime{&known{}, mem}, s, &blob{code: code, end: code + uint64(len(upcallCode))}, nil)
		if why != stack.ReasonNone || len(frames) != 1 || frames[0].CFA != fp+16 || s.PC != ra || s.Exact || s.R[rsp] != fp+16 || s.R[rbp] != 0xb9 {
			t.Errorf("at %d: %v %+v, to %#x, sp %#x, rbp %#x", offset, why, frames, s.PC, s.R[rsp], s.R[rbp])
		}
		for _, r := range []int{rbx, r12, r13, r14, r15} {
			if s.R[r] != uint64(r) || s.Known>>r&1 == 0 {
				t.Errorf("at %d: register %d is %#x", offset, r, s.R[r])
			}
		}
		offset += x.length
	}
	if offset != uint64(len(upcallCode)) {
		t.Errorf("the code has %d bytes, not %d", len(upcallCode), offset)
	}
	s := &State{PC: code + 0x50, Words: wordsOf{}}
	s.R[rsp], s.Known = sp, 1<<rsp
	if _, why := u.step(&Runtime{&known{}, nil}, s, &blob{code: code}, nil); why != stack.ReasonMemory || s.Missing != fp+8 || s.PC != code+0x50 || s.R[rsp] != sp {
		t.Errorf("without the stack's memory: %v, %#x is missing, at %#x", why, s.Missing, s.PC)
	}
	for _, bad := range [][]byte{nil, {0xc3}, upcallCode[:40], slices.Concat([]byte{0x90}, upcallCode), {0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xe4, 0xf0}} {
		if u := upcallOf(bad); u != nil {
			t.Errorf("% x: %+v", bad, u)
		}
	}
}

type wordsOf map[uint64]uint64

func (w wordsOf) Word(addr uint64) (uint64, bool) { v, ok := w[addr]; return v, ok }
