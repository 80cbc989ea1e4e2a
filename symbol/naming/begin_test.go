package naming

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

// The functions of Chromium that have call frame information are found without it.
func TestBegins(t *testing.T) {
	const path = "/usr/lib/chromium/chromium"
	f, err := os.Open(path)
	if err != nil {
		t.Skip("no " + path)
	}
	defer f.Close()
	table, err := cfi.Load(f, rule.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	b := newBegins(f, rule.AMD64)
	random := rand.New(rand.NewPCG(1, 2))
	right, wrong, without := 0, 0, 0
	for _, p := range b.progs {
		for range 200_000 {
			a := p.Vaddr + random.Uint64N(p.Filesz)
			lo, hi, ok := table.Func(a)
			if !ok || hi-lo > 1<<12 { // one entry for several functions
				continue
			}
			switch got, ok := b.before(a, func(uint64) bool { return false }); {
			case !ok:
				without++
			case got == lo:
				right++
			default:
				wrong++
			}
		}
	}
	t.Logf("%d places right, %d wrong, %d without", right, wrong, without)
	if right < 500 || wrong*5 > right {
		t.Errorf("%d places right, %d wrong", right, wrong)
	}
}

// Code without gaps gets no start.
func TestBeginsNowhere(t *testing.T) {
	path := testprog.Build(t, "c/chain", "fp")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := newBegins(f, rule.AMD64)
	if len(b.progs) == 0 {
		t.Fatal("no code")
	}
	for lo, s := range functionsOf(t, path) {
		for _, a := range append(placesIn(s), 1) {
			if got, ok := b.before(a, func(uint64) bool { return false }); ok {
				t.Errorf("%#x of %s from %#x: %#x", a, s.Name, lo, got)
			}
		}
	}
	if got, ok := newBegins(bytes.NewReader([]byte("no ELF")), rule.AMD64).before(0, nil); ok {
		t.Errorf("no ELF: %#x", got)
	}
}

// Where the gap between two functions has traps, the second one begins behind them, unless a trap is part of the code.
func TestBeginsBehindTraps(t *testing.T) {
	for before, want := range map[string]bool{
		"\xc3\xcc":                 true,  // ret
		"\xeb\x10\xcc\xcc":         true,  // jmp
		"\xe9\x01\x02\x03\x04\xcc": true,  // jmp
		"\xe8\x01\x02\x03\x04\xcc": true,  // call of a function that does not return
		"\x0f\x0b\xcc":             true,  // ud2
		"\xcc\xcc\xcc":             true,  // behind anything
		"\xb8\xcc\xcc":             false, // a number
		"\x90\x90":                 false,
	} {
		code := append(append(make([]byte, 16-len(before)), before...), "\x41\x57\x41\x56\x53\x48\x83\xec"...)
		if got := begin(code, 16); got != want {
			t.Errorf("%q: %v", before, got)
		}
	}
	if !begin([]byte("\xf3\x0f\x1e\xfa\x55\x48\x89\xe5"), 0) || !begin([]byte("\x55\x48\x89\xe5"), 0) || begin([]byte("\x55\x48"), 0) {
		t.Error("a frame pointer")
	}
}

// The search ends at a function that is known.
func TestBeginsBehindKnown(t *testing.T) {
	const path = "/usr/lib/chromium/chromium"
	f, err := os.Open(path)
	if err != nil {
		t.Skip("no " + path)
	}
	defer f.Close()
	b := newBegins(f, rule.AMD64)
	for _, p := range b.progs {
		at := p.Vaddr + p.Filesz/2
		lo, ok := b.before(at, func(uint64) bool { return false })
		if !ok || lo == at {
			continue
		}
		if got, ok := b.before(at, func(a uint64) bool { return a > lo }); ok {
			t.Errorf("%#x is in a function from %#x, behind one that is known", at, got)
		}
		return
	}
	t.Error("no function found")
}
