package symbol

import (
	"bytes"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// seeds returns small programs with every kind of name source, fewer if compilers are
// missing.
func seeds(t testing.TB) (files [][]byte) {
	if _, err := exec.LookPath("gcc"); err != nil {
		return nil
	}
	_, err := exec.LookPath("dwz")
	const flags = "gcc -nostdlib -static -Wl,-e,main -O2 -g "
	for _, script := range []string{
		flags + "-gdwarf-5 chain.c -o a",
		flags + "-gdwarf-4 chain.c -o a",
		flags + "-gdwarf-2 chain.c -o a",
		flags + "-gz=zlib chain.c -o a",
		"gcc -nostdlib -shared -fPIC -O2 chain.c -o full; strip -o a full",
		"gcc -nostdlib -static -Wl,-e,main -O2 chain.c -o full; objcopy -S --keep-symbol=outer full mini; xz -q mini; " +
			"strip -o a full; objcopy --add-section .gnu_debugdata=mini.xz a",
		flags + "-gsplit-dwarf chain.c -o b; cp *.dwo a",
		flags + "chain.c -o a; " + flags + "twin.c -o b; dwz -m common.debug a b",
		flags + "chain.c -o b; " + flags + "twin.c -o c; dwz -m a b c",
	} {
		if err != nil && strings.Contains(script, "dwz ") {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(fixture(t, script), "a")); err == nil {
			files = append(files, b)
		}
	}
	return files
}

// use looks up names in a file as a dump does, at addresses of its code.
func use(t testing.TB, data, debug []byte) {
	f, err := Open(bytes.NewReader(data), Options{Path: "/bin/x", Finder: always(debug), Budget: 1 << 16})
	if err != nil {
		return
	}
	defer f.Close()
	addrs := []uint64{0, 1, f.main.f.Entry, ^uint64(0)}
	for _, s := range f.main.text[:min(len(f.main.text), 4)] {
		for i := range uint64(24) {
			addrs = append(addrs, s.lo+i*((s.hi-s.lo)/24+1))
		}
	}
	ResolveModule(f, addrs, func(v uint64, fr []Frame) {
		for i := range fr {
			if fr[i].Func == "" {
				t.Errorf("at %#x: no name in %+v", v, fr)
			}
		}
	})
	f.Problems()
	BuildID(bytes.NewReader(data))
}

// always returns the same bytes for every query.
type always []byte

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

func (a always) Find(_ Query, try func(string, Source) bool) {
	if len(a) > 0 {
		try("/debug/x", nopCloser{bytes.NewReader(a)})
	}
}

// FuzzFrames: a damaged file, alone or as its own debug file, only costs names.
func FuzzFrames(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Add([]byte("\x7fELF"), false)
	f.Fuzz(func(t *testing.T, data []byte, asDebug bool) {
		if asDebug {
			use(t, data, data)
		} else {
			use(t, data, nil)
		}
	})
}

// TestDamage: bytes changed and ends cut off, in places that a fuzzer would take long
// to find.
func TestDamage(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a table")
	all := seeds(t)
	if all == nil {
		t.Skip("no gcc to make the files with")
	}
	for _, s := range all {
		rnd := rand.New(rand.NewSource(int64(len(s))))
		for range 150 {
			b := bytes.Clone(s)
			for range 1 + rnd.Intn(20) {
				b[rnd.Intn(len(b))] = byte(rnd.Intn(256))
			}
			use(t, b, s)
			use(t, s, b)
		}
		for n := 0; n < len(s); n += 1 + len(s)/200 {
			use(t, s[:n], nil)
			use(t, s, s[:n])
		}
	}
}

func FuzzParsePerfMap(f *testing.F) {
	f.Add("1000 10 f\n1008 10 g\n")
	f.Add("0x1000 ffffffffffffffff f\n\n \n- -\n")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParsePerfMap(strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.entries {
			e := &m.entries[i]
			if e.lo >= e.hi || i > 0 && e.lo < m.entries[i-1].hi || e.name == "" {
				t.Errorf("entry %d of %v", i, m.entries)
			}
			if n, _, ok := m.Lookup(e.hi - 1); !ok || n != e.name {
				t.Errorf("%q at %#x, want %q", n, e.hi-1, e.name)
			}
		}
		// A log with one part equals the map.
		var l PerfLog
		if err := l.Add(5, strings.NewReader(s)); err != nil || l.Bad != m.Bad {
			t.Fatalf("%d bad lines, %v; want %d", l.Bad, err, m.Bad)
		}
		var qs []PerfQuery
		for i := range m.entries {
			qs = append(qs, PerfQuery{m.entries[i].lo, int64(i % 9)}, PerfQuery{m.entries[i].hi, 9})
		}
		l.Lookup(qs, func(q PerfQuery, name string, start uint64) {
			if n, st, ok := m.Lookup(q.Addr); !ok || n != name || st != start {
				t.Errorf("%q from %#x at %#x, want %q from %#x", name, start, q.Addr, n, st)
			}
		})
		var u Reuse
		if again, err := u.Add(strings.NewReader(s)); again || err != nil {
			t.Errorf("the first part takes the place of others: %v", err)
		}
	})
}

func FuzzDemangle(f *testing.F) {
	for _, s := range []string{"_ZN3app6Engine3runEi", "_RNvNtCs1234_7mycrate3foo3bar", "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
		"_ZSt4sortIPiEvT_S1_.cold", "main.f[go.shape.int]", "a%2eb.c", "_RINvMNtNtCsgEmfK2I1SDS_4core3fmt2rtNtB3_8Argument9new_debugINtB3_1AE",
		"_ZNSaIcEC1ERKS_", "_ZZZN1A1fEvENKUlvE_clEvENKUlvE0_clEv", "_ZZN1A1fIiEEvvENKUlT_RKT0_E_clIiiEEDaS1_S3_", "_ZN1ABI5cxx11EPKFvPKvRPFvvEE",
		"_ZStlsIcEvJLi1EELb1EE", "_ZN3fooILPKv0ELN1A1BE3EJiJEEE3barB5cxx11Ev", "_ZN12_GLOBAL__N_1L3fooE_1", "_ZN1AltIiEEvv", "_ZNStIcEC1ERKS_"} {
		f.Add(s)
	}
	var cxx itanium
	file, full := &File{names: map[string]string{}, isGo: true}, &File{names: map[string]string{}, o: Options{FullNames: true}}
	f.Fuzz(func(t *testing.T, s string) {
		for _, short := range []bool{false, true} {
			if got := Demangle(s, short); got == "" && s != "" || len(got) > len(s)+1<<longLog+8 {
				t.Errorf("%q became %d bytes", s, len(got))
			}
		}
		if s == "" {
			return
		}
		if strings.HasPrefix(s, "_Z") {
			sameAsTree(t, &cxx, s)
		}
		for _, x := range []*File{file, full} {
			if fn, _ := x.display(s, ""); fn == "" {
				t.Errorf("%q has no name to show", s)
			}
		}
	})
}
