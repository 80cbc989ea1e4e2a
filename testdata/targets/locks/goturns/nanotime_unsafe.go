package main

import (
	"sync"
	"unsafe"
)

// nanotime returns CLOCK_MONOTONIC in ns, which package time does not expose.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

func address(m *sync.Mutex) uint64 { return uint64(uintptr(unsafe.Pointer(m))) }

func addressRW(m *sync.RWMutex) uint64 { return uint64(uintptr(unsafe.Pointer(m))) }

// addressOf returns the address of the channel itself: a channel value is a pointer.
func addressOf(c chan int) uint64 { return uint64(*(*uintptr)(unsafe.Pointer(&c))) }
