package testprog

import (
	"debug/elf"
	"testing"
)

// Func is the code of a function in an ELF file.
type Func struct {
	Vaddr, Off uint64 // its address and its place in the file
	Code       []byte
}

// Symbol finds a function in an ELF file by the file's own symbols. The test fails if there is none.
func Symbol(t *testing.T, path, name string) Func {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	text := f.Section(".text")
	code, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if s.Name == name {
			at := s.Value - text.Addr
			return Func{s.Value, at + text.Offset, code[at:][:s.Size]}
		}
	}
	t.Fatalf("%s has no %s", path, name)
	return Func{}
}
