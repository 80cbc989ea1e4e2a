package symbol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/sliverprof/sliver/internal/limits"
	"github.com/sliverprof/sliver/symbol/dwarf"
)

// maxLinked bounds the bytes of a file that are read for its checksum.
const maxLinked = 8 << 30

// search looks for the separate debug file, once: one with the same build ID or, if the
// module has none, with the checksum of the debuglink.
func (f *File) search() {
	if f.searched {
		return
	}
	f.searched = true
	if f.o.Finder == nil {
		return
	}
	id, _ := buildID(f.main.f)
	link, rest := f.main.link(".gnu_debuglink")
	var crc uint32
	if pad := (4 - (len(link)+1)%4) % 4; link != "" && len(rest) >= pad+4 {
		crc = binary.LittleEndian.Uint32(rest[pad:])
	} else {
		link = ""
	}
	if id == "" && link == "" {
		return
	}
	f.o.Finder.Find(Query{Kind: KindDebug, Path: f.o.Path, BuildID: id, Link: link}, func(name string, src Source) bool {
		m, err := f.openForeign(name, src)
		if err != nil {
			f.problem(name, err)
			return false
		}
		if !m.hasDwarf() && m.section(".symtab") == nil || m.f.Machine != f.main.f.Machine {
			return false
		}
		if id != "" {
			if got, _ := buildID(m.f); got != id {
				return false
			}
		} else if sum, err := checksum(src); err != nil || sum != crc {
			return false
		}
		f.debug = m
		return true
	})
}

// openForeign opens a debug file of f, whose sections may be kept.
func (f *File) openForeign(name string, src Source) (m *image, err error) {
	if m, err = openForeign(name, src, f.main.mem); err == nil {
		m.kept = f.o.Sections
	}
	return m, err
}

func openForeign(name string, src Source, mem *limits.Budget) (m *image, err error) {
	defer recovered(&err, "ELF headers")
	if m, err = openImage(name, src, mem); err == nil {
		m.src = src
	}
	return m, err
}

// checksum returns the checksum of .gnu_debuglink: CRC-32 (IEEE) of the whole file.
func checksum(r io.ReaderAt) (uint32, error) {
	h := crc32.NewIEEE()
	_, err := io.Copy(h, io.NewSectionReader(r, 0, maxLinked))
	return h.Sum32(), err
}

// openDwarf finds the DWARF: in the file itself or in its debug file.
func (f *File) openDwarf() {
	m := f.main
	if !m.hasDwarf() {
		f.search()
		if m = f.debug; m == nil || !m.hasDwarf() {
			return
		}
	}
	s, err := m.sections("")
	f.problem(m.name, err)
	f.dw = dwarf.New(dwarf.Config{
		Sections: s,
		Text:     f.main.isText,
		Budget:   f.o.Budget,
		Alt:      func() *dwarf.Data { return f.openAlt(m) },
		Package:  func() *dwarf.Sections { return f.openPackage(m) },
		Object:   f.openObject,
	})
}

// supplement returns the file that dwz moved common parts of m to, with its build ID
// (.gnu_debugaltlink) or a checksum that both files contain (.debug_sup, DWARF 5
// section 7.3.6); name is "" if there is none.
func (m *image) supplement() (name, id string, is5 bool) {
	if name, rest := m.link(".gnu_debugaltlink"); name != "" {
		return name, hex.EncodeToString(rest), false
	}
	isFile, name, id := m.debugSup()
	if isFile {
		return "", "", false
	}
	return name, id, true
}

// debugSup reads .debug_sup: version u16, whether this is the supplementary
// file itself, its name, and the checksum with its length before it.
func (m *image) debugSup() (isFile bool, name, sum string) {
	b, err := m.bytes(".debug_sup")
	if err != nil || len(b) < 4 || binary.LittleEndian.Uint16(b) != 5 {
		return false, "", ""
	}
	isFile = b[2] != 0
	i := bytes.IndexByte(b[3:], 0)
	if i < 0 {
		return isFile, "", ""
	}
	name, b = string(b[3:3+i]), b[3+i+1:]
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return isFile, "", ""
	}
	return isFile, name, hex.EncodeToString(b[k : k+int(n)])
}

// openAlt opens the file that dwz moved the common parts of m to.
func (f *File) openAlt(m *image) (d *dwarf.Data) {
	link, want, is5 := m.supplement()
	if link == "" || want == "" || f.o.Finder == nil {
		return nil
	}
	f.o.Finder.Find(Query{Kind: KindAlt, Path: f.o.Path, From: m.name, BuildID: want, Link: link}, func(name string, src Source) bool {
		a, err := f.openForeign(name, src)
		if err != nil {
			f.problem(name, err)
			return false
		}
		got, _ := buildID(a.f)
		if is5 {
			_, _, got = a.debugSup()
		}
		if got != want || !a.hasDwarf() {
			return false
		}
		s, err := a.sections("")
		f.problem(name, err)
		f.others = append(f.others, a)
		d = dwarf.New(dwarf.Config{Sections: s, Budget: f.o.Budget})
		return true
	})
	if d == nil {
		f.problem("DWARF", fmt.Errorf("its common part, %s, was not found", link))
	}
	return d
}

func (f *File) openPackage(m *image) (out *dwarf.Sections) {
	if f.o.Finder == nil {
		return nil
	}
	f.o.Finder.Find(Query{Kind: KindPackage, Path: f.o.Path, From: m.name}, func(name string, src Source) bool {
		p, err := f.openForeign(name, src)
		if err != nil {
			f.problem(name, err)
			return false
		}
		s, err := p.sections(".dwo")
		f.problem(name, err)
		if s.CUIndex.Len() == 0 || s.Info.Len() == 0 {
			return false
		}
		f.others = append(f.others, p)
		out = &s
		return true
	})
	return out
}

// openObject tries the files that may be a .dwo. It reads them completely and closes
// them, because there can be thousands.
func (f *File) openObject(name, dir string, try func(*dwarf.Sections) bool) {
	if f.o.Finder == nil || name == "" {
		return
	}
	f.o.Finder.Find(Query{Kind: KindObject, Path: f.o.Path, Link: name, Dir: dir}, func(path string, src Source) bool {
		m, err := openForeign(path, src, f.main.mem.New(path, maxFileMemory)) // released with its sections
		if err != nil {
			f.problem(path, err)
			return false
		}
		s, err := m.sections(".dwo")
		f.problem(path, err)
		if !try(&s) {
			return false
		}
		if s.Whole() {
			src.Close()
		} else {
			f.others = append(f.others, m)
		}
		return true
	})
}
