// Package v8 reads the stacks of V8 in Node.js from outside: the JavaScript functions of machine
// code frames that V8 generated or contains, their positions in the source text, and inlined calls.
//
// It reads memory through io.ReaderAt (the offset is the address) and does not know processes.
// Package unwind finds the frames by their frame pointers and passes them with the copied stack
// (stepper.go). Language is the row in the list of languages.
// V8's heap is read while the thread runs, and its collector moves and frees objects. A function is
// therefore identified from two sides that must agree: the closure in the frame leads to its
// SharedFunctionInfo, and the bytecode in the frame, or the code that contains the PC, must belong
// to the same one. Otherwise the function is not shown.
//
// A Runtime may be used by several goroutines at once. A Walker must be used by one.
//
// Most offsets come from V8 itself, from symbols called v8dbg_… (V8
// tools/gen-postmortem-metadata.py). The others come from V8's sources (src/objects/*.tq, code.h,
// src/codegen/source-position-table.cc, src/baseline/bytecode-offset-iterator.h), and were checked
// in the memory of Node 18.20.8, 20.20.2, 22.20.0 and 24.9.0, on amd64. Each object's type is read
// before the object is used. An untested version is used after it has passed validation: see
// Runtime.Problem.
package v8
