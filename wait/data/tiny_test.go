package data

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"
)

// tiny builds a minimal ELF file: one segment, and one variable "lock" of 16 bytes at
// 0x2000.
func tiny() []byte {
	const (
		headers  = 64 + 56
		names    = "\x00lock\x00"
		sections = "\x00.symtab\x00.strtab\x00.shstrtab\x00"
		symAt    = headers
		strAt    = symAt + 2*24
		shstrAt  = strAt + len(names)
		shAt     = (shstrAt + len(sections) + 7) &^ 7
	)
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	put(elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Phoff: 64, Shoff: uint64(shAt), Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: 4, Shstrndx: 3})
	put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: 7, Off: 0x1000, Vaddr: 0x2000, Filesz: 8, Memsz: 0x100})
	put(elf.Sym64{})
	put(elf.Sym64{Name: 1, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Shndx: 1, Value: 0x2000, Size: 16})
	b.WriteString(names + sections)
	b.Write(make([]byte, shAt-b.Len()))
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_SYMTAB), Off: symAt, Size: 48, Link: 2, Entsize: 24})
	put(elf.Section64{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: uint64(strAt), Size: uint64(len(names))})
	put(elf.Section64{Name: 17, Type: uint32(elf.SHT_STRTAB), Off: uint64(shstrAt), Size: uint64(len(sections))})
	return b.Bytes()
}

func TestTiny(t *testing.T) {
	tab, err := Read(bytes.NewReader(tiny()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if name, off, ok := tab.Lookup(0x2008); !ok || name != "lock" || off != 8 {
		t.Errorf("%q+%d, %v", name, off, ok)
	}
	l, err := ReadLoad(bytes.NewReader(tiny()))
	if err != nil {
		t.Fatal(err)
	}
	if bias, ok := l.Bias(0x1000, 0x7000_2000); !ok || bias != 0x7000_0000 || !l.Spans(0x20ff) || l.Spans(0x2100) || l.Spans(0x1fff) {
		t.Errorf("bias %#x, %v", bias, ok)
	}
}
