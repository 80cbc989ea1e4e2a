package live

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
)

// GDBDescriptor is the variable with the list of in-memory ELF files that describe a
// program's generated code to debuggers (the manual of GDB, "JIT Compilation
// Interface").
const GDBDescriptor = "__jit_debug_descriptor"

// GDBEntry is one entry of that list: its address, and the file it refers to.
type GDBEntry struct{ Entry, Addr, Size uint64 }

// ReadGDBEntry reads the entry at an address in the target and returns the address of the next.
func ReadGDBEntry(p *target.Process, at uint64) (e GDBEntry, next uint64, ok bool) {
	var b [32]byte
	if n, _ := p.ReadAt(b[:], at); n < len(b) {
		return e, 0, false
	}
	le := binary.LittleEndian
	return GDBEntry{at, le.Uint64(b[16:]), le.Uint64(b[24:])}, le.Uint64(b[:]), true
}

// Bounds for GDBObjects: the program may be hostile.
const (
	maxGDBEntries = 1 << 12
	maxGDBFile    = 16 << 20 // bytes
	maxGDBFiles   = 64 << 20 // bytes in total
)

// GDBObjects reads the current files of GDB's JIT interface, newest first. It skips
// unreadable ones.
func (t *Target) GDBObjects(fullNames bool) (out []*symbol.JITObject) {
	total := 0
	for _, at := range t.gdbDescriptors() {
		var b [24]byte
		if n, _ := t.proc.ReadAt(b[:], at); n < len(b) || binary.LittleEndian.Uint32(b[:]) != 1 {
			continue
		}
		next := binary.LittleEndian.Uint64(b[16:])
		for n := 0; next != 0 && n < maxGDBEntries; n++ {
			e, after, ok := ReadGDBEntry(t.proc, next)
			if !ok {
				break
			}
			next = after
			if e.Size == 0 || e.Size > maxGDBFile || total+int(e.Size) > maxGDBFiles {
				continue
			}
			file := make([]byte, e.Size)
			if n, err := t.proc.ReadAt(file, e.Addr); n < len(file) || err != nil {
				continue
			}
			total += len(file)
			if o, err := symbol.OpenJITObject(file, fullNames); err == nil {
				out = append(out, o)
			}
		}
	}
	return out
}

// gdbDescriptors returns the addresses in the target of the list variable, one for each
// file that defines it.
func (t *Target) gdbDescriptors() (out []uint64) {
	maps := t.Maps()
	for i := range maps {
		mp := &maps[i]
		if !mp.Exec || mp.Inode == 0 {
			continue
		}
		if at, ok := t.variableIn(mp, GDBDescriptor); ok {
			out = append(out, at)
		}
	}
	return out
}

// variableIn finds a variable of the file that is mapped as code at mp.
func (t *Target) variableIn(mp *stack.Mapping, name string) (addr uint64, ok bool) {
	f, err := t.proc.OpenMapping(*mp)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	segs, err := Segments(f)
	if err != nil {
		return 0, false
	}
	for _, s := range segs {
		if s[0] < mp.Off+(mp.End-mp.Start) && mp.Off < s[0]+s[2] {
			vaddr, ok := symbol.Variable(f, name)
			return vaddr + (mp.Start - mp.Off) - (s[1] - s[0]), ok
		}
	}
	return 0, false
}
