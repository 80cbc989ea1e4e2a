package target

import (
	"debug/elf"
	"debug/gosym"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"
)

// TestStopperIsBare checks the rules for code that runs in a stopper, in this test program (with
// the race detector, if it is built in): it calls nothing of the Go runtime, and no function asks
// for more stack. The call for an index out of range is permitted: it ends the stopper, which has
// no goroutine.
func TestStopperIsBare(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("reads amd64's instructions; the code is the same for all machines")
	}
	p := readOwnCode(t)
	const pkg = "github.com/sliverprof/sliver/target."
	outside := []string{"syscall.RawSyscall6", "runtime.panicBounds"}
	seen := map[string]bool{
		pkg + "(*Window).readMore": true, // a stopper's window has no More
	}
	todo := []string{pkg + "stopperMain", pkg + "herdMain", pkg + "herdDead"}
	for len(todo) > 0 {
		f := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[f] {
			continue
		}
		seen[f] = true
		for _, to := range p.calls(f) {
			to = strings.TrimSuffix(to, ".abi0")
			switch {
			case slices.Contains(outside, to):
			case strings.HasPrefix(to, pkg):
				todo = append(todo, to)
			default:
				t.Errorf("%s, which runs in a stopper, calls %s", f, to)
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d functions found, more are there", len(seen))
	}
}

// ownCode is the code of this test program.
type ownCode struct {
	t     *testing.T
	text  []byte
	addr  uint64
	table *gosym.Table
}

func readOwnCode(t *testing.T) *ownCode {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	section := func(name string) (*elf.Section, []byte) {
		s := f.Section(name)
		if s == nil {
			t.Fatalf("%s has no %s", self, name)
		}
		b, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		return s, b
	}
	text, code := section(".text")
	_, lines := section(".gopclntab")
	// The address of runtime.text, which without cgo is that of the section.
	start := text.Addr
	if syms, err := f.Symbols(); err == nil {
		for _, s := range syms {
			if s.Name == "runtime.text" {
				start = s.Value
			}
		}
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(lines, start))
	if err != nil {
		t.Fatal(err)
	}
	return &ownCode{t, code, text.Addr, table}
}

// calls returns the names of the functions that a function calls or jumps to.
func (p *ownCode) calls(name string) (to []string) {
	found := false
	for i := range p.table.Funcs { // the compiler may emit several with one name
		if f := &p.table.Funcs[i]; strings.TrimSuffix(f.Name, ".abi0") == name {
			found = true
			to = append(to, p.callsOf(f)...)
		}
	}
	if !found {
		p.t.Fatalf("no code of %s found", name)
	}
	return to
}

func (p *ownCode) callsOf(f *gosym.Func) (to []string) {
	for pc := f.Entry; pc < f.End; {
		in, err := x86asm.Decode(p.text[pc-p.addr:f.End-p.addr], 64)
		if err != nil {
			p.t.Fatalf("%s+%#x: %v", f.Name, pc-f.Entry, err)
		}
		pc += uint64(in.Len)
		rel, direct := in.Args[0].(x86asm.Rel)
		switch {
		case in.Op == x86asm.CALL && !direct:
			to = append(to, "what "+in.Args[0].String()+" points to")
		case direct:
			target := pc + uint64(int64(rel))
			if target >= f.Entry && target < f.End {
				continue
			}
			if g := p.table.PCToFunc(target); g != nil {
				to = append(to, g.Name)
			} else {
				to = append(to, "code without a name")
			}
		}
	}
	return to
}
