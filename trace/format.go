// Package trace implements recordings: it writes them while threads are sampled
// (Recorder, Writer), defines the .sliver file, and reads it back (Open, Recording,
// Replay). docs/recording-format.md describes the file.
//
// It does not access a live process or look up names: modules are identified by path and
// build ID, and Symbols holds the results of package symbol.
package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Magic begins every recording. Its first and last bytes reveal a transfer that mangles
// text.
const Magic = "\x89SLIVER\n"

// Version is the version of the format that this package writes. A reader accepts every
// file of its major version; unknown chunks with a lower-case type are skipped.
const (
	Major = 1
	Minor = 6 // 1: calls, 2: sections, 3: I/O, 4: switches, 5: kernel stacks, 6: calls of methods
)

const (
	headerLen = 16 // magic, u16 major, u16 minor, u32 reserved
	chunkHead = 12 // type, u32 length, u32 CRC-32C of type, length and payload

	// MaxChunk limits a reader's allocation for one chunk.
	MaxChunk = 256 << 20
)

// Chunk types. An upper-case first letter means that a reader that does not
// know the chunk cannot read the recording.
const (
	chunkProcess  = "PROC" // JSON Process
	chunkThread   = "THRD" // JSON Thread
	chunkMaps     = "MAPS" // JSON mapsChunk: one generation of the address space
	chunkEvents   = "EVNT" // events of one thread
	chunkStats    = "stat" // JSON Stats; the newest one applies
	chunkNames    = "name" // JSON Captured: bytes kept because they may vanish
	chunkWait     = "wait" // JSON list of wait descriptions
	chunkSymbols  = "symb" // symbols, see symbols.go
	chunkTrigger  = "trig" // JSON Trigger: why a flight recorder kept this
	chunkTasks    = "task" // JSON Tasks: a scan of all goroutines
	chunkTraced   = "trac" // JSON Traced: which functions' calls there are, the newest one counts
	chunkCalls    = "call" // calls of one thread, see calls.go
	chunkIO       = "iosm" // JSON IO: sums per file and findings, the newest one counts
	chunkIONames  = "ionm" // JSON IONames: further files and stacks of operations
	chunkOps      = "iops" // I/O operations of one thread, see ops.go
	chunkSwitched = "swsm" // JSON Switches: accounts of context switches, the newest one counts
	chunkWakers   = "swnm" // JSON wakersChunk: further threads that woke others
	chunkKernel   = "swks" // JSON kernelChunk: further kernel stacks of waits
	chunkSwitches = "swch" // times off the CPUs of one thread, see switches.go
	chunkEnd      = "ENDS" // JSON End: the recording is complete
	chunkSection  = "SECT" // uvarint number of the section of the chunks after it, see sections.go
	chunkLeft     = "left" // JSON LeftOut: processes that are not in the recording, the newest one counts
)

// Errors that a caller may branch on. Each is wrapped with the value found.
var (
	ErrForeign = errors.New("not a sliver recording")
	ErrNewer   = errors.New("recording of a newer version of sliver")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendHeader(b []byte) []byte {
	b = append(b, Magic...)
	b = binary.LittleEndian.AppendUint16(b, Major)
	b = binary.LittleEndian.AppendUint16(b, Minor)
	return binary.LittleEndian.AppendUint32(b, 0)
}

func checkHeader(b []byte) error {
	if len(b) < headerLen || string(b[:len(Magic)]) != Magic {
		return ErrForeign
	}
	if v := binary.LittleEndian.Uint16(b[len(Magic):]); v != Major {
		return fmt.Errorf("%w: format %d, this program reads %d", ErrNewer, v, Major)
	}
	return nil
}

// chunkCRC covers type, length and payload, so that it also detects a damaged header.
func chunkCRC(head []byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:8], castagnoli), castagnoli, payload)
}

// Writer appends chunks. It must be used by one goroutine.
type Writer struct {
	w     io.Writer
	buf   []byte
	held  bool // see hold
	bytes int64
	err   error

	events  eventEncoder // of Events; kept to reuse its memory
	payload []byte
}

// NewWriter writes the file header to w and returns a Writer for the chunks.
func NewWriter(w io.Writer) (*Writer, error) {
	tw := &Writer{w: w}
	tw.write(appendHeader(nil))
	return tw, tw.err
}

// Bytes returns the number of bytes written so far.
func (w *Writer) Bytes() int64 { return w.bytes }

// Err returns the first error of the underlying writer. Nothing is written after it, so
// that the file stays intact up to that point.
func (w *Writer) Err() error { return w.err }

func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(b)
	w.bytes += int64(n)
	w.err = err
}

// chunk writes one chunk with a single call, so that a kill tears at most one; held
// chunks are written together.
func (w *Writer) chunk(typ string, payload []byte) error {
	if len(payload) > MaxChunk {
		return fmt.Errorf("chunk %s of %d bytes is over the limit of %d", typ, len(payload), MaxChunk)
	}
	at := len(w.buf)
	b := append(w.buf, typ...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, chunkCRC(b[at:], payload))
	w.buf = append(b, payload...)
	if w.held && len(w.buf) < holdMost {
		return w.err
	}
	return w.writeBuf()
}

func (w *Writer) writeBuf() error {
	w.write(w.buf)
	w.buf = w.buf[:0]
	return w.err
}

// holdMost is how many bytes of chunks are held at most.
const holdMost = 64 << 10

// hold buffers small chunks, to write many with one call, until release.
func (w *Writer) hold() { w.held = true }

func (w *Writer) release() error {
	w.held = false
	if len(w.buf) == 0 {
		return w.err
	}
	return w.writeBuf()
}

// chunkAt reads the header of the chunk at off.
func chunkAt(r io.ReaderAt, off, size int64) (typ string, length int, crc uint32, err error) {
	var h [chunkHead]byte
	if size-off < chunkHead {
		return "", 0, 0, io.ErrUnexpectedEOF
	}
	if _, err := r.ReadAt(h[:], off); err != nil {
		return "", 0, 0, err
	}
	n := binary.LittleEndian.Uint32(h[4:])
	for _, c := range h[:4] {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return "", 0, 0, fmt.Errorf("offset %d: no chunk begins here", off)
		}
	}
	if n > MaxChunk || int64(n) > size-off-chunkHead {
		return string(h[:4]), int(n), 0, io.ErrUnexpectedEOF
	}
	return string(h[:4]), int(n), binary.LittleEndian.Uint32(h[8:]), nil
}

// payloadAt reads and checks a chunk's payload into buf (grown as needed).
func payloadAt(r io.ReaderAt, off int64, typ string, length int, crc uint32, buf []byte) ([]byte, error) {
	if cap(buf) < length {
		buf = make([]byte, length)
	}
	buf = buf[:length]
	if _, err := r.ReadAt(buf, off+chunkHead); err != nil {
		return nil, fmt.Errorf("offset %d: read chunk %s: %w", off, typ, err)
	}
	var h [8]byte
	copy(h[:], typ)
	binary.LittleEndian.PutUint32(h[4:], uint32(length))
	if chunkCRC(h[:], buf) != crc {
		return nil, fmt.Errorf("offset %d: chunk %s is damaged (checksum)", off, typ)
	}
	return buf, nil
}
