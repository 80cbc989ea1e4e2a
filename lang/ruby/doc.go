// Package ruby reads the stacks of CRuby (MRI) 3.1 to 3.4 from outside: the methods, blocks and lines
// that each thread runs, the threads and fibers of the program, what threads wait for in Ruby's own
// calls, and the holder of the global VM lock of each Ractor. It merges Ruby frames with the frames of
// the C stack that runs them.
//
// It reads memory through io.ReaderAt (the offset is the address) and does not know processes. All
// data may be damaged or change during reads; every length and chain is bounded.
//
// A Runtime may be used by several goroutines at once. A Thread must be used by one.
//
// CRuby does not describe itself, and distributions strip the symbols of its variables. So the offsets
// of its structures are tables (layout.go), and the virtual machine and the table of method names are
// found by their content in the writable data of the program (seek.go): a candidate must pass checks
// that connect it with its threads and names. A process whose data passes no table is refused.
//
// The structures are described in vm_core.h, ractor_core.h, thread_pthread.h, method.h, symbol.h,
// iseq.c, cont.c, thread_sync.c, internal/class.h and internal/imemo.h of ruby/ruby at the tags v3_1_2,
// v3_3_8 and v3_4_5. What a frame is called follows vm_backtrace.c there.
package ruby
