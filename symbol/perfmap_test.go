package symbol

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParsePerfMap(t *testing.T) {
	long := strings.Repeat("x", maxPerfLine+100)
	m, err := ParsePerfMap(strings.NewReader("1000 10 first\r\n" +
		"garbage\n" +
		"\n" +
		"0x2000 0x20 LazyCompile:*f /app/x.js:1 with spaces\n" +
		"3000 0 empty\n" +
		"zz 10 bad\n" +
		"ffffffffffffffff 10 wraps\n" +
		"1008 4 later\n" +
		"4000 100 old\n" +
		"4000 100 new\n" +
		"5000 10 " + long + "\n" +
		"6000 10 last without newline"))
	if err != nil || m.Bad != 4 {
		t.Errorf("%d bad lines, %v; want 4", m.Bad, err)
	}
	for _, c := range []struct {
		addr, start uint64
		name        string
	}{
		{0xfff, 0, ""}, {0x1000, 0x1000, "first"}, {0x1007, 0x1000, "first"}, {0x1008, 0x1008, "later"},
		{0x100b, 0x1008, "later"}, {0x100c, 0x1000, "first"}, {0x1010, 0, ""},
		{0x201f, 0x2000, "LazyCompile:*f /app/x.js:1 with spaces"}, {0x3000, 0, ""},
		{0x4000, 0x4000, "new"}, {0x6005, 0x6000, "last without newline"}, {^uint64(0), 0, ""},
	} {
		name, start, ok := m.Lookup(c.addr)
		if name != c.name || start != c.start || ok != (c.name != "") {
			t.Errorf("at %#x: %q from %#x, %v; want %q from %#x", c.addr, name, start, ok, c.name, c.start)
		}
	}
	if name, _, ok := m.Lookup(0x5000); !ok || len(name) > maxPerfLine || !strings.HasPrefix(name, "xxx") {
		t.Errorf("the long line became %d bytes", len(name))
	}
	if _, _, ok := (*PerfMap)(nil).Lookup(1); ok {
		t.Error("a nil map knows something")
	}
	want := errors.New("broken")
	m, err = ParsePerfMap(iotest.TimeoutReader(strings.NewReader("1000 10 kept\n")))
	if err != nil && m.Len() != 1 {
		t.Errorf("%d entries, %v", m.Len(), err)
	}
	if _, err = ParsePerfMap(iotest.ErrReader(want)); !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// TestPerfMapLaterWins compares with an array in which every later entry overwrites.
func TestPerfMapLaterWins(t *testing.T) {
	for seed := range int64(200) {
		rnd := rand.New(rand.NewSource(seed))
		var b strings.Builder
		var truth [300]string
		for i := range rnd.Intn(40) {
			lo, n := rnd.Intn(200), 1+rnd.Intn(60)
			fmt.Fprintf(&b, "%x %x f%d\n", lo, n, i)
			for j := lo; j < lo+n; j++ {
				truth[j] = fmt.Sprint("f", i)
			}
		}
		m, err := ParsePerfMap(strings.NewReader(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		for a, want := range truth {
			if got, _, _ := m.Lookup(uint64(a)); got != want {
				t.Fatalf("seed %d: at %#x %q, want %q\n%s", seed, a, got, want, b.String())
			}
		}
	}
}
