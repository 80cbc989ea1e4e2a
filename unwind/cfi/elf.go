package cfi

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/internal/elffile"
	"github.com/sliverprof/sliver/unwind/rule"
)

// OpenELF reads only the headers of an ELF file. A file with damaged or missing section headers
// opens without sections, because the kernel loads programs by program headers alone.
func OpenELF(r io.ReaderAt) (*elf.File, error) {
	f, err := elffile.Open(r)
	if err == nil {
		return f, nil
	}
	f, err2 := elffile.Open(sectionless{r})
	if err2 != nil {
		return nil, err
	}
	return f, nil
}

// sectionless hides the section headers of an ELF64 file.
type sectionless struct{ r io.ReaderAt }

func (s sectionless) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.r.ReadAt(p, off)
	blank := func(at, size int64) {
		for i := max(at, off); i < min(at+size, off+int64(n)); i++ {
			p[i-off] = 0
		}
	}
	blank(0x28, 8) // e_shoff
	blank(0x3c, 4) // e_shnum, e_shstrndx
	return n, err
}

// Load opens the call frame information of an ELF file for arch. It reads the file's headers.
// Tables are read on first use through r, which must stay readable. A file without tables also
// loads; Rule then always returns ErrNoRule.
func Load(r io.ReaderAt, arch rule.Arch) (*Table, error) {
	f, err := OpenELF(r)
	if err != nil {
		return nil, fmt.Errorf("call frame information: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != arch.Machine() {
		return nil, fmt.Errorf("call frame information: a file for %v, %v, %v: wanted %v", f.Machine, f.Class, f.Data, arch)
	}
	t := &Table{arch: arch}
	t.eh, err = ehFrames(f, r)
	if err != nil {
		return nil, fmt.Errorf("call frame information: %w", err)
	}
	t.debug.sec = debugSection(f)
	t.debug.file = r
	return t, nil
}

func section64(f *elf.File, name string) *elf.Section {
	if s := f.Section(name); s != nil && s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL {
		return s
	}
	return nil
}

func vaddrOf(f *elf.File, name string) uint64 {
	if s := f.Section(name); s != nil {
		return s.Addr
	}
	return 0
}

// ehFrames finds .eh_frame and its search table. It returns nil and no error if there is none.
func ehFrames(f *elf.File, r io.ReaderAt) (*frames, error) {
	fr := &frames{eh: true}
	fr.bases.text = vaddrOf(f, ".text")
	if fr.bases.data = vaddrOf(f, ".got.plt"); fr.bases.data == 0 {
		fr.bases.data = vaddrOf(f, ".got")
	}
	fr.bases.indirect = func(vaddr uint64) (uint64, error) {
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
				var b [8]byte
				if n, err := r.ReadAt(b[:], int64(p.Off+vaddr-p.Vaddr)); n < len(b) {
					return 0, fmt.Errorf("pointer at vaddr %#x: %w", vaddr, err)
				}
				return binary.LittleEndian.Uint64(b[:]), nil
			}
		}
		return 0, fmt.Errorf("pointer at vaddr %#x: not in the file", vaddr)
	}
	var err error
	if s := section64(f, ".eh_frame"); s != nil && s.Flags&elf.SHF_COMPRESSED == 0 {
		if fr.sec, err = fileSection(".eh_frame", r, s.Addr, s.Offset, s.Size); err != nil {
			return nil, err
		}
	}
	var hdr *section
	for _, p := range f.Progs {
		if p.Type == elf.PT_GNU_EH_FRAME && p.Filesz != 0 {
			if hdr, err = fileSection(".eh_frame_hdr", r, p.Vaddr, p.Off, p.Filesz); err != nil {
				return nil, err
			}
		}
	}
	if s := section64(f, ".eh_frame_hdr"); hdr == nil && s != nil {
		if hdr, err = fileSection(".eh_frame_hdr", r, s.Addr, s.Offset, s.Size); err != nil {
			return nil, err
		}
	}
	if hdr == nil {
		if fr.sec == nil {
			return nil, nil
		}
		return fr, nil
	}
	ptr, err := fr.readHeader(hdr)
	if err != nil {
		if fr.sec == nil {
			return nil, err
		}
		fr.hdr = nil // found by scan instead
		return fr, nil
	}
	if fr.sec != nil {
		return fr, nil
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && ptr >= p.Vaddr && ptr-p.Vaddr < p.Filesz {
			d := ptr - p.Vaddr
			fr.sec, err = fileSection(".eh_frame", r, ptr, p.Off+d, p.Filesz-d)
			if err != nil {
				return nil, err
			}
			fr.sec.open = true
			return fr, nil
		}
	}
	return nil, hdr.errorf(4, ".eh_frame at vaddr %#x is in no segment", ptr)
}

func debugSection(f *elf.File) *elf.Section {
	if s := section64(f, ".debug_frame"); s != nil {
		return s
	}
	return section64(f, ".zdebug_frame")
}

// loadDebug reads .debug_frame and inflates it if necessary.
func loadDebug(s *elf.Section, r io.ReaderAt) (*frames, error) {
	fr := &frames{}
	var err error
	if s.Name != ".zdebug_frame" && s.Flags&elf.SHF_COMPRESSED == 0 {
		fr.sec, err = fileSection(s.Name, r, 0, s.Offset, s.Size)
		return fr, err
	}
	if s.Size > anyRatio && s.Size/maxRatio > s.FileSize {
		return nil, fmt.Errorf("%s: %#x bytes are packed into %#x: more than %d to one is not believed", s.Name, s.Size, s.FileSize, maxRatio)
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(s.Open(), maxInflated+1))
	if err != nil {
		return nil, fmt.Errorf("%s: inflated %#x bytes: %w", s.Name, n, err)
	}
	if n > maxInflated {
		return nil, fmt.Errorf("%s: more than %#x bytes when inflated", s.Name, maxInflated)
	}
	fr.sec = bytesSection(s.Name, 0, b.Bytes())
	return fr, nil
}
