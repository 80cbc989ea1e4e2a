package iowatch

import (
	"encoding/binary"
	"strings"
	"testing"
)

// question is a query for a name.
func question(id uint16, name string, answer bool) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	flags := uint16(0x0100)
	if answer {
		flags = 0x8180
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, 0, 1, 0, 0, 0, 0, 0, 0)
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0, 0, 1, 0, 1)
}

func TestParseMessage(t *testing.T) {
	query, answer := question(0x1234, "db.example.org", false), question(7, "x", true)
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	long := question(9, strings.Repeat("a", 60)+"."+strings.Repeat("b", 60), false)
	for name, c := range map[string]struct {
		b    []byte
		size int
		want Message
		ok   bool
	}{
		"a query":              {query, len(query), Message{0x1234, false, "db.example.org"}, true},
		"of unknown size":      {query, 0, Message{0x1234, false, "db.example.org"}, true},
		"over TCP":             {framed, len(framed), Message{0x1234, false, "db.example.org"}, true},
		"an answer":            {answer, len(answer), Message{7, true, "x"}, true},
		"a name that is cut":   {long[:MessageBytes], len(long), Message{9, false, strings.Repeat("a", 60) + "." + strings.Repeat("b", 38) + "…"}, true},
		"the root":             {question(9, "", false)[:messageHeader+1], 17, Message{9, false, ""}, true},
		"a pointer":            {append(query[:messageHeader:messageHeader], 0xc0, 12), 30, Message{0x1234, false, ""}, true},
		"the length alone":     {framed[:2], 2, Message{}, false},
		"a short one":          {query[:11], 11, Message{}, false},
		"two questions":        {[]byte{0, 1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, 13, Message{}, false},
		"an update":            {[]byte{0, 1, 0x28, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, 13, Message{}, false},
		"a part of a response": {[]byte("HTTP/1.1 200 OK\r\n"), 17, Message{}, false},
	} {
		if got, ok := ParseMessage(c.b, int64(c.size)); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(question(1, "a.b", false), int64(0))
	f.Add(question(1, "a.b", true), int64(21))
	f.Add([]byte{0, 19, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1}, int64(21))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		m, ok := ParseMessage(b, size)
		if !ok && m != (Message{}) || len(m.Name) > len(b)+len("…") {
			t.Errorf("%+v of %d bytes", m, len(b))
		}
	})
}
