package symbol

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/internal/elffile"
)

// ErrNoBuildID reports that a file is readable and has no build ID.
var ErrNoBuildID = errors.New("no build ID")

// Bounds on hostile notes.
const (
	maxNotes   = 1 << 20 // bytes of one section or segment of notes
	maxBuildID = 64      // bytes of a GNU build ID
	maxGoID    = 256     // bytes of a Go one
)

// Note types (elf.h NT_GNU_BUILD_ID; cmd/internal/buildid/note.go in Go).
const (
	noteGNUBuildID = 3
	noteGoBuildID  = 4
)

// BuildID reads the build ID of an ELF file: the GNU one in hexadecimal, or otherwise
// Go's text ("abc/def/…") unchanged.
func BuildID(r io.ReaderAt) (id string, err error) {
	defer recovered(&err, "ELF headers")
	f, err := elffile.Open(r)
	if err != nil {
		return "", fmt.Errorf("build ID: %w", err)
	}
	return buildID(f)
}

func buildID(f *elf.File) (string, error) {
	goID := ""
	for _, s := range f.Sections {
		if s.Type == elf.SHT_NOTE {
			if id := notes(s, s.FileSize, s.Addralign, f.ByteOrder, &goID); id != "" {
				return id, nil
			}
		}
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_NOTE {
			if id := notes(p, p.Filesz, p.Align, f.ByteOrder, &goID); id != "" {
				return id, nil
			}
		}
	}
	if goID != "" {
		return goID, nil
	}
	return "", ErrNoBuildID
}

func notes(r io.ReaderAt, size, align uint64, o binary.ByteOrder, goID *string) string {
	if align != 8 {
		align = 4
	}
	b := make([]byte, min(size, maxNotes))
	n, _ := r.ReadAt(b, 0)
	b = b[:n]
	for len(b) >= 12 {
		name, desc, kind := uint64(o.Uint32(b)), uint64(o.Uint32(b[4:])), o.Uint32(b[8:])
		at := (12 + name + align - 1) &^ (align - 1)
		next := (at + desc + align - 1) &^ (align - 1)
		if at+desc > uint64(len(b)) {
			return ""
		}
		who, what := string(b[12:12+name]), b[at:at+desc]
		switch {
		case who == "GNU\x00" && kind == noteGNUBuildID && desc > 0 && desc <= maxBuildID:
			return hex.EncodeToString(what)
		case who == "Go\x00\x00" && kind == noteGoBuildID && desc > 0 && desc <= maxGoID:
			*goID = string(what)
		}
		if next >= uint64(len(b)) {
			return ""
		}
		b = b[next:]
	}
	return ""
}
