// Package python reads the stacks of CPython from outside: which thread runs
// which Python functions at which lines, what the threads are called, and who
// holds the global interpreter lock. It joins Python's frames to those of the C
// stack that carries them.
//
// It reads memory through io.ReaderAt (the offset is the address) and knows no
// process: who copies what while a thread cannot run is package unwind's
// business, when names are wanted that of its callers. Everything that it reads
// may be damaged or change meanwhile; every length and chain is bounded.
//
// A Runtime may be used by several goroutines at once; a Thread belongs to one.
//
// Offsets of 3.8 to 3.12 are those that a C compiler gives for the headers
// Include/internal/pycore_*.h and Include/cpython/*.h of the releases 3.8.18,
// 3.9.18, 3.10.13, 3.11.7 and 3.12.1, on amd64; all fields are of fixed size or
// pointers, so arm64 has the same. 3.13 and 3.14 describe themselves (struct
// _Py_DebugOffsets, python/cpython Include/internal/pycore_debug_offsets.h at
// 01d08a8; what it leaves out is as in the headers of 3.14.8). Other versions are refused: see Runtime.Prove.
package python
