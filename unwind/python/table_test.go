package python

import (
	"reflect"
	"testing"
)

func someCode(name string, size uint64) *Code {
	// Two bytes on the line, four 2 lines on, the rest on none.
	return &Code{Name: name, File: "/a.py", First: 10, Size: size, form: formTable, lines: []byte{2, 0, 4, 2, 100, 0x80}}
}

// TestTable: functions keep their places, equal ones share one, and what is
// written of them says the same.
func TestTable(t *testing.T) {
	tab := NewTable()
	a, size := tab.Add(someCode("a", 20))
	b, _ := tab.Add(someCode("b", 7))
	if again, _ := tab.Add(someCode("a", 20)); again != a || size != 20 || b < a+20 || a <= TableBase {
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
	c, _ := tab.Add(someCode("c", 1))
	rest, n := tab.Since(n)
	if none, m := tab.Since(n); len(none) > 0 || m != n {
		t.Errorf("more of nothing: %d bytes", len(none))
	}
	list, err := ParseTable(first, nil)
	if err == nil {
		list, err = ParseTable(rest, list)
	}
	if err != nil || len(list) != n {
		t.Fatalf("%d functions of %d: %v", len(list), n, err)
	}
	for _, addr := range []uint64{TableBase, a, b + 3, c} {
		if f, g := Find(list, addr), tab.Find(addr); f == nil || !reflect.DeepEqual(f, g) {
			t.Errorf("%#x: %+v, not %+v", addr, f, g)
		}
	}
	if _, err := ParseTable(first[:len(first)-1], nil); err == nil {
		t.Error("a piece that was cut off is taken")
	}
}

// TestTableFull: functions without room are one, and it has a name.
func TestTableFull(t *testing.T) {
	tab := NewTable()
	tab.next = TableEnd - 32
	if a, _ := tab.Add(someCode("fits", 8)); a != TableEnd-32 {
		t.Errorf("at %#x", a)
	}
	a, size := tab.Add(someCode("does not", 100))
	if f := tab.Find(a); a != TableBase || f == nil || f.Size != size || f.Name == "" {
		t.Errorf("at %#x: %+v", a, f)
	}
}

func FuzzTable(f *testing.F) {
	tab := NewTable()
	tab.Add(someCode("a", 20))
	b, _ := tab.Since(0)
	f.Add(b)
	f.Add(b[3:])
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _ := ParseTable(b, nil)
		for i := range list {
			if x := &list[i]; Find(list, x.Addr+x.Size-1) != x || x.Line(x.Addr) < 0 {
				t.Fatalf("%+v", x)
			}
		}
	})
}
