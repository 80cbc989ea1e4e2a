package hprof

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// ErrPacked is the error of Unpack for a stream that Pack did not write.
var ErrPacked = errors.New("not packed by sliver")

// Unpack writes the dump that Pack was given. It compares the dump's checksum:
// without an error, it is the same.
func Unpack(w io.Writer, src io.Reader) error {
	u := &unpacker{in: bufio.NewReaderSize(src, 64<<10), model: newModel(false), mixedText: mixedText}
	head := make([]byte, len(packMagic)+1)
	if _, err := io.ReadFull(u.in, head); err != nil || string(head[:len(packMagic)]) != packMagic {
		return ErrPacked
	}
	u.version = head[len(packMagic)]
	if u.version < 1 || u.version > packVersion {
		return fmt.Errorf("packed in version %d of the format; versions up to %d can be read", u.version, packVersion)
	}
	var err error
	if u.zip, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxBlock), zstd.WithDecoderMaxWindow(maxBlock)); err != nil {
		return err
	}
	defer u.zip.Close()
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	for {
		more, err := u.block(sum.Sum)
		if err != nil {
			return fmt.Errorf("packed block %d, at %d of the dump: %w", u.blocks, u.done, err)
		}
		if !more {
			return nil
		}
		if _, err := out.Write(u.out); err != nil {
			return err
		}
		u.done += int64(len(u.out))
		u.blocks++
	}
}

type unpacker struct {
	in        *bufio.Reader
	model     *model
	zip       *zstd.Decoder
	text      *textMixer // of version 2; nil: not needed yet
	mixedText int        // bytes of text that may still be mixed in version 2
	mixer     *mixer     // nil: not needed yet
	version   byte
	x         rec
	out       []byte // the block's part of the dump
	blocks    int
	done      int64
}

// number reads a number of at most limit.
func (u *unpacker) number(limit uint64) (int, error) {
	v, err := binary.ReadUvarint(u.in)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && v > limit {
		err = fmt.Errorf("a size of %d, at most %d are allowed", v, limit)
	}
	return int(v), err
}

// frame reads a compressed part of size bytes.
func (u *unpacker) frame(size int) ([]byte, error) {
	n, err := u.number(2*maxBlock + 1)
	if err != nil {
		return nil, err
	}
	how := partZstd
	if u.version == 2 {
		n, how = n>>1, n&1
	}
	if how == partMixed {
		if u.mixedText -= size; u.mixedText < 0 {
			return nil, fmt.Errorf("more than %d bytes of mixed text", mixedText)
		}
		if u.text == nil {
			u.text = newTextMixer()
		}
	}
	var packed bytes.Buffer // grows with the input, not with the claimed size
	if _, err := io.CopyN(&packed, u.in, int64(n)); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	if how == partMixed {
		return u.text.unmix(packed.Bytes(), size), nil
	}
	b, err := u.zip.DecodeAll(packed.Bytes(), nil)
	if err == nil && len(b) != size {
		err = fmt.Errorf("a part has %d bytes, expected %d", len(b), size)
	}
	return b, err
}

// block reads a block into out, and at the end compares the sum.
func (u *unpacker) block(sum func([]byte) []byte) (more bool, err error) {
	kind, err := u.in.ReadByte()
	if err != nil {
		return false, io.ErrUnexpectedEOF
	}
	u.out = u.out[:0]
	switch kind {
	case blockEnd:
		want := make([]byte, sha256.Size)
		if _, err := io.ReadFull(u.in, want); err != nil {
			return false, io.ErrUnexpectedEOF
		}
		if !bytes.Equal(want, sum(nil)) {
			return false, errors.New("the checksum of the dump differs")
		}
		if _, err := u.in.ReadByte(); err != io.EOF {
			return false, errors.New("something follows the end")
		}
		return false, nil
	case blockRaw:
		size, err := u.number(maxBlock)
		if err != nil {
			return false, err
		}
		b, err := u.frame(size)
		u.out = append(u.out, b...)
		return true, err
	case blockItems:
		return true, u.items(false)
	case blockMixed:
		if u.version < 3 {
			break
		}
		return true, u.items(true)
	}
	return false, fmt.Errorf("a block of unknown kind %d", kind)
}

func (u *unpacker) items(mixed bool) error {
	size, err := u.number(maxBlock)
	if err != nil {
		return err
	}
	items, err := u.number(maxBlockItems)
	if err != nil {
		return err
	}
	m := u.model
	m.next()
	if m.mixer = nil; mixed {
		if err := u.mixed(); err != nil {
			return err
		}
	}
	total := 0
	for g := range groups {
		for _, part := range []*[]byte{&m.lengths[g], &m.data[g]} {
			n, err := u.number(maxBlock)
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			if total += n; total > 2*maxBlock {
				return errors.New("its parts have more than a block may have")
			}
			if *part, err = u.frame(n); err != nil {
				return err
			}
		}
	}
	for range items {
		if err := u.item(size); err != nil {
			return err
		}
	}
	if len(u.out) != size || !m.drained() {
		return errors.New("its items are not all of the block")
	}
	return nil
}

