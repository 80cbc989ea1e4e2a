// Package python reads the stacks of CPython from outside: the Python functions and lines that each
// thread runs, the names of threads, and the owner of the global interpreter lock. It merges Python
// frames with the frames of the C stack that runs them.
//
// It reads memory through io.ReaderAt (the offset is the address) and does not know processes.
// Package unwind copies memory while a thread cannot run, and calls the Stepper (stepper.go, plan.go,
// far.go). Language is the row in the list of languages (language.go). All data may be damaged or change
// during reads; every length and chain is bounded.
//
// A Runtime may be used by several goroutines at once. A Thread must be used by one.
//
// The offsets of 3.8 to 3.12 come from a C compiler, for the headers Include/internal/pycore_*.h
// and Include/cpython/*.h of the releases 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1 on amd64. All
// fields are of fixed size or pointers, so arm64 has the same offsets. 3.13 and 3.14 describe
// themselves (struct _Py_DebugOffsets, python/cpython Include/internal/pycore_debug_offsets.h at
// 01d08a8). Offsets outside of that description come from the headers of 3.14.8. Other versions are
// refused: see Runtime.Prove.
package python
