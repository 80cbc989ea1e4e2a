package symbol

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/limits"
)

// packed returns an ELF file with compressed DWARF sections in the GNU format, each of
// size zeros with a claimed size of claim bytes.
func packed(t *testing.T, size, claim int64, names ...string) []byte {
	t.Helper()
	var z bytes.Buffer
	z.WriteString("ZLIB")
	binary.Write(&z, binary.BigEndian, uint64(claim))
	w, err := zlib.NewWriterLevel(&z, zlib.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	w.Close()
	le := binary.LittleEndian
	h := make([]byte, 64)
	copy(h, elf.ELFMAG)
	h[elf.EI_CLASS], h[elf.EI_DATA], h[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	le.PutUint16(h[16:], uint16(elf.ET_EXEC))
	le.PutUint16(h[18:], uint16(elf.EM_X86_64))
	le.PutUint32(h[20:], 1)
	le.PutUint16(h[54:], 56)
	le.PutUint16(h[58:], 64)
	le.PutUint16(h[60:], uint16(2+len(names)))
	le.PutUint16(h[62:], 1)
	strs := "\x00.shstrtab\x00"
	table := make([]byte, 64) // section 0
	section := func(name uint32, kind elf.SectionType, off, size int) {
		s := make([]byte, 64)
		le.PutUint32(s, name)
		le.PutUint32(s[4:], uint32(kind))
		le.PutUint64(s[24:], uint64(off))
		le.PutUint64(s[32:], uint64(size))
		table = append(table, s...)
	}
	var at []uint32
	for _, n := range names {
		at = append(at, uint32(len(strs)))
		strs += n + "\x00"
	}
	section(1, elf.SHT_STRTAB, 64, len(strs))
	for i := range names {
		section(at[i], elf.SHT_PROGBITS, 64+len(strs)+i*z.Len(), z.Len())
	}
	out := append(h, strs...)
	for range names {
		out = append(out, z.Bytes()...)
	}
	le.PutUint64(out[40:], uint64(len(out)))
	return append(out, table...)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Sections that claim or expand to gigabytes must cause an error and use little memory.
func TestDecompressionBombs(t *testing.T) {
	all := []string{".zdebug_info", ".zdebug_str", ".zdebug_line"}
	for name, file := range map[string][]byte{
		"ratio":  packed(t, 64<<20, 64<<20, all...), // a thousand to one
		"claims": packed(t, 1<<20, 2<<30-1, all...), // less than claimed
		"over":   packed(t, 1<<10, 1<<62, all...),   // more than any section
		"minus":  packed(t, 1<<10, -1<<62, all...),  // negative as a signed number
	} {
		before := allocated()
		f, err := Open(bytes.NewReader(file), Options{Path: "bomb"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := f.Frames(0x1000, nil); len(got) != 0 {
			t.Errorf("%s: frames %v", name, got)
		}
		if took := allocated() - before; took > 64<<20 {
			t.Errorf("%s: %d MiB were allocated", name, took>>20)
		}
		if p := f.Problems(); len(p) == 0 {
			t.Errorf("%s: nothing is told", name)
		}
		f.Close()
	}
}

// The memory of a file and its parts is bounded in total, and released.
func TestMemoryOfAFile(t *testing.T) {
	mem := limits.Process().New("a file", 5<<20)
	file := packed(t, 1<<20, 1<<20, ".zdebug_info", ".zdebug_str", ".zdebug_line", ".zdebug_addr", ".zdebug_ranges", ".zdebug_aranges", ".zdebug_abbrev")
	m, err := openImage("many", bytes.NewReader(file), mem)
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.sections("")
	var over *limits.Error
	if !errors.As(err, &over) || !strings.Contains(err.Error(), "5 MiB for a file") {
		t.Errorf("seven sections of 1 MiB: %v", err)
	}
	if mem.Used() > 5<<20 || mem.Used() < 4<<20 {
		t.Errorf("%d bytes are taken", mem.Used())
	}
	runtime.KeepAlive(s)
	mem.Close()
	if mem.Used() != 0 {
		t.Errorf("%d bytes are left", mem.Used())
	}
}
