package store

import "unsafe"

const sliceSize = int(unsafe.Sizeof(Slice{}))

// bytesOf returns the memory of s.
func bytesOf(s []Slice) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sliceSize)
}

// slicesIn returns the slices in memory whose size is a multiple of a slice's and that is
// aligned to 8.
func slicesIn(b []byte) []Slice {
	return unsafe.Slice((*Slice)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sliceSize)
}
