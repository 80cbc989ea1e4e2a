package target

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// TestNameIn: the kernel's record of a new name.
func TestNameIn(t *testing.T) {
	head := make([]byte, 16, 64)
	binary.NativeEndian.PutUint32(head, unix.PERF_RECORD_COMM)
	binary.NativeEndian.PutUint32(head[8:], 41)
	binary.NativeEndian.PutUint32(head[12:], 42)
	tail := make([]byte, 16)
	binary.NativeEndian.PutUint64(tail[8:], 77)
	record := func(name string) []byte { return append(append(head[:16:16], name...), tail...) }
	tid, name, at, ok := nameIn(record("work) er\x00\x00\x00\x00\x00\x00\x00\x00"))
	if !ok || tid != 42 || string(name) != "work) er" || at != 77 {
		t.Errorf("%d %q %d %v", tid, name, at, ok)
	}
	for _, bad := range [][]byte{nil, head, record("never ends"), make([]byte, 48)} {
		if _, name, _, ok := nameIn(bad); ok {
			t.Errorf("%q of % x", name, bad)
		}
	}
}

// TestNewName: names come from State as of now, and later from records of the clock, which are older.
func TestNewName(t *testing.T) {
	type seen = seenName
	for i, x := range []struct {
		seen []seen
		want []seen // of increasing times; an empty name: nothing new
	}{
		{[]seen{{"a", 10}}, []seen{{"", 9}, {"a", 10}, {"", 11}}},
		{[]seen{{"a", 10}, {"b", 20}}, []seen{{"a", 15}, {"b", 25}, {"", 26}}},
		{[]seen{{"a", 10}, {"b", 20}}, []seen{{"b", 25}, {"", 26}}},
		{[]seen{{"b", 30}, {"a", 10}, {"b", 20}}, []seen{{"a", 12}, {"b", 22}, {"", 31}}},
		{[]seen{{"b", 30}, {"b", 20}}, []seen{{"", 12}, {"b", 22}, {"", 31}}},
	} {
		var th Thread
		for _, s := range x.seen {
			th.names.saw([]byte(s.name), s.at)
		}
		for _, w := range x.want {
			if name, ok := th.NewName(w.at); ok != (w.name != "") || ok && name != w.name {
				t.Errorf("row %d at %d: %q %v, want %q", i, w.at, name, ok, w.name)
			}
		}
		th.names.saw([]byte("late"), x.want[0].at-100)
		if name, ok := th.NewName(1000); ok && th.names.from < 100 {
			t.Errorf("row %d: %q, seen before the last one", i, name)
		}
	}
	var th Thread
	for i := range 3 * maxNames {
		th.names.saw(fmt.Appendf(nil, "%d", i), stack.Time(i))
	}
	if len(th.names.fresh) != maxNames || !th.names.newest(fmt.Appendf(nil, "%d", 3*maxNames-1)) {
		t.Errorf("%d names wait: %+v", len(th.names.fresh), th.names.fresh)
	}
}
