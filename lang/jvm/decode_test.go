package jvm

import (
	"reflect"
	"testing"
)

// TestLines: pairs of differences are packed into one byte, or follow a byte 255 as separate
// numbers.
func TestLines(t *testing.T) {
	for _, x := range []struct {
		raw   []byte
		plain bool
		want  []lineRun
	}{
		{[]byte{0<<3 | 5, 3<<3 | 1, 0}, true, []lineRun{{0, 5}, {3, 6}}},
		{[]byte{0xff, 0, 80, 16, 0}, true, []lineRun{{0, 40}, {2, 40}}},
		{[]byte{0xff, 1, 81, 2<<3 | 1, 0}, false, []lineRun{{0, 40}, {2, 41}}},
		// Back by two bytecodes: the list is sorted by place.
		{[]byte{5<<3 | 4, 0xff, 3, 4, 0}, true, []lineRun{{3, 6}, {5, 4}}},
	} {
		used, got, ok := decodeLines(x.raw, x.plain)
		if !ok || used != len(x.raw) || !reflect.DeepEqual(got, x.want) {
			t.Errorf("% x: %v, %d bytes, %v; not %v", x.raw, got, used, ok, x.want)
		}
	}
	for _, raw := range [][]byte{nil, {8}, {0xff, 1}, {0xff, 200}} {
		if _, _, ok := decodeLines(raw, true); ok {
			t.Errorf("% x is taken", raw)
		}
	}
}

// TestNumbers: both forms of HotSpot's compressed numbers, with the examples of its own comment
// (unsigned5.hpp of 21: 0 is the byte 1, 190 is 0xbf, 191 is c0 01).
func TestNumbers(t *testing.T) {
	for _, x := range []struct {
		raw   []byte
		plain bool
		want  uint32
	}{
		{[]byte{1}, false, 0}, {[]byte{0xbf}, false, 190}, {[]byte{0xc0, 1}, false, 191}, {[]byte{0xff, 1}, false, 254},
		{[]byte{0xc0, 2}, false, 255}, {[]byte{0}, true, 0}, {[]byte{0xbf}, true, 191}, {[]byte{0xc0, 0}, true, 192},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff}, true, (0xff + 0xff<<6 + 0xff<<12 + 0xff<<18 + 0xff<<24) & (1<<32 - 1)},
	} {
		s := stream{b: x.raw, plain: x.plain}
		if got := s.next(); got != x.want || s.bad || len(s.b) != 0 {
			t.Errorf("% x: %d, %d bytes left, bad %v; not %d", x.raw, got, len(s.b), s.bad, x.want)
		}
	}
	for _, raw := range [][]byte{nil, {0}, {0xc0}, {0xc0, 0}} {
		if s := (stream{b: raw}); s.next() != 0 && !s.bad || !s.bad {
			t.Errorf("% x is taken", raw)
		}
	}
}

// TestStackDepth: the change of the stack pointer from code up to its return, and since its entry.
func TestStackDepth(t *testing.T) {
	for _, x := range []struct {
		name string
		code []byte
		want uint64
		ok   bool
	}{
		{"ret", []byte{0xc3}, 0, true},
		{"pop rbp; ret", []byte{0x5d, 0xc3}, 8, true},
		{"add rsp, 0x20; pop rbp; cmp rsp, [r15+0x118]; ja +5; ret",
			[]byte{0x48, 0x83, 0xc4, 0x20, 0x5d, 0x49, 0x3b, 0xa7, 0x18, 0x01, 0, 0, 0x0f, 0x87, 5, 0, 0, 0, 0xc3}, 0x28, true},
		{"vzeroupper; ret", []byte{0xc5, 0xf8, 0x77, 0xc3}, 0, true},
		{"call; ret", []byte{0xe8, 0, 0, 0, 0, 0xc3}, 0, false},
		{"jmp", []byte{0xeb, 0}, 0, false},
		{"leave; ret", []byte{0xc9, 0xc3}, 0, false},
		{"cut off", []byte{0x5d}, 0, false},
	} {
		if got, ok := popped(x.code); ok != x.ok || ok && got != x.want {
			t.Errorf("%s: %d, %v", x.name, got, ok)
		}
	}
	prologue := []byte{0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x83, 0xec, 0x20} // mov [rsp-0x14000], eax; push rbp; sub rsp, 0x20
	for n, want := range map[int]uint64{0: 0, 7: 0, 8: 8, 12: 0x28} {
		if got, ok := pushed(prologue[:n], true); !ok || got != want {
			t.Errorf("%d bytes of a prologue: %d, %v, not %d", n, got, ok, want)
		}
	}
	if _, ok := pushed(prologue[:9], true); ok {
		t.Error("half an instruction is taken")
	}
	for _, x := range []struct {
		code []byte
		want bool
	}{{[]byte{0xe8, 1, 2, 3, 4}, true}, {[]byte{0xff, 0xd0}, true}, {[]byte{0x41, 0xff, 0xd2}, true}, {[]byte{0xff, 0x50, 0x10}, true},
		{[]byte{0x90, 0x90, 0x90, 0x90, 0x90}, false}, {[]byte{0xff, 0xe0}, false}, {nil, false}} {
		if got := afterCall(x.code); got != x.want {
			t.Errorf("% x: %v", x.code, got)
		}
	}
}

// TestClassName: names in Java's form.
func TestClassName(t *testing.T) {
	for in, want := range map[string]string{
		"java/lang/Thread": "java.lang.Thread", "A$$Lambda$1+0x00007f0001": "A$$Lambda$1/0x00007f0001", "a/B+c": "a.B+c", "": "",
	} {
		if got := ClassName(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0xff, 0, 80, 16, 0}, uint32(1))
	f.Add([]byte{0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3}, uint32(3))
	f.Fuzz(func(t *testing.T, b []byte, at uint32) {
		for _, plain := range []bool{true, false} {
			if used, list, ok := decodeLines(b, plain); ok && (used > len(b) || len(list) > len(b)) {
				t.Fatalf("%d bytes, %d lines of %d bytes", used, len(list), len(b))
			}
			n := &scopes{data: b, mds: []uint64{1, 2}}
			if c := n.chain(3, pcDesc{scope: at}, plain, nil); len(c) > maxInlined {
				t.Fatalf("%d calls", len(c))
			}
			found := 0
			n.slots(pcDesc{scope: at}, plain, func(int, uint64) { found++ })
			if found > 2*maxInlined*len(b) {
				t.Fatalf("%d references in %d bytes", found, len(b))
			}
		}
		popped(b)
		follow(b, uint64(at), maxRestored, true)
		keeps(b)
		pushed(b, true)
		afterCall(b)
	})
}