// mixed reads what the mixer coded of a block.
func (u *unpacker) mixed() error {
	n, err := u.number(2 * maxBlock)
	if err != nil {
		return err
	}
	var coded bytes.Buffer
	if _, err := io.CopyN(&coded, u.in, int64(n)); err != nil {
		return io.ErrUnexpectedEOF
	}
	if u.mixer == nil {
		u.mixer = newMixer(true)
	}
	if u.mixer.count >= mixedBytes {
		return fmt.Errorf("a mixed block after %d mixed bytes, at most %d are allowed", u.mixer.count, mixedBytes)
	}
	u.mixer.begin(coded.Bytes())
	u.model.mixer = u.mixer
	return nil
}

// item decodes the next head or piece of a body.
func (u *unpacker) item(limit int) error {
	m, x := u.model, &u.x
	if x.at < x.body {
		n := x.piece()
		if len(u.out)+n > limit {
			return errors.New("more content than the block has")
		}
		from := len(u.out)
		u.out = append(u.out, make([]byte, n)...)
		m.content(x, u.out[from:])
		return m.err
	}
	*x = rec{class: x.class, inline: x.inline[:0]}
	if m.head(x); m.err != nil {
		return m.err
	}
	u.write(x)
	if x.text {
		u.out = append(u.out, x.inline...)
	}
	if len(u.out) > limit {
		return errors.New("more items than the block has")
	}
	if m.mixer != nil && m.mixer.count > mixedBytes+maxBlock {
		return fmt.Errorf("more than %d mixed bytes", mixedBytes+maxBlock)
	}
	return nil
}

func (u *unpacker) u4(v uint32) { u.out = binary.BigEndian.AppendUint32(u.out, v) }
func (u *unpacker) u2(v int)    { u.out = binary.BigEndian.AppendUint16(u.out, uint16(v)) }
func (u *unpacker) id(v uint64) {
	if u.model.ids == 4 {
		u.u4(uint32(v))
		return
	}
	u.out = binary.BigEndian.AppendUint64(u.out, v)
}

func (u *unpacker) typed(t Type, v uint64) {
	u.out = append(u.out, byte(t))
	for i := t.Size(u.model.ids) - 1; i >= 0; i-- {
		u.out = append(u.out, byte(v>>(8*i)))
	}
}

// write encodes an item's head.
func (u *unpacker) write(x *rec) {
	switch op := x.op; {
	case op == opHeader:
		u.out = append(append(append(u.out, magic...), x.version...), 0)
		u.u4(x.idSize)
		u.out = binary.BigEndian.AppendUint64(u.out, x.millis)
	case op > opRecord && op <= opRecord+TagControl:
		u.record(x, op-opRecord)
	case op == opOther:
		u.record(x, x.tag)
	case op == opSegment:
		u.record(x, TagHeapSegment)
	case op == opDumpEnd:
		u.record(x, TagHeapDumpEnd)
	case op == SubClass:
		u.class(x)
	case op == SubHeapInfo:
		u.out = append(u.out, op)
		u.u4(x.a)
		u.id(x.ref)
	case x.sym.typ != 0 || op == SubInstance || op == SubObjectArray:
		u.object(x)
	default:
		u.out = append(u.out, op)
		u.id(x.id)
		switch n := subHead(op, u.model.ids) - 1 - u.model.ids; {
		case op == SubRootJNIGlobal:
			u.id(x.ref)
		case n >= 4:
			u.u4(x.a)
			if n == 8 {
				u.u4(x.b)
			}
		}
	}
}

func (u *unpacker) record(x *rec, tag uint8) {
	u.out = append(u.out, tag)
	u.u4(x.micros)
	u.u4(x.length)
	switch tag {
	case TagString:
		u.id(x.id)
	case TagLoadClass:
		u.u4(x.a)
		u.id(x.id)
		u.u4(x.trace)
		u.id(x.ref)
	}
}

func (u *unpacker) object(x *rec) {
	tag := x.op
	switch tag {
	case opBare:
		tag = SubPrimitiveArray
	case opKept:
		tag = subKeptArray
	}
	u.out = append(u.out, tag)
	u.id(x.id)
	u.u4(x.trace)
	switch x.op {
	case SubInstance:
		u.id(x.ref)
		u.u4(x.count)
	case SubObjectArray:
		u.u4(x.count)
		u.id(x.ref)
	default:
		u.u4(x.count)
		u.out = append(u.out, byte(x.typ))
	}
}

func (u *unpacker) class(x *rec) {
	c := &x.class
	u.out = append(u.out, SubClass)
	u.id(c.ID)
	u.u4(c.Trace)
	for _, v := range []uint64{c.Super, c.Loader, c.Signers, c.Domain, x.reserved[0], x.reserved[1]} {
		u.id(v)
	}
	u.u4(c.Size)
	u.u2(len(c.Constants))
	for _, k := range c.Constants {
		u.u2(int(k.Index))
		u.typed(k.Type, k.Value)
	}
	u.u2(len(c.Statics))
	for _, f := range c.Statics {
		u.id(f.Name)
		u.typed(f.Type, f.Value)
	}
	u.u2(len(c.Fields))
	for _, f := range c.Fields {
		u.id(f.Name)
		u.out = append(u.out, byte(f.Type))
	}
}
