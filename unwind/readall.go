package unwind

import "github.com/sliverprof/sliver/unwind/rule"

// SpanReader is a Memory that reads many spans at once, packed into b. It returns the number of
// bytes read before the first failure.
type SpanReader interface {
	ReadSpans(spans []rule.Span, b []byte) int
}

// ReadAll reads spans into buf, packed. off[i] is the offset of span i in buf, or -1 if it could
// not be read. Both slices grow as needed.
func ReadAll(mem Memory, spans []rule.Span, off []int, buf []byte) ([]int, []byte) {
	size := 0
	off = off[:0]
	for _, s := range spans {
		off = append(off, size)
		size += s.Len
	}
	if size > len(buf) {
		buf = make([]byte, size+size/2)
	}
	many, ok := mem.(SpanReader)
	for i := 0; i < len(spans); i++ { // span i failed in the batch before
		if !ok {
			if n, _ := mem.ReadAt(buf[off[i]:off[i]+spans[i].Len], int64(spans[i].Addr)); n < spans[i].Len {
				off[i] = -1
			}
			continue
		}
		got := many.ReadSpans(spans[i:], buf[off[i]:size])
		for i < len(spans) && got >= spans[i].Len {
			got -= spans[i].Len
			i++
		}
		if i < len(spans) {
			off[i] = -1
		}
	}
	return off, buf
}
