package ruby

// none marks a field that is unknown or absent in a version.
const none = 0xffff

// layout holds offsets in the structures of one minor version, in bytes.
type layout struct {
	ractorThreads, ractorMain, ractorNode uint64 // threads.set, threads.main and vmlr_node of rb_ractor_struct
	lock, lockEnd                         uint64 // threads.gvl (3.1) or threads.sched of rb_ractor_struct
	running                               uint64 // its holder (owner or running)
	readyq                                uint64 // its list of the threads that wait for it (waitq or readyq)
	threadNT, threadEC                    uint64 // nt and ec of rb_thread_struct
	threadReady                           uint64 // the thread's node in readyq
	threadTID, ntTID                      uint64 // TID in rb_thread_struct (3.1), or in the rb_native_thread
	cond                                  uint64 // condition on which a thread waits for the lock: in the thread (3.1) or the rb_native_thread
	frameSize                             uint64 // of rb_control_frame_struct
	infoLines, infoSize, infoIndex        uint64 // insns_info: body, size and succ_index_table of rb_iseq_constant_body
	parent, local                         uint64 // parent_iseq and local_iseq
	attrs                                 uint64 // builtin_attrs; none up to 3.3, where they do not change a backtrace
	stringData                            uint64 // text of an embedded string
	fiberPrev                             uint64 // rb_fiber_struct.prev
	status, lockingMutex                  uint64 // of rb_thread_struct; status is two bits
}

// Equal in all versions.
const (
	vmRactors    = 8  // rb_vm_struct.ractor.set
	vmMainRactor = 32 // ractor.main_ractor
	vmMainThread = 40 // ractor.main_thread
	vmHead       = 48
	threadNode   = 0 // rb_thread_struct.lt_node
	threadRactor = 24
	threadVM     = 32
	threadHead   = 56
	ecStack      = 0 // rb_execution_context_struct: vm_stack, in words of vm_stack_size
	ecStackSize  = 8
	ecFrame      = 16 // cfp
	ecFiber      = 40
	ecThread     = 48
	ecHead       = 56
	framePC      = 0 // rb_control_frame_struct
	frameSP      = 8
	frameISeq    = 16
	frameEP      = 32
	iseqBody     = 16 // rb_iseq_struct
	iseqHead     = 24
	bodyType     = 0 // rb_iseq_constant_body
	bodySize     = 4 // iseq_size, in words
	bodyCode     = 8 // iseq_encoded
	bodyPath     = 64
	bodyLabel    = 80
	bodyFirst    = 88 // location.first_lineno: a Fixnum in 3.1, otherwise an int
	bodyHead     = 264
	bodyKey      = 184 // up to local_iseq; the rest changes
	infoEntry    = 12  // size of iseq_insn_info_entry, whose first field is an int with the line
	entryDef     = 16  // rb_method_entry_struct
	entryOwner   = 32
	entryHead    = 40
	defID        = 32 // rb_method_definition_struct
	defHead      = 40
	stringLen    = 16 // RString, from 3.2 on also if embedded
	stringPtr    = 24
	arrayLen     = 16 // RArray
	arrayPtr     = 32
	arrayData    = 16
	classExt     = 32 // end of RClass, where rb_classext_struct begins, from 3.3 on
	extAttached  = 96
	extPermanent = 117 // bit 0
	extPath      = 120
	fiberEC      = 80 // rb_fiber_struct.cont.saved_ec
)

