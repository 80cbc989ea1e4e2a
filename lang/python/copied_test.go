package python

import (
	"bytes"
	"testing"

	"github.com/sliverprof/sliver/unwind"
)

// A code object whose name or file is another one in a copy is not the copy's, although all addresses are the same. What the
// copy lacks says nothing.
func TestContradicts(t *testing.T) {
	const at, typ = 0x1000, 0x77
	text := func(s string) []byte { return wanted(typ, uint64(len(s)), []byte(s)) }
	c := &Code{pieces: []object{{addr: at, skip: 24, want: text("side10.py")}, {addr: 0x9000, skip: 24, want: text("<module>")}}}
	memory := func(s string) *unwind.Copy {
		w := text(s)
		return &unwind.Copy{Blocks: []unwind.Block{{Addr: at + obType, Data: append(append(bytes.Clone(w[:16]), make([]byte, 8)...), w[16:]...)}}}
	}
	for _, x := range []struct {
		name string
		mem  *unwind.Copy
		want bool
	}{
		{"the same", memory("side10.py"), false},
		{"another file", memory("side11.py"), true},
		{"another length", memory("deep3.py "), true},
		{"a longer one", memory("side10.pyc"), true},
		{"too little", &unwind.Copy{Blocks: []unwind.Block{{Addr: at + obType, Data: make([]byte, 20)}}}, false},
		{"nothing", &unwind.Copy{}, false},
	} {
		if got := c.contradicts(x.mem); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}
