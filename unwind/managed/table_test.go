package managed

import (
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// add adds a function to tab: two bytes on line 10, four on line 12, the rest without a line.
func add(tab *Table, name string, size uint64) (addr, bytes uint64) {
	return tab.Add(Key{Name: name, File: "/a.py", First: 10, Size: size, Lines: tab.Hash([]byte{10, 12})}, func(yield func(uint64, int) bool) {
		_ = yield(2, 10) && yield(6, 12) && yield(1<<20, 0)
	})
}

// TestTable: functions keep their addresses, equal ones share one, and the encoded table decodes to
// the same functions.
func TestTable(t *testing.T) {
	tab := NewTable(Of(stack.KindPython), nil)
	a, size := add(tab, "a", 20)
	b, _ := add(tab, "b", 7)
	if again, _ := add(tab, "a", 20); again != a || size != 20 || b < a+20 || a <= Of(stack.KindPython).Start {
		t.Fatalf("a at %#x (%d bytes) and %#x, b at %#x", a, size, again, b)
	}
	for addr, want := range map[uint64]int{a: 10, a + 1: 10, a + 2: 12, a + 5: 12, a + 6: 0, a + 19: 0} {
		if f := tab.Find(addr); f == nil || f.Name != "a" || f.Line(addr) != want {
			t.Errorf("%#x: %+v", addr, f)
		}
	}
	if f := tab.Find(a + 20); f != nil {
		t.Errorf("between the two: %+v", f)
	}
	first, n := tab.Since(0)
	c, _ := add(tab, "c", 1)
	rest, n := tab.Since(n)
	if none, m := tab.Since(n); len(none) > 0 || m != n {
		t.Errorf("more of nothing: %d bytes", len(none))
	}
	list, err := Parse(Of(stack.KindPython), first, nil)
	if err == nil {
		list, err = Parse(Of(stack.KindPython), rest, list)
	}
	if err != nil || len(list) != n {
		t.Fatalf("%d functions of %d: %v", len(list), n, err)
	}
	for _, addr := range []uint64{Of(stack.KindPython).Start, a, b + 3, c} {
		if f, g := Find(list, addr), tab.Find(addr); f == nil || !reflect.DeepEqual(f, g) {
			t.Errorf("%#x: %+v, not %+v", addr, f, g)
		}
	}
	if _, err := Parse(Of(stack.KindPython), first[:len(first)-1], nil); err == nil {
		t.Error("a piece that was cut off is taken")
	}
}

// TestTableFull: functions without room share one entry, and it has a name.
func TestTableFull(t *testing.T) {
	tab := NewTable(Of(stack.KindPython), nil)
	tab.next = Of(stack.KindPython).End - 32
	if a, _ := add(tab, "fits", 8); a != Of(stack.KindPython).End-32 {
		t.Errorf("at %#x", a)
	}
	a, size := add(tab, "does not", 100)
	if f := tab.Find(a); a != Of(stack.KindPython).Start || f == nil || f.Size != size || f.Name == "" {
		t.Errorf("at %#x: %+v", a, f)
	}
}

// TestRanges: each address is in one range at most, and each range is found by its name.
func TestRanges(t *testing.T) {
	last := uint64(0)
	for _, r := range Ranges() {
		if r.Start < last || r.End <= r.Start || r.End > 1<<48 {
			t.Errorf("%+v behind %#x", r, last)
		}
		last = r.End
		for _, addr := range []uint64{r.Start, r.End - 1} {
			if got, ok := At(addr); !ok || got != r {
				t.Errorf("%#x: %+v, not %+v", addr, got, r)
			}
		}
		if got, ok := Named(r.Module); !ok || got != r {
			t.Errorf("%s: %+v", r.Module, got)
		}
	}
	for _, addr := range []uint64{0, Of(stack.KindPython).Start - 1, last} {
		if r, ok := At(addr); ok {
			t.Errorf("%#x: %+v", addr, r)
		}
	}
	if r, ok := Named("[stack]"); ok {
		t.Errorf("%+v", r)
	}
}

// TestFresh: a new function is signaled once, a known one is not.
func TestFresh(t *testing.T) {
	fresh := make(chan struct{}, 1)
	tab := NewTable(Of(stack.KindJava), fresh)
	add(tab, "a", 4)
	if len(fresh) != 1 {
		t.Fatal("not told")
	}
	<-fresh
	add(tab, "a", 4)
	if len(fresh) != 0 {
		t.Error("told of what is known")
	}
	add(tab, "b", 0)
	add(tab, "c", 4)
	if len(fresh) != 1 {
		t.Error("not told")
	}
}

func FuzzTable(f *testing.F) {
	tab := NewTable(Of(stack.KindPython), nil)
	add(tab, "a", 20)
	b, _ := tab.Since(0)
	f.Add(b)
	f.Add(b[3:])
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _ := Parse(Of(stack.KindPython), b, nil)
		for i := range list {
			if x := &list[i]; Find(list, x.Addr+x.Size-1) != x || x.Line(x.Addr) < 0 {
				t.Fatalf("%+v", x)
			}
		}
	})
}
