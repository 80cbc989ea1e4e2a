package hprof

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
)

// The packed format: docs/spack.md.
const (
	packMagic   = "\x89SPACK\r\n"
	packVersion = 3

	blockEnd   = 0 // the sum of the dump follows
	blockItems = 1
	blockRaw   = 2
	blockMixed = 3 // since version 3

	// How a part is compressed: the lowest bit of its size, in version 2.
	partZstd  = 0
	partMixed = 1

	// packedBlock is how much of a dump is packed at once, about.
	packedBlock = 2 << 20
	// maxBlock bounds a block: an item's head or a piece more than packedBlock.
	maxBlock = packedBlock + maxWhole + maxPiece
	// maxBlockItems bounds the items of a block: the smallest has 2 bytes.
	maxBlockItems = maxBlock
)

// Pack writes a dump in a form that takes about half of what gzip makes of it.
// Unpack returns exactly the same bytes: damaged parts, and bytes behind the dump,
// are stored raw.
func Pack(w io.Writer, src io.Reader) error { return pack(w, src, packedBlock) }

// pack is Pack with blocks of about block bytes of the dump.
func pack(w io.Writer, src io.Reader, block int64) error {
	start := make([]byte, looksBytes)
	n, err := io.ReadFull(src, start)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	start = start[:n]
	cut := looksCut(start)
	sum := sha256.New()
	r, err := NewReader(io.TeeReader(io.MultiReader(bytes.NewReader(start), src), sum))
	if err != nil {
		return err
	}
	start = nil
	r.forced = cut
	p := &packer{block: block, Reader: r, model: newModel(true), mixer: newMixer(false), out: bufio.NewWriterSize(w, 64<<10)}
	if p.zip, err = newZipper(); err != nil {
		return err
	}
	defer p.zip.enc.Close()
	r.tap = &tap{w: &p.raw}
	if _, err := p.out.WriteString(packMagic + string([]byte{packVersion})); err != nil {
		return err
	}
	p.begin()
	for err == nil {
		var it *Item
		if it, err = r.Next(); err == nil {
			err = p.pack(it)
		}
		if err == nil && (r.Offset()-p.blockStart >= block || int64(p.model.held+p.mixedBytes()) >= block) {
			err = p.flush()
		}
	}
	return p.finish(err, sum)
}

type packer struct {
	*Reader
	model      *model
	out        *bufio.Writer
	zip        *zipper
	x          rec
	raw        bytes.Buffer // bytes read but not in a block yet: part of an item
	items      uint64
	block      int64 // how much of the dump is packed at once
	blockStart int64 // offset of the current block in the dump
	packed     int64 // offset of the first byte that is not in a block
	data       []byte
	lengths    []byte
	mixer      *mixer // nil: no more blocks are mixed
	mixedFrom  int    // the mixer's count when the block began
	ends       []int  // of a group's columns
	frame      []byte
}

