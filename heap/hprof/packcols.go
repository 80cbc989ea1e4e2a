package hprof

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// group says what a column of a packed block holds. Columns of a group are
// compressed together.
type group uint8

const (
	groupSymbols group = iota // which item comes, and how well its fields were predicted
	groupCodes                // how a value was predicted
	groupSmall                // numbers of one byte, and their longer forms
	groupValues               // values of primitive fields
	groupText
	groupBytes                    // values of byte[] and boolean[]
	groupOther                    // bytes without a model
	groupPlane0                   // of references and deltas that were not predicted: the lowest byte, and so on
	groupWide   = groupPlane0 + 8 // values of other primitive arrays, by type and byte
	groups      = groupWide + 1
)

var errColumns = errors.New("a column ends too soon")

// column is a sequence of bytes in a block: bytes written so far while packing, bytes
// left to read while unpacking.
type column struct {
	buf   []byte
	group group
	block uint64 // the block that buf belongs to
	past  uint64 // the last bytes, the newest lowest, if they were mixed
	id    uint32 // of columns that were mixed, from 1
}

// columns are those of a block.
type columns struct {
	packing bool
	block   uint64
	used    [groups][]*column // in the order of their first use in the block
	data    [groups][]byte    // unpacking: rest of a group
	lengths [groups][]byte    // unpacking: rest of the columns' lengths
	held    int               // packing: bytes in columns
	mixer   *mixer            // nil: the block is not mixed
	err     error
}

// open prepares a column for use in the current block.
func (c *columns) open(k *column) {
	k.block = c.block
	if c.packing {
		c.used[k.group] = append(c.used[k.group], k)
		return
	}
	k.buf = nil
	n, size := binary.Uvarint(c.lengths[k.group])
	if size <= 0 || n > uint64(len(c.data[k.group])) {
		c.fail()
		return
	}
	c.lengths[k.group] = c.lengths[k.group][size:]
	k.buf, c.data[k.group] = c.data[k.group][:n], c.data[k.group][n:]
}

func (c *columns) fail() {
	if c.err == nil {
		c.err = errColumns
	}
}

// u1 puts v into the column and returns it, or takes it from there.
func (c *columns) u1(k *column, v byte) byte {
	if c.mixer != nil {
		return c.mixer.columnByte(k, v)
	}
	if k.block != c.block {
		c.open(k)
	}
	if c.packing {
		k.buf = append(k.buf, v)
		c.held++
		return v
	}
	if len(k.buf) == 0 {
		c.fail()
		return 0
	}
	v = k.buf[0]
	k.buf = k.buf[1:]
	return v
}

// bytes puts b into the column, or fills b from there.
func (c *columns) bytes(k *column, b []byte) {
	if c.mixer != nil {
		for i := range b {
			b[i] = c.mixer.columnByte(k, b[i])
		}
		return
	}
	if k.block != c.block {
		c.open(k)
	}
	if c.packing {
		k.buf = append(k.buf, b...)
		c.held += len(b)
		return
	}
	if len(k.buf) < len(b) {
		c.fail()
		clear(b)
		return
	}
	copy(b, k.buf)
	k.buf = k.buf[len(b):]
}

// small codes a number that is mostly below 240: in one byte then, else in one that
// says how many follow.
func (c *columns) small(k *column, v uint64) uint64 {
	const direct = 240
	code := byte(v)
	if v >= direct {
		code = byte(direct + (bits.Len64(v)+7)/8)
	}
	if code = c.u1(k, code); code < direct {
		return uint64(code)
	}
	return c.raw(k, v, int(code-direct))
}

// raw codes the n lowest bytes of v, 0 to 8, lowest first.
func (c *columns) raw(k *column, v uint64, n int) uint64 {
	var b [8]byte
	if n > 8 {
		c.fail()
		return 0
	}
	binary.LittleEndian.PutUint64(b[:], v)
	c.bytes(k, b[:n])
	clear(b[n:])
	return binary.LittleEndian.Uint64(b[:])
}

// next begins the next block.
func (c *columns) next() {
	c.block++
	c.held = 0
	for g := range c.used {
		c.used[g] = c.used[g][:0]
		c.data[g], c.lengths[g] = nil, nil
	}
}

// keptColumn bounds the memory that a column holds from one block to the next.
const keptColumn = 1 << 10

// gather returns a group's columns one behind the other, appended to data, and
// their lengths, appended to lengths.
func (c *columns) gather(g group, data, lengths []byte) ([]byte, []byte) {
	for _, k := range c.used[g] {
		lengths = binary.AppendUvarint(lengths, uint64(len(k.buf)))
		data = append(data, k.buf...)
		if k.buf = k.buf[:0]; cap(k.buf) > keptColumn {
			k.buf = nil
		}
	}
	return data, lengths
}

// drained reports whether a block that was unpacked had nothing more than was read.
func (c *columns) drained() bool {
	for g := range c.data {
		if len(c.data[g]) > 0 || len(c.lengths[g]) > 0 {
			return false
		}
		for _, k := range c.used[g] {
			if len(k.buf) > 0 {
				return false
			}
		}
	}
	return true
}

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
