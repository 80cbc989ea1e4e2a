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

	"github.com/klauspost/compress/zstd"

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
	return elfWith(z.Bytes(), 0, names...)
}

// compressed is packed with SHF_COMPRESSED sections.
func compressed(t *testing.T, how elf.CompressionType, size, claim int64, names ...string) []byte {
	t.Helper()
	le := binary.LittleEndian
	z := le.AppendUint64(nil, uint64(how))
	z = le.AppendUint64(z, uint64(claim))
	z = le.AppendUint64(z, 1)
	b := bytes.NewBuffer(z)
	var w io.WriteCloser
	if how == elf.COMPRESS_ZSTD {
		w, _ = zstd.NewWriter(b)
	} else {
		w = zlib.NewWriter(b)
	}
	if _, err := io.CopyN(w, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return elfWith(b.Bytes(), uint64(elf.SHF_COMPRESSED), names...)
}

// elfWith returns an ELF file of sections with the same content.
func elfWith(content []byte, flags uint64, names ...string) []byte {
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
		if kind == elf.SHT_PROGBITS {
			le.PutUint64(s[8:], flags)
		}
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
		section(at[i], elf.SHT_PROGBITS, 64+len(strs)+i*len(content), len(content))
	}
	out := append(h, strs...)
	for range names {
		out = append(out, content...)
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
	elfs := []string{".debug_info", ".debug_abbrev", ".debug_str", ".debug_line", ".symtab", ".gnu_debugdata"}
	for name, file := range map[string][]byte{
		"ratio":  packed(t, 64<<20, 64<<20, all...), // a thousand to one
		"claims": packed(t, 1<<20, 2<<30-1, all...), // less than claimed
		"over":   packed(t, 1<<10, 1<<62, all...),   // more than any section
		"minus":  packed(t, 1<<10, -1<<62, all...),  // negative as a signed number
		"zlib":   compressed(t, elf.COMPRESS_ZLIB, 64<<20, 64<<20, elfs...),
		"zstd":   compressed(t, elf.COMPRESS_ZSTD, 512<<20, 512<<20, elfs...), // ten thousand to one
		"little": compressed(t, elf.COMPRESS_ZSTD, 1<<10, 2<<30-1, elfs...),
		"hidden": compressed(t, elf.COMPRESS_ZSTD, 512<<20, 1<<20, elfs...), // more than claimed
		"kind":   compressed(t, 77, 1<<10, 1<<10, elfs...),
	} {
		before := allocated()
		f, err := Open(bytes.NewReader(file), Options{Path: "bomb"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := f.Frames(0x1000, nil); len(got) != 0 {
			t.Errorf("%s: frames %v", name, got)
		}
		most := uint64(64 << 20)
		if name == "hidden" {
			most = 256 << 20 // six windows
		}
		if took := allocated() - before; took > most {
			t.Errorf("%s: %d MiB were allocated", name, took>>20)
		}
		if p := f.Problems(); len(p) == 0 && name != "hidden" {
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

// Blocks of a few bytes that each claim the largest dictionary are refused after some.
func TestDictionaryBomb(t *testing.T) {
	b := []byte("\xfd7zXZ\x00\x00\x00")
	b = append(b, 0, 0, 0, 0)
	for range 1000 {
		b = append(b, 2, 0, 0x21, 1, 28, 0, 0, 0, 0, 0, 0, 0) // a header: LZMA2 with 64 MiB
		b = append(b, 1, 0, 0, 'a', 0, 0, 0, 0)               // one byte, and padding
	}
	before := allocated()
	if out, err := unxz(b, 1<<20); err == nil || !strings.Contains(err.Error(), "dictionaries") {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	if took := allocated() - before; took > maxDicts+64<<20 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
}

// A record of a million lines costs memory for the lines alone.
func TestJITDumpLines(t *testing.T) {
	le := binary.LittleEndian
	head := make([]byte, jitHeader)
	le.PutUint32(head, jitMagic)
	le.PutUint32(head[4:], 1)
	le.PutUint32(head[8:], jitHeader)
	const lines = 1 << 20
	body := le.AppendUint64(nil, 0x1000)
	body = le.AppendUint64(body, lines)
	for i := range uint64(lines) {
		body = le.AppendUint64(body, 0x1000+i)
		body = le.AppendUint64(body, i)
		body = append(body, 'f', 0)
	}
	dump := le.AppendUint32(head, jitDebug)
	dump = le.AppendUint32(dump, uint32(jitRecordHead+len(body)))
	dump = append(le.AppendUint64(dump, 1), body...)
	name := []byte("code\x00")
	dump = le.AppendUint32(dump, jitLoad)
	dump = le.AppendUint32(dump, uint32(jitRecordHead+40+len(name)))
	dump = le.AppendUint64(dump, 2)
	load := make([]byte, 40)
	le.PutUint64(load[16:], 0x1000)
	le.PutUint64(load[24:], lines)
	dump = append(append(dump, load...), name...)
	before := allocated()
	d, err := ParseJITDump(bytes.NewReader(dump))
	if err != nil || len(d.code) != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	if fr, ok := d.Lookup(0x1000+5, 10); !ok || fr.Func != "code" || fr.File != "f" || fr.Line != 5 {
		t.Errorf("%+v", fr)
	}
	if took := allocated() - before; took > 1<<30 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
}
