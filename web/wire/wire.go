// Package wire defines the binary frames that a sliver server sends over its websocket,
// version 1: see docs/web-api.md. It encodes for the server and decodes for clients, and
// depends on neither. All functions may be called concurrently.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Version is the version of the layout and of the accompanying JSON messages. It is part
// of the websocket's subprotocol, so that incompatible peers cannot connect.
const Version = 1

// Protocol is the websocket subprotocol.
const Protocol = "sliver.v1"

// Types of frames.
const (
	TypeView = 1 // everything in a view
	TypeMore = 2 // slices that ended since, and all open ones
	TypeGap  = 3 // the client was too slow and misses slices
)

// FirstLane is the first row number of lanes: 0xffff states, 0xfffe locks, 0xfffd pauses,
// 0xfffc gaps and marks.
const FirstLane = 0xff00

// Frame is one message.
type Frame struct {
	Type    int
	ID      uint32  // of the view, as numbered by the client
	Now     float64 // newest time of the recording, ns since its base
	Bin     float64 // ns: thinner slices are merged
	Threads []Thread
}

// Thread is one thread's part of a frame.
type Thread struct {
	Seq  uint32
	Lost uint32  // slices dropped before they could be sent
	Last float64 // newest event, ns since the base
	Seen float64 // when the stack was last confirmed
	Rows []Row
}

// Row is one depth, or a lane, of a thread.
type Row struct {
	Depth uint32
	Items []Item
}

// Item is a slice, or several thin ones.
type Item struct {
	Start, End float64 // ns since the base; End is math.Inf(1) for an open slice
	Busy       float32 // ns: the sum of the durations of merged slices
	Value      uint32  // calls: number of the function (the longest one's); lanes: see docs/web-api.md
	Count      uint32  // number of slices in it
}

const (
	magic     = 0x31564c53 // "SLV1"
	headLen   = 32
	threadLen = 32
	itemLen   = 8 + 8 + 4 + 4 + 4
	rowLen    = 8
)

// Limits on what a reader allocates for a frame.
const (
	MaxThreads = 1 << 16
	MaxFrame   = 256 << 20
)

// Append appends the encoding of f to b.
func Append(b []byte, f *Frame) []byte {
	le := binary.LittleEndian
	f64 := func(v float64) { b = le.AppendUint64(b, math.Float64bits(v)) }
	base := len(b)
	b = le.AppendUint32(b, magic)
	b = append(b, byte(f.Type), 0)
	b = le.AppendUint16(b, uint16(len(f.Threads)))
	b = le.AppendUint32(b, f.ID)
	b = le.AppendUint32(b, 0)
	f64(f.Now)
	f64(f.Bin)
	for i := range f.Threads {
		t := &f.Threads[i]
		n := 0
		for j := range t.Rows {
			n += len(t.Rows[j].Items)
		}
		b = le.AppendUint32(b, t.Seq)
		b = le.AppendUint32(b, uint32(n))
		b = le.AppendUint32(b, uint32(len(t.Rows)))
		b = le.AppendUint32(b, t.Lost)
		f64(t.Last)
		f64(t.Seen)
		each := func(g func(*Item)) {
			for j := range t.Rows {
				for k := range t.Rows[j].Items {
					g(&t.Rows[j].Items[k])
				}
			}
		}
		each(func(x *Item) { f64(x.Start) })
		each(func(x *Item) { f64(x.End) })
		each(func(x *Item) { b = le.AppendUint32(b, math.Float32bits(x.Busy)) })
		each(func(x *Item) { b = le.AppendUint32(b, x.Value) })
		each(func(x *Item) { b = le.AppendUint32(b, x.Count) })
		for j := range t.Rows {
			b = le.AppendUint32(b, t.Rows[j].Depth)
			b = le.AppendUint32(b, uint32(len(t.Rows[j].Items)))
		}
		for (len(b)-base)&7 != 0 {
			b = append(b, 0)
		}
	}
	return b
}

// SetID changes the view's number in an encoded frame.
func SetID(frame []byte, id uint32) { binary.LittleEndian.PutUint32(frame[8:], id) }

// ErrFrame reports bytes that are not a frame of this version.
var ErrFrame = errors.New("not a frame of sliver.v1")

// Decode decodes a frame. Errors carry the offset and wrap ErrFrame.
func Decode(b []byte) (*Frame, error) {
	le := binary.LittleEndian
	bad := func(off int, what string) error { return fmt.Errorf("byte %d: %s: %w", off, what, ErrFrame) }
	if len(b) < headLen {
		return nil, bad(len(b), "ends in the head")
	}
	if le.Uint32(b) != magic {
		return nil, bad(0, "wrong magic")
	}
	f64 := func(off int) float64 { return math.Float64frombits(le.Uint64(b[off:])) }
	f := &Frame{Type: int(b[4]), ID: le.Uint32(b[8:]), Now: f64(16), Bin: f64(24)}
	if f.Type < TypeView || f.Type > TypeGap {
		return nil, bad(4, "unknown type")
	}
	off := headLen
	for range le.Uint16(b[6:]) {
		if len(b)-off < threadLen {
			return nil, bad(off, "ends in a thread")
		}
		n, m := int(le.Uint32(b[off+4:])), int(le.Uint32(b[off+8:]))
		t := Thread{Seq: le.Uint32(b[off:]), Lost: le.Uint32(b[off+12:]), Last: f64(off + 16), Seen: f64(off + 24)}
		off += threadLen
		if left := len(b) - off; n > left/itemLen || m > (left-n*itemLen)/rowLen {
			return nil, bad(off, "items do not fit")
		}
		start, end := off, off+8*n
		busy, value, count := off+16*n, off+20*n, off+24*n
		rows := off + itemLen*n
		k := 0
		for j := range m {
			depth, l := le.Uint32(b[rows+8*j:]), int(le.Uint32(b[rows+8*j+4:]))
			if l > n-k {
				return nil, bad(rows+8*j, "a row has more items than there are")
			}
			r := Row{Depth: depth, Items: make([]Item, l)}
			for i := range r.Items {
				r.Items[i] = Item{f64(start + 8*k), f64(end + 8*k), math.Float32frombits(le.Uint32(b[busy+4*k:])),
					le.Uint32(b[value+4*k:]), le.Uint32(b[count+4*k:])}
				k++
			}
			t.Rows = append(t.Rows, r)
		}
		if k != n {
			return nil, bad(rows, "items without a row")
		}
		off = min((rows+rowLen*m+7)&^7, len(b))
		f.Threads = append(f.Threads, t)
	}
	return f, nil
}
