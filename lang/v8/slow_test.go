package v8

import (
	"encoding/hex"
	"testing"
)

// TestSlowAlloc uses code that Node 18.20 made of an object literal in a loop, from the mov of its
// size on. It is 6,063 bytes from the beginning and continues 3,234 bytes further up.
func TestSlowAlloc(t *testing.T) {
	const alloc = "ba38000000e8109740fc4c8d70ff4d8ba5880100004c8b45184c8b5dc04c8b7dc049b9a93bcc57962e0000e91cf3ffff"
	for _, x := range []struct {
		name, code string
		pc         uint64
		want       int // -1: none
	}{
		{"an object", alloc, 6064, 6064 + 38 - 0xce4},
		{"its end is not there", alloc[:len(alloc)-4], 6064, -1},
		{"in front of the code", alloc, 64, -1},
		{"another size", "ba39000000" + alloc[10:], 6064, -1},
		{"another call", "be38000000" + alloc[10:], 6064, -1},
		{"a branch", "ba38000000e8109740fca8010f840000000090e91cf3ffff", 6064, -1},
		{"forward", "ba38000000e8109740fce910000000", 6064, -1},
	} {
		b, err := hex.DecodeString(x.code)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := afterSlowAlloc(b, x.pc)
		if !ok {
			got = -1
		}
		if got != x.want {
			t.Errorf("%s: %d, want %d", x.name, got, x.want)
		}
	}
}
