package target

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNameIn: the kernel's record of a new name, and a thread's names from it and from /proc.
func TestNameIn(t *testing.T) {
	b := make([]byte, 16, 32)
	binary.NativeEndian.PutUint32(b, unix.PERF_RECORD_COMM)
	binary.NativeEndian.PutUint32(b[8:], 41)
	binary.NativeEndian.PutUint32(b[12:], 42)
	tid, name, ok := nameIn(append(b, "work) er\x00\x00\x00\x00\x00\x00\x00\x00"...))
	if !ok || tid != 42 || string(name) != "work) er" {
		t.Errorf("%d %q %v", tid, name, ok)
	}
	for _, bad := range [][]byte{nil, b, append(b, "never ends"...), make([]byte, 32)} {
		if _, name, ok := nameIn(bad); ok {
			t.Errorf("%q of % x", name, bad)
		}
	}
	var th Thread
	for _, x := range []struct {
		name string
		new  bool
	}{{"a", true}, {"a", false}, {"b", true}, {"", true}} {
		th.setName([]byte(x.name))
		if name, ok := th.NewName(); ok != x.new || ok && name != x.name {
			t.Errorf("%q: %q %v", x.name, name, ok)
		}
	}
}
