package hprof

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"io"
	"os"
	"syscall"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Compression is how a stream is compressed.
type Compression string

const (
	Plain Compression = ""
	Gzip  Compression = "gzip" // also of several members, as HotSpot's -gz writes it
	Zstd  Compression = "zstd"
	Bzip2 Compression = "bzip2"
	// Packed is what Pack writes. Its checksum is compared at its end.
	Packed Compression = "spack"
)

// maxZstdWindow bounds the memory of decompression: frames with a larger window
// are refused. zstd -19 has 8 MiB.
const maxZstdWindow = 32 << 20

// Decompress returns the decompressed content of src, by its first bytes, and how
// it is compressed. A stream that is not compressed is returned as it is.
func Decompress(src io.Reader) (io.Reader, Compression, error) {
	b := bufio.NewReaderSize(src, 64<<10)
	start, err := b.Peek(len(packMagic))
	if err != nil && err != io.EOF {
		return nil, Plain, err
	}
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		return z, Gzip, err
	case bytes.HasPrefix(start, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		return z, Zstd, err
	case bytes.HasPrefix(start, []byte("BZh")):
		return bzip2.NewReader(b), Bzip2, nil
	}
	if string(start) == packMagic {
		// A caller that stops reading leaves the goroutine behind, until it ends.
		out, in := io.Pipe()
		go func() { in.CloseWithError(Unpack(in, b)) }()
		return out, Packed, nil
	}
	return b, Plain, nil
}

// File is a dump in a file, decompressed, for reading as a stream and at any
// offset.
type File struct {
	*io.SectionReader
	Compression Compression // of the file as it was found
	// Damage is why decompression ended before the end of the file, or nil. What
	// came before is in the File.
	Damage error
	file   *os.File
}

// Open opens a dump in a file. A compressed file or a pipe is first written decompressed into a file without a name in the
// folder temp ("" is the system's), whose space the kernel frees at Close.
func Open(path, temp string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	d := &File{file: f}
	if err := d.open(temp); err != nil {
		d.file.Close()
		return nil, err
	}
	return d, nil
}

func (d *File) open(temp string) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	var src io.Reader
	if src, d.Compression, err = Decompress(d.file); err != nil {
		return err
	}
	if d.Compression != Plain || !info.Mode().IsRegular() {
		plain, damage, err := spool(src, temp)
		if err != nil {
			return err
		}
		d.file.Close()
		d.file, d.Damage = plain, damage
		if info, err = plain.Stat(); err != nil {
			return err
		}
	}
	d.SectionReader = io.NewSectionReader(d.file, 0, info.Size())
	return nil
}

// Fd returns the descriptor of the decompressed content, to be mapped.
func (d *File) Fd() uintptr { return d.file.Fd() }

// Close closes the file.
func (d *File) Close() error { return d.file.Close() }

// spool writes src into a file without a name. If src fails, the file has what
// came before, and damage is why.
func spool(src io.Reader, temp string) (f *os.File, damage, err error) {
	if f, err = nameless(temp); err != nil {
		return nil, nil, err
	}
	h, buf := &holes{f: f}, make([]byte, 64*holeBlock)
	for damage == nil && err == nil {
		n := 0
		for n < len(buf) && damage == nil {
			var k int
			k, damage = src.Read(buf[n:])
			n += k
		}
		_, err = h.Write(buf[:n])
	}
	if err == nil {
		err = h.end()
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	if damage == io.EOF {
		damage = nil
	}
	return f, damage, nil
}
