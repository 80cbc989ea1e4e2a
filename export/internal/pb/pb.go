// Package pb appends fields of protobuf messages, with those left out that hold
// their type's zero value, as proto3 has it. Functions keep nothing and may be
// called concurrently.
package pb

import "google.golang.org/protobuf/encoding/protowire"

// Message appends a field of bytes, also where they are none.
func Message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

// Text appends a string.
func Text(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// Number appends an integer; those below 0 as the 10 bytes of their two's
// complement, which int64 has.
func Number(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// Packed appends a repeated integer.
func Packed[T int | int64](b []byte, field protowire.Number, ns []T) []byte {
	if len(ns) == 0 {
		return b
	}
	size := 0
	for _, n := range ns {
		size += protowire.SizeVarint(uint64(n))
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))
	for _, n := range ns {
		b = protowire.AppendVarint(b, uint64(n))
	}
	return b
}
