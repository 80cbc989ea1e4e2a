package cache

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"

	"github.com/sliverprof/sliver/symbol"
)

// Table holds the frames of addresses (vaddr) of one file, leaf first; no frames for an
// address that no source names.
type Table map[uint64][]symbol.Frame

// magic changes with the layout, and whenever package symbol returns different results:
// files of another version are then created again.
//
// It is followed by the CRC-32C of the rest, u32; then uvarints: n strings: length,
// bytes; n addresses, rising: difference to the one before, n frames: function, linkage
// name, file, start's file (strings), line, start's line, start<<1 | inlined.
const magic = "sliver symbols 2\n"

// maxTable bounds a file that is read, in bytes.
const maxTable = 128 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// name returns the file name of a table, "" if the build ID is invalid.
func name(buildID string, full bool) string {
	if b, err := hex.DecodeString(buildID); err != nil || len(b) < 4 || len(b) > 64 {
		return ""
	}
	if full {
		return buildID + ".full"
	}
	return buildID + ".short"
}

// Load returns the stored table of the file with a build ID, with full or short names;
// nil if there is none.
func (d *Dir) Load(buildID string, full bool) Table {
	n := name(buildID, full)
	f, err := d.File(n)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTable+1))
	if err != nil {
		return nil
	}
	t, err := parse(b)
	if err != nil {
		d.Remove(n)
		return nil
	}
	return t
}

// Store replaces the stored table by t. It does not store a table whose names have no
// lines: computing it again is as fast, and a debug file may become available.
func (d *Dir) Store(buildID string, full bool, t Table) error {
	n := name(buildID, full)
	if n == "" || !lines(t) {
		return nil
	}
	f, err := d.Put(n, func(w io.Writer) error {
		_, err := w.Write(encode(t))
		return err
	})
	if err != nil {
		return err
	}
	return f.Close()
}

func lines(t Table) bool {
	for _, frames := range t {
		for i := range frames {
			if frames[i].Line > 0 {
				return true
			}
		}
	}
	return false
}

func encode(t Table) []byte {
	index := map[string]uint64{}
	var strs []string
	var body []byte
	put := func(v uint64) { body = binary.AppendUvarint(body, v) }
	str := func(s string) {
		i, ok := index[s]
		if !ok {
			i = uint64(len(strs))
			index[s] = i
			strs = append(strs, s)
		}
		put(i)
	}
	addrs := make([]uint64, 0, len(t))
	for a := range t {
		addrs = append(addrs, a)
	}
	sort.Slice(addrs, func(i, j int) bool { return addrs[i] < addrs[j] })
	put(uint64(len(addrs)))
	last := uint64(0)
	for _, a := range addrs {
		put(a - last)
		last = a
		frames := t[a]
		put(uint64(len(frames)))
		for i := range frames {
			f := &frames[i]
			str(f.Func)
			str(f.Linkage)
			str(f.File)
			str(f.StartFile)
			put(uint64(max(f.Line, 0)))
			put(uint64(max(f.StartLine, 0)))
			inlined := uint64(0)
			if f.Inlined {
				inlined = 1
			}
			put(inlined)
			put(f.Start)
		}
	}
	head := binary.AppendUvarint(nil, uint64(len(strs)))
	for _, s := range strs {
		head = append(binary.AppendUvarint(head, uint64(len(s))), s...)
	}
	payload := append(head, body...)
	out := binary.LittleEndian.AppendUint32([]byte(magic), crc32.Checksum(payload, castagnoli))
	return append(out, payload...)
}

// reader reads uvarints and keeps the first error.
type reader struct {
	b   []byte
	off int
	err error
}

var errShort = errors.New("ends early")

func (r *reader) next() uint64 {
	v, n := binary.Uvarint(r.b[r.off:])
	if n <= 0 {
		if r.err == nil {
			r.err = fmt.Errorf("byte %d: %w", r.off, errShort)
		}
		r.off = len(r.b)
		return 0
	}
	r.off += n
	return v
}

// count reads the number of items that take at least size bytes each.
func (r *reader) count(size int) int {
	v := r.next()
	if v > uint64(len(r.b)-r.off)/uint64(size) {
		if r.err == nil {
			r.err = fmt.Errorf("byte %d: %d things do not fit", r.off, v)
		}
		return 0
	}
	return int(v)
}

func parse(b []byte) (Table, error) {
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	if !ok || len(rest) < 4 || len(b) > maxTable {
		return nil, errors.New("byte 0: no table of this version")
	}
	if crc32.Checksum(rest[4:], castagnoli) != binary.LittleEndian.Uint32(rest) {
		return nil, errors.New("the checksum does not agree")
	}
	r := &reader{b: rest[4:]}
	strs := make([]string, r.count(1))
	for i := range strs {
		n := r.count(1)
		strs[i] = string(r.b[r.off : r.off+n])
		r.off += n
	}
	str := func() string {
		if i := r.next(); i < uint64(len(strs)) {
			return strs[i]
		} else if r.err == nil {
			r.err = fmt.Errorf("byte %d: no string %d", r.off, i)
		}
		return ""
	}
	n := r.count(2)
	t := make(Table, n)
	addr := uint64(0)
	for range n {
		addr += r.next()
		frames := make([]symbol.Frame, r.count(8))
		for i := range frames {
			f := &frames[i]
			f.Func, f.Linkage, f.File, f.StartFile = str(), str(), str(), str()
			f.Line, f.StartLine = int(min(r.next(), 1<<31)), int(min(r.next(), 1<<31))
			f.Inlined, f.Start = r.next()&1 != 0, r.next()
			if f.Func == "" && r.err == nil {
				r.err = fmt.Errorf("byte %d: a frame without a name", r.off)
			}
		}
		if r.err != nil {
			return nil, r.err
		}
		t[addr] = frames
	}
	return t, r.err
}
