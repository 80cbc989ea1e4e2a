package iowatch

import "encoding/binary"

// Message is what the beginning of a message to or from a name server shows (RFC 1035, section 4.1).
type Message struct {
	ID     uint16
	Answer bool
	Name   string // of the first question; "": unknown
}

// MessageBytes is how much of a message is copied. Names beyond that are cut.
const MessageBytes = 112

const (
	messageHeader = 12
	maxLabel      = 63
)

// ParseMessage parses the beginning of a message of size bytes; size 0: unknown. It returns false for other
// bytes, and for a part of a stream that does not begin with a header.
func ParseMessage(b []byte, size int64) (m Message, ok bool) {
	if len(b) >= 2 && size > 2 && int64(binary.BigEndian.Uint16(b)) == size-2 { // over TCP, the length comes first
		b = b[2:]
	}
	if len(b) < messageHeader || size != 0 && size < messageHeader {
		return m, false
	}
	const answer, opcode = 0x80, 0x78 // of byte 2; queries have operation 0
	if b[2]&opcode != 0 || binary.BigEndian.Uint16(b[4:]) != 1 {
		return m, false
	}
	return Message{ID: binary.BigEndian.Uint16(b), Answer: b[2]&answer != 0, Name: questionName(b[messageHeader:])}, true
}

// questionName is the name that b begins with, without its last dot.
func questionName(b []byte) string {
	var name []byte
	for len(b) > 0 && b[0] != 0 {
		n := int(b[0])
		if n > maxLabel { // a pointer, which a question has no use for
			return ""
		}
		if n >= len(b) {
			name = append(append(name, b[1:]...), "…"...)
			break
		}
		name = append(append(name, b[1:1+n]...), '.')
		b = b[1+n:]
	}
	for i, c := range name {
		if c < 0x21 || c == 0x7f {
			name[i] = '?'
		}
	}
	if n := len(name); n > 0 && name[n-1] == '.' {
		name = name[:n-1]
	}
	return string(name)
}
