// Package pb appends fields of protobuf messages. Like proto3, it omits fields with their
// type's zero value. Functions keep no state and may be called concurrently.
package pb

import "google.golang.org/protobuf/encoding/protowire"

// Message appends a bytes field, also if it is empty.
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

// Number appends an integer. Negative values take the 10 bytes of their two's complement,
// as int64 does.
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
