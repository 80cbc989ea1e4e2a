package hprof

import (
	"bytes"

	"github.com/klauspost/compress/zstd"
)

// packedTrials is how much of a dump is compressed in several ways, of which the
// shortest is used. Names and classes make up most of a small dump and come at the start
// of a large one. The rest is compressed once.
const packedTrials = 32 << 20

// packedCuts are the sizes of the pieces in which a part is compressed, each by way of
// trial. A piece is a block of the zstd frame: it has codes of its own for literals and
// lengths, and can refer to bytes of the earlier ones.
var packedCuts = [...]int{maxCut, 32 << 10, 16 << 10, 11 << 10, 8 << 10, 6 << 10, 4 << 10, 3 << 10, 2 << 10}

// maxCut is the size of a block of zstd at most.
const maxCut = 128 << 10

// zipper compresses the parts of blocks, one after the other.
type zipper struct {
	enc   *zstd.Encoder
	tries [2]bytes.Buffer
	once  bool // without trials
}

func newZipper() (*zipper, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(2<<20), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	return &zipper{enc: enc}, err
}

// frame returns b compressed, valid until the next call. Columns end at ends.
func (z *zipper) frame(b []byte, ends []int) ([]byte, error) {
	least, other := &z.tries[0], &z.tries[1]
	for i, cut := range packedCuts {
		if i > 0 && (z.once || len(b) <= cut) {
			break
		}
		if err := z.pieces(other, b, cut, ends); err != nil {
			return nil, err
		}
		if i == 0 || other.Len() < least.Len() {
			least, other = other, least
		}
	}
	return least.Bytes(), nil
}

// pieces compresses b to out in pieces of about cut bytes, which end where a column
// does if one ends near. EncodeAll would have tables of its own.
func (z *zipper) pieces(out *bytes.Buffer, b []byte, cut int, ends []int) error {
	out.Reset()
	z.enc.Reset(out)
	for at := 0; ; {
		next := min(at+cut, len(b))
		for len(ends) > 0 && ends[0] <= at+cut/2 {
			ends = ends[1:]
		}
		if next < len(b) && len(ends) > 0 && ends[0] <= at+min(cut+cut/2, maxCut) {
			next = ends[0]
		}
		if _, err := z.enc.Write(b[at:next]); err != nil {
			return err
		}
		if at = next; at == len(b) {
			return z.enc.Close()
		}
		if err := z.enc.Flush(); err != nil {
			return err
		}
	}
}
