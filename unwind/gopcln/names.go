package gopcln

import "encoding/binary"

const (
	maxInlines = 256 // logical frames at one PC; the deepest seen in the standard library is 20

	pcdataInlTree   = 2 // src/internal/abi/symtab.go, 1.16 … 1.26
	funcdataInlTree = 3
)

// Inline is one logical frame at a PC.
type Inline struct {
	Func string // as written by the linker: package path, type arguments as [...]
	File string // as seen by the compiler; "": unknown
	Line int    // 0: unknown
}

// Func returns the name and entry of the function that contains vaddr. ok is false outside of the
// table, or if the entry is damaged.
func (t *Table) Func(vaddr uint64) (entry uint64, name string, ok bool) {
	var f fn
	if t.find(vaddr, &f) != nil {
		return 0, "", false
	}
	name, err := t.nameOf(&f)
	return f.entry, name, err == nil && name != ""
}

// Line returns the source line of the instruction at vaddr, in the innermost inlined call. For a
// return address, pass the address of the byte before it.
func (t *Table) Line(vaddr uint64) (file string, line int, ok bool) {
	var f fn
	if t.find(vaddr, &f) != nil {
		return "", 0, false
	}
	return t.lineOf(&f, vaddr)
}

func (t *Table) lineOf(f *fn, vaddr uint64) (string, int, bool) {
	if f.pcln == 0 || f.pcfile == 0 {
		return "", 0, false
	}
	line, _, _, err := t.valueAt(f, f.pcln, vaddr)
	if err != nil || line < 0 {
		return "", 0, false
	}
	no, _, _, err := t.valueAt(f, f.pcfile, vaddr)
	if err != nil || no < 0 {
		return "", 0, false
	}
	off, err := t.u32(t.cu + 4*(uint64(f.cu)+uint64(no)))
	if err != nil || off == ^uint32(0) {
		return "", 0, false
	}
	file, err := t.textAt(t.files + uint64(off))
	return file, int(line), err == nil
}

// Inlines appends the logical frames at vaddr to buf, innermost first. The last one is the physical
// function. For a return address, pass the address of the byte before it. Inlines appends nothing
// if Func fails. If the tree of inlined calls is damaged, it skips to the physical function.
func (t *Table) Inlines(vaddr uint64, buf []Inline) []Inline {
	var f fn
	if t.find(vaddr, &f) != nil {
		return buf
	}
	outer, err := t.nameOf(&f)
	if err != nil || outer == "" {
		return buf
	}
	tree, stride, ok := t.inlineTree(&f)
	for pc, i := vaddr, 0; ; i++ {
		file, line, _ := t.lineOf(&f, pc)
		name, parent, inlined := "", uint64(0), false
		if ok && i < maxInlines {
			name, parent, inlined = t.inlinedAt(&f, tree, stride, pc)
		}
		if !inlined {
			return append(buf, Inline{outer, file, line})
		}
		buf = append(buf, Inline{name, file, line})
		pc = parent
	}
}

// inlineTree returns the vaddr of f's tree of inlined calls and the size of its records.
func (t *Table) inlineTree(f *fn) (tree, stride uint64, ok bool) {
	if f.npcdata <= pcdataInlTree || f.nfuncdata <= funcdataInlTree {
		return 0, 0, false
	}
	at := f.tables + 4*uint64(f.npcdata)
	if t.magic == magic116 { // pointers, which a PIE leaves to relocations
		var b [8]byte
		at = (at + 7) &^ 7
		if t.read(b[:], at+8*funcdataInlTree) != nil {
			return 0, 0, false
		}
		tree = binary.LittleEndian.Uint64(b[:])
		return tree, 20, tree != 0
	}
	off, err := t.u32(at + 4*funcdataInlTree)
	if err != nil || off == ^uint32(0) || t.gofunc == 0 {
		return 0, 0, false
	}
	stride = 16
	if t.magic == magic118 {
		stride = 20
	}
	return t.gofunc + uint64(off), stride, true
}

// inlinedAt reads the call that was inlined at pc and the position of its own call site. Records:
// runtime.inlinedCall in src/runtime/symtab.go (1.16), symtabinl.go (1.21). 1.20 dropped parent,
// file and line.
func (t *Table) inlinedAt(f *fn, tree, stride, pc uint64) (name string, parent uint64, ok bool) {
	table, err := t.u32(f.tables + 4*pcdataInlTree)
	if err != nil || table == 0 {
		return "", 0, false
	}
	i, _, _, err := t.valueAt(f, table, pc)
	if err != nil || i < 0 {
		return "", 0, false
	}
	var b [20]byte
	if t.img.read(b[:stride], tree+uint64(i)*stride) != nil {
		return "", 0, false
	}
	no, at := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	if stride == 20 {
		no, at = binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:])
	}
	if uint64(at) >= f.end-f.entry {
		return "", 0, false
	}
	name, err = t.textAt(t.names + uint64(no))
	return name, f.entry + uint64(at), err == nil && name != ""
}
