// Package v8 reads the stacks of V8, as it is in Node.js, from outside: which
// JavaScript functions the frames of machine code are that V8 made or brought
// along, where in their text they are, and which calls were compiled into them.
//
// It reads memory through io.ReaderAt (the offset is the address) and knows no
// process: package unwind finds the frames by their frame pointers and hands them
// over with what was copied of the stack. V8's heap is read while the thread runs
// on, and its collector moves and frees what is there. So a function is told from
// two sides that have to agree: the closure in the frame leads to its
// SharedFunctionInfo, and the bytecode in the frame, or the code that the program
// counter lies in, has to belong to the same one. What does not agree is not shown.
//
// A Runtime may be used by several goroutines at once; a Walker belongs to one.
//
// Most offsets are those that V8 says itself, in symbols called v8dbg_… (V8
// tools/gen-postmortem-metadata.py). What these leave out was taken from V8's
// sources (src/objects/*.tq, code.h, src/codegen/source-position-table.cc,
// src/baseline/bytecode-offset-iterator.h), and seen in the memory of Node
// 18.20.8, 20.20.2, 22.20.0 and 24.9.0, on amd64. Each object's type is read
// before it is used. A version that was not tried is used after it has proved
// itself: see Runtime.Problem.
package v8
