package safefile

import "unsafe"

var helperComm = [16]byte{'s', 'l', 'i', 'v', 'e', 'r', '-', 'f', 'i', 'l', 'e', 's'}

// namePointer returns the helper's name for prctl(2).
func namePointer() unsafe.Pointer { return unsafe.Pointer(&helperComm[0]) }
