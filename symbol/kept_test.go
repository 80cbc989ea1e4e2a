package symbol

import (
	"bytes"
	"debug/elf"
	"maps"
	"slices"
	"testing"
)

// keeper is a Sections in memory.
type keeper map[string][]byte

func (k keeper) Section(key string, size int) []byte {
	if b := k[key]; len(b) == size {
		return slices.Clone(b)
	}
	return nil
}

func (k keeper) KeepSection(key string, b []byte) { k[key] = slices.Clone(b) }

// A zlib section is stored under its content. A stored one is used if it has the checksum of the stream, and replaced
// otherwise. Small sections and those of other methods are not kept.
func TestKeptSections(t *testing.T) {
	const size = 1 << 20
	section := func(k keeper, file []byte) []byte {
		t.Helper()
		m, err := openImage("packed", bytes.NewReader(file), newBudget("packed"))
		if err != nil {
			t.Fatal(err)
		}
		m.kept = k
		b, err := m.bytes(".debug_info")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := make([]byte, size)
	k := keeper{}
	file := compressed(t, elf.COMPRESS_ZLIB, size, size, ".debug_info")
	if !bytes.Equal(section(k, file), want) || len(k) != 1 {
		t.Fatalf("%d sections are kept", len(k))
	}
	for key, b := range k {
		if !bytes.Equal(b, want) {
			t.Errorf("another content is kept as %s", key)
		}
		b[77] ^= 1
	}
	if !bytes.Equal(section(k, file), want) || !bytes.Equal(slices.Collect(maps.Values(k))[0], want) {
		t.Error("a damaged section is used, or still kept")
	}
	used := reused{keeper: keeper{}}
	m, err := openImage("packed", bytes.NewReader(packed(t, size, size, ".zdebug_info")), newBudget("packed"))
	if err != nil {
		t.Fatal(err)
	}
	m.kept = &used
	for range 2 {
		if c, err := m.content(m.section(".zdebug_info")); err != nil || c.Len() != size {
			t.Error(err)
		}
	}
	if used.kept != 1 || used.taken != 1 {
		t.Errorf("of two readings %d kept the section, and %d used it", used.kept, used.taken)
	}
	for name, file := range map[string][]byte{
		"zstd":         compressed(t, elf.COMPRESS_ZSTD, size, size, ".debug_info"),
		"a small one":  compressed(t, elf.COMPRESS_ZLIB, leastKept-1, leastKept-1, ".debug_info"),
		"without size": compressed(t, elf.COMPRESS_ZLIB, size, size-1, ".debug_info"),
	} {
		k := keeper{}
		if section(k, file); len(k) > 0 {
			t.Errorf("%s: a section is kept", name)
		}
	}
}

// reused counts stored and used sections.
type reused struct {
	keeper
	kept, taken int
}

func (r *reused) Section(key string, size int) []byte {
	b := r.keeper.Section(key, size)
	if b != nil {
		r.taken++
	}
	return b
}

func (r *reused) KeepSection(key string, b []byte) {
	r.kept++
	r.keeper.KeepSection(key, b)
}