// pack codes an item with its body.
func (p *packer) pack(it *Item) error {
	x := &p.x
	if err := p.describe(it, x); err != nil {
		return err
	}
	x.inline = nil
	if x.op == opRecord+TagString && p.model.mixer != nil && it.Body <= maxPiece {
		b, err := p.next(int(it.Body))
		if err != nil {
			return err
		}
		x.inline = b
	}
	p.model.head(x)
	if x.at < x.body && x.inline != nil { // the body is an item of its own, which has been read
		p.items++
		p.model.content(x, x.inline)
	}
	p.coded()
	for x.at < x.body {
		b, err := p.next(x.piece())
		if err != nil {
			return err
		}
		p.model.content(x, b)
		p.coded()
		if x.at < x.body && p.Offset()-p.blockStart >= p.block {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	return p.model.err
}

// next returns the next n bytes of the body.
func (p *packer) next(n int) ([]byte, error) {
	if !p.need(n) {
		return nil, p.short(p.item.Offset, p.item.name())
	}
	b := p.buf[p.pos : p.pos+n]
	p.pos += n
	p.left -= int64(n)
	return b, nil
}

// coded notes that all that has been read is in the block.
func (p *packer) coded() {
	p.items++
	p.tap.from = p.pos
	p.raw.Reset()
	p.packed = p.Offset()
}

// describe fills x with an item's head.
func (p *packer) describe(it *Item, x *rec) error {
	class, version := x.class, x.version
	*x = rec{class: class, version: version[:0], typ: it.Type, id: it.ID, ref: it.Ref, trace: it.Trace, count: it.Count, a: it.Serial, b: it.Count, micros: it.Micros}
	switch it.Kind {
	case KindHeader:
		x.op = opHeader
		b := it.Head[len(magic):]
		n := bytes.IndexByte(b, 0)
		x.version = append(x.version, b[:n]...)
		x.idSize = binary.BigEndian.Uint32(b[n+1:])
		x.millis = binary.BigEndian.Uint64(b[n+5:])
	case KindRecord:
		x.length = binary.BigEndian.Uint32(it.Head[5:])
		x.a = it.Serial
		switch tag := it.Tag; {
		case tag == TagHeapSegment:
			x.op = opSegment
		case tag == TagHeapDumpEnd:
			x.op = opDumpEnd
		case tag >= TagString && tag <= TagControl:
			x.op = opRecord + tag
		default:
			x.op, x.tag = opOther, tag
		}
	default:
		x.op = it.Tag
		switch it.Tag {
		case SubClass:
			ids := p.header.IDSize
			x.reserved = [2]uint64{ID(it.Head[1+5*ids+4:], ids), ID(it.Head[1+6*ids+4:], ids)}
			return p.Class(&x.class)
		case SubPrimitiveArray:
			if it.Head[0] == subKeptArray {
				x.op = opKept
			} else if p.cut {
				x.op = opBare
			}
		case SubRootThread:
			x.b = it.Trace
		case SubHeapInfo:
			x.a = it.Heap
		}
	}
	return nil
}

// flush writes the block.
func (p *packer) flush() error {
	if p.items == 0 {
		return nil
	}
	kind := byte(blockItems)
	if p.model.mixer != nil {
		kind = blockMixed
	}
	p.frame = append(p.frame[:0], kind)
	p.frame = binary.AppendUvarint(p.frame, uint64(p.packed-p.blockStart))
	p.frame = binary.AppendUvarint(p.frame, p.items)
	if kind == blockMixed {
		b := p.mixer.end()
		p.frame = binary.AppendUvarint(p.frame, uint64(len(b)))
		p.frame = append(p.frame, b...)
	}
	if _, err := p.out.Write(p.frame); err != nil {
		return err
	}
	for g := range groups {
		p.data, p.lengths = p.model.gather(g, p.data[:0], p.lengths[:0])
		if err := p.part(p.lengths, nil); err != nil {
			return err
		}
		p.ends = p.ends[:0]
		for at, rest := 0, p.lengths; len(rest) > 0; {
			n, size := binary.Uvarint(rest)
			at, rest = at+int(n), rest[size:]
			p.ends = append(p.ends, at)
		}
		if err := p.part(p.data, p.ends); err != nil {
			return err
		}
	}
	p.model.next()
	p.items, p.blockStart = 0, p.packed
	p.zip.once = p.packed >= packedTrials
	p.begin()
	return nil
}

// begin begins a block, which is mixed while not too many bytes have been.
func (p *packer) begin() {
	if p.mixer != nil && p.mixer.count >= mixedBytes {
		p.mixer, p.model.mixer = nil, nil
	}
	if p.mixer != nil {
		p.mixer.begin(nil)
		p.model.mixer, p.mixedFrom = p.mixer, p.mixer.count
	}
}

// mixedBytes returns how many bytes the block has that are mixed.
func (p *packer) mixedBytes() int {
	if p.mixer == nil {
		return 0
	}
	return p.mixer.count - p.mixedFrom
}

// part writes bytes compressed, behind their sizes before and after. Columns end at ends.
func (p *packer) part(b []byte, ends []int) error {
	p.frame = binary.AppendUvarint(p.frame[:0], uint64(len(b)))
	var zipped []byte
	if len(b) > 0 {
		var err error
		if zipped, err = p.zip.frame(b, ends); err != nil {
			return err
		}
		p.frame = binary.AppendUvarint(p.frame, uint64(len(zipped)))
	}
	if _, err := p.out.Write(p.frame); err != nil {
		return err
	}
	_, err := p.out.Write(zipped)
	return err
}

// finish writes the last block, and the bytes that form no item as raw blocks.
func (p *packer) finish(err error, sum hash.Hash) error {
	var damage *Error
	if err != io.EOF && !errors.As(err, &damage) {
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	if err != io.EOF {
		if e := p.Reader.err; e != nil && e != io.EOF {
			return err
		}
		if err := p.tap.flush(p.buf, p.Reader.end); err != nil {
			return err
		}
		rest := io.MultiReader(&p.raw, p.src)
		b := make([]byte, packedBlock)
		for {
			n, err := 0, error(nil)
			for n < len(b) && err == nil { // io.ReadFull hides a source that was cut short
				var got int
				got, err = rest.Read(b[n:])
				n += got
			}
			if n > 0 {
				if err := p.writeRaw(b[:n]); err != nil {
					return err
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	if _, err = p.out.Write(sum.Sum([]byte{blockEnd})); err != nil {
		return err
	}
	return p.out.Flush()
}

func (p *packer) writeRaw(b []byte) error {
	if _, err := p.out.Write([]byte{blockRaw}); err != nil {
		return err
	}
	return p.part(b, nil)
}
