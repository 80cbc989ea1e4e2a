package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// maxDict is the largest dictionary that is allocated: xz -9 uses 64 MiB. The library's
// own reader of xz files allocates whatever a header says, up to 4 GiB. Therefore the
// container is parsed here and only its content there.
const maxDict = 64 << 20

// maxDicts bounds the dictionaries of all blocks together: a block of a few bytes may
// claim a whole one.
const maxDicts = 512 << 20

var errXZ = errors.New("xz: broken")

// unxz decompresses an xz file (https://tukaani.org/xz/xz-file-format.txt, version
// 1.2.1) with LZMA2 blocks. It fails if the result is larger than limit bytes.
func unxz(b []byte, limit int64) ([]byte, error) {
	if len(b) < 12 || string(b[:6]) != "\xfd7zXZ\x00" || b[6] != 0 {
		return nil, fmt.Errorf("%w: no header", errXZ)
	}
	var sum hash.Hash
	check := int64(0)
	switch b[7] { // the check's size follows from its number, section 2.1.1.2
	case 0:
	case 1:
		sum, check = crc32.NewIEEE(), 4
	case 4:
		sum, check = crc64.New(crc64.MakeTable(crc64.ECMA)), 8
	case 10:
		check = 32
	default:
		return nil, fmt.Errorf("xz: check of kind %d", b[7])
	}
	r := bytes.NewReader(b[12:])
	var out bytes.Buffer
	dicts := 0
	for {
		dict, err := blockHeader(r)
		if err != nil || dict == 0 {
			return out.Bytes(), err
		}
		if dicts += dict; dicts > maxDicts {
			return nil, fmt.Errorf("xz: more than %d bytes of dictionaries", maxDicts)
		}
		from, data := out.Len(), r.Size()-int64(r.Len())
		z, err := lzma.Reader2Config{DictCap: dict}.NewReader2(r)
		if err != nil {
			return nil, fmt.Errorf("xz: %w", err)
		}
		if _, err := io.Copy(&out, io.LimitReader(z, limit+1-int64(from))); err != nil {
			return nil, fmt.Errorf("xz: %w", err)
		}
		if int64(out.Len()) > limit {
			return nil, fmt.Errorf("xz: more than %d bytes", limit)
		}
		used := r.Size() - int64(r.Len()) - data
		if _, err := r.Seek(-used&3, io.SeekCurrent); err != nil {
			return nil, err
		}
		want := make([]byte, check)
		if _, err := io.ReadFull(r, want); err != nil {
			return nil, fmt.Errorf("%w: no check", errXZ)
		}
		if sum == nil {
			continue
		}
		sum.Reset()
		sum.Write(out.Bytes()[from:])
		got := sum.Sum(nil)
		for i, j := 0, len(got)-1; i < j; i, j = i+1, j-1 { // hashes are big-endian, xz is not
			got[i], got[j] = got[j], got[i]
		}
		if !bytes.Equal(got, want) {
			return nil, fmt.Errorf("%w: checksum", errXZ)
		}
	}
}

// blockHeader reads a block's header and returns the size of its dictionary, 0 if the
// index follows instead of a block (section 3.1).
func blockHeader(r *bytes.Reader) (dict int, err error) {
	size, err := r.ReadByte()
	if err != nil {
		return 0, fmt.Errorf("%w: no index", errXZ)
	}
	if size == 0 {
		return 0, nil
	}
	h := make([]byte, (int(size)+1)*4-1)
	if _, err := io.ReadFull(r, h); err != nil || len(h) < 7 {
		return 0, fmt.Errorf("%w: block header", errXZ)
	}
	flags, h := h[0], h[1:len(h)-4]
	if flags&^0xc0 != 0 {
		return 0, fmt.Errorf("xz: unsupported filter, only LZMA2 is")
	}
	number := func() uint64 {
		v, n := binary.Uvarint(h)
		h = h[max(n, 0):]
		return v
	}
	if flags&0x40 != 0 {
		number() // compressed size
	}
	if flags&0x80 != 0 {
		number() // uncompressed size
	}
	if id, n := number(), number(); id != 0x21 || n != 1 || len(h) < 1 || h[0] > 40 {
		return 0, fmt.Errorf("xz: no LZMA2 filter")
	}
	bits := uint(h[0])
	size64 := uint64(2|bits&1) << (bits/2 + 11) // section 5.3.1
	if size64 > maxDict {
		return 0, fmt.Errorf("xz: dictionary of %d bytes", size64)
	}
	return int(size64), nil
}