// layouts lists, for each minor version, the tables of the C libraries and machines on which it is
// built. Those on arm64 differ from those on amd64 where a pthread_mutex_t (48 bytes, not 40)
// or a jmp_buf is in front.
//
// The offsets of 3.1, 3.3 and 3.4 were computed by GCC, for amd64 and for arm64, from the headers of
// ruby/ruby at v3_1_2, v3_3_8 and v3_4_5 with the configuration of Debian's builds. Those of 3.2 come
// from its thread_pthread.h, and from open-telemetry/opentelemetry-ebpf-profiler@b442421
// interpreter/ruby/ruby.go, which gives rb_ractor_struct.running_ec (here lockEnd) and the fields of
// rb_iseq_constant_body; those of waits are missing.
var layouts = map[int][]layout{
	1: {
		{ractorThreads: 304, ractorMain: 528, ractorNode: 568, lock: 336, running: 336, readyq: 384, lockEnd: 520,
			threadNT: none, threadEC: 40, threadReady: 104, threadTID: 88, ntTID: none, cond: 120, frameSize: 64,
			infoLines: 120, infoSize: 136, infoIndex: 144, parent: 168, local: 176, attrs: none, stringData: 16, fiberPrev: 512, status: 92, lockingMutex: 264},
		{ractorThreads: 312, ractorMain: 544, ractorNode: 584, lock: 344, running: 344, readyq: 400, lockEnd: 536,
			threadNT: none, threadEC: 40, threadReady: 104, threadTID: 88, ntTID: none, cond: 120, frameSize: 64,
			infoLines: 120, infoSize: 136, infoIndex: 144, parent: 168, local: 176, attrs: none, stringData: 16, fiberPrev: 624, status: 92, lockingMutex: 272},
	},
	2: {
		{ractorThreads: 304, ractorMain: 528, ractorNode: 568, lock: 336, running: 336, readyq: 384, lockEnd: 520,
			threadNT: 40, threadEC: 48, threadReady: 56, threadTID: none, ntTID: 16, cond: 32, frameSize: 64,
			infoLines: 112, infoSize: 128, infoIndex: 136, parent: 160, local: 168, attrs: none, stringData: 24, fiberPrev: none, status: none, lockingMutex: none},
		{ractorThreads: 312, ractorMain: 544, ractorNode: 584, lock: 344, running: 344, readyq: 400, lockEnd: 536,
			threadNT: 40, threadEC: 48, threadReady: 56, threadTID: none, ntTID: 16, cond: 32, frameSize: 64,
			infoLines: 112, infoSize: 128, infoIndex: 136, parent: 160, local: 168, attrs: none, stringData: 24, fiberPrev: none, status: none, lockingMutex: none},
	},
	3: {
		{ractorThreads: 256, ractorMain: 392, ractorNode: 432, lock: 288, running: 328, readyq: 344, lockEnd: 384,
			threadNT: 40, threadEC: 48, threadReady: 72, threadTID: none, ntTID: 24, cond: 40, frameSize: 56,
			infoLines: 112, infoSize: 128, infoIndex: 136, parent: 160, local: 168, attrs: none, stringData: 24, fiberPrev: 680, status: 240, lockingMutex: 344},
		{ractorThreads: 264, ractorMain: 408, ractorNode: 448, lock: 296, running: 344, readyq: 360, lockEnd: 400,
			threadNT: 40, threadEC: 48, threadReady: 72, threadTID: none, ntTID: 24, cond: 40, frameSize: 56,
			infoLines: 112, infoSize: 128, infoIndex: 136, parent: 160, local: 168, attrs: none, stringData: 24, fiberPrev: 632, status: 240, lockingMutex: 352},
	},
	4: {
		{ractorThreads: 256, ractorMain: 392, ractorNode: 432, lock: 288, running: 328, readyq: 344, lockEnd: 384,
			threadNT: 40, threadEC: 48, threadReady: 72, threadTID: none, ntTID: 24, cond: 40, frameSize: 56,
			infoLines: 112, infoSize: 128, infoIndex: 136, parent: 160, local: 168, attrs: 260, stringData: 24, fiberPrev: 664, status: 240, lockingMutex: 344},
		{ractorThreads: 264, ractorMain: 408, ractorNode: 448, lock: 296, running: 344, readyq: 360, lockEnd: 400,
			threadNT: 40, threadEC: 48, threadReady: 72, threadTID: none, ntTID: 24, cond: 40, frameSize: 56,
			infoLines: 112, infoSize: 128, infoIndex: 136, parent: 160, local: 168, attrs: 260, stringData: 24, fiberPrev: 888, status: 240, lockingMutex: 352},
	},
}
