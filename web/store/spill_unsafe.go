package store

import "unsafe"

const sliceSize = int(unsafe.Sizeof(Slice{}))

// bytesOf is the memory of s.
func bytesOf(s []Slice) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sliceSize)
}

// slicesIn are the slices in memory that holds a whole number of them and
// begins at a multiple of 8.
func slicesIn(b []byte) []Slice {
	return unsafe.Slice((*Slice)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sliceSize)
}
