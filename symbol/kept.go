package symbol

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/adler32"
	"io"

	"github.com/klauspost/compress/zlib"
)

// Sections keeps decompressed sections for the next program that reads the same file: to decompress the DWARF of a C
// library takes 70 to 100 ms. Its methods may be called from several goroutines.
type Sections interface {
	// Section returns the content stored under key if it has exactly size bytes, otherwise nil.
	Section(key string, size int) []byte
	// KeepSection stores b under key, and replaces an earlier content. It may do nothing.
	KeepSection(key string, b []byte)
}

// Sizes in bytes of sections that are kept: decompressing smaller ones takes about as long as opening a file, and larger ones
// would displace too much else.
const (
	leastKept = 128 << 10
	mostKept  = 64 << 20
)

// inflateZlib decompresses a zlib stream (RFC 1950) to size bytes. It reads and stores the result in m.kept.
func (m *image) inflateZlib(packed *io.SectionReader, size uint64) ([]byte, error) {
	key := ""
	if m.kept != nil && size >= leastKept && size <= mostKept {
		key = contentKey(packed)
	}
	if key != "" {
		if b := m.kept.Section(key, int(size)); b != nil && intact(b, packed) {
			return b, nil
		}
	}
	z, err := zlib.NewReader(packed)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	b, err := grow(z, size, size)
	if err == nil && key != "" && intact(b, packed) {
		m.kept.KeepSection(key, b)
	}
	return b, err
}

// contentKey identifies a section by its content: names and build IDs are whatever a file claims. "": it cannot be read.
func contentKey(packed *io.SectionReader) string {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(packed, 0, packed.Size())); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// intact reports whether b has the checksum at the end of the stream.
func intact(b []byte, packed *io.SectionReader) bool {
	var sum [4]byte
	if _, err := packed.ReadAt(sum[:], packed.Size()-4); err != nil && err != io.EOF {
		return false
	}
	return adler32.Checksum(b) == binary.BigEndian.Uint32(sum[:])
}
