package main

import _ "unsafe" // for go:linkname

// nanotime returns CLOCK_MONOTONIC in ns, which package time does not expose.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64
