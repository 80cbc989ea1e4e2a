package swift

import (
	"os"
	"strings"
	"testing"
)

// names returns the lines of testdata/names.txt: mangled, full, short.
func names(t testing.TB) (out [][3]string) {
	b, err := os.ReadFile("testdata/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if f := strings.Split(l, "\t"); len(f) == 3 && l[0] != '#' {
			out = append(out, [3]string(f))
		}
	}
	if len(out) < 150 {
		t.Fatalf("%d names", len(out))
	}
	return out
}

// Names must match Swift's own demangler.
func TestAgainstSwift(t *testing.T) {
	for _, n := range names(t) {
		for o, want := range map[Options]string{{}: n[1], {Short: true}: n[2]} {
			got, err := Demangle(n[0], o)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("%s, %+v\nis %s\n   %s, %v", n[0], o, want, got, err)
			}
		}
	}
}

// An invalid name, or one that refers to itself without end, must return an error.
func TestRefused(t *testing.T) {
	for _, s := range []string{"", "$s", "_$s", "$sxx", "$s9", "$s99999999999a", "$sA", "$sAZ", "$sA9999999999z", "_T0s", "main", "$s\x01abcd",
		"$s4main3fooyyFTf", "$s00", "$s0", "$s4main0A", "$s$", "$sy", "$sXPys4Int8VGE",
		"$sSi" + strings.Repeat("m", 1<<14) + "D", "$s" + strings.Repeat("Si_", 1<<14) + "t"} {
		if got, err := Demangle(s, Options{}); err == nil {
			t.Errorf("%.40q became %.80q", s, got)
		}
	}
	// Types of types.
	s := "$s1a1bV"
	for range 40 {
		s += "yACyACG" // b of b of … of b, each of them twice
	}
	if got, err := Demangle(s, Options{}); err == nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func FuzzDemangle(f *testing.F) {
	for _, n := range names(f) {
		f.Add(n[0])
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, o := range []Options{{}, {Short: true}} {
			got, err := Demangle(s, o)
			if (err == nil) != (got != "") || len(got) > maxOut {
				t.Fatalf("%q: %d bytes, %v", s, len(got), err)
			}
		}
	})
}
