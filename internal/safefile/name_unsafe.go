package safefile

import "unsafe"

var helperComm = [16]byte{'s', 'l', 'i', 'v', 'e', 'r', '-', 'f', 'i', 'l', 'e', 's'}

// namePointer is the helper's name as prctl(2) takes it.
func namePointer() unsafe.Pointer { return unsafe.Pointer(&helperComm[0]) }
