package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// Operations of io_uring pass by the system calls of reads and writes. Two programs, at the submission and
// the completion of a request (raw tracepoints io_uring_submit_req and io_uring_complete, Linux 6.0), keep
// sums by descriptor and operation.

// Value of the map of requests, by the address of the request.
const (
	reqStart = 0
	reqKey   = 8  // see ringKey
	reqTID   = 24 // 32 bits
	reqBytes = 32
	// Behind the copy of the value on the stack of the program at a completion.
	reqIno = 32
	reqDev = 40 // 32 bits
)

// keyIno is the offset of ringKey.Ino.
const keyIno = 12

// Value of the map of sums.
const (
	ringOps      = 0
	ringErrors   = 8
	ringMoved    = 16 // sum of the results that are not errors
	ringTime     = 24
	ringLongest  = 32
	ringIno      = 40
	ringDev      = 48 // 32 bits
	ringTID      = 52 // 32 bits: of the last submission
	ringUseBytes = 56
)

// ringKey is the key of the sums: a descriptor, or with Fixed the position of a registered file, the
// operation, and the file: io_uring opens and closes descriptors without a system call, so that Gen stays.
type ringKey struct {
	FD, Gen   uint32
	Op, Fixed uint8
	_         [2]uint8
	Ino       uint32 // low bits of the inode; 0: no file
}

const (
	maxRequests = 1 << 14 // under way at once
	maxRingUses = 1 << 13
)

// ringLayout has offsets of a request, from the kernel's type information.
type ringLayout struct {
	opcode, flags, fd, file uint32 // of io_kiocb
	cqe                     bool   // the tracepoint passes the completion entry
	inode                   uint32 // of file
}

// ringOffsets finds them, and the form of the tracepoint: it passes result and flags as numbers up to
// Linux 6.15, and then the completion entry.
func ringOffsets() (*ringLayout, error) {
	l := &ringLayout{}
	if err := offsets([]member{
		{&l.opcode, "io_kiocb", []string{"opcode"}},
		{&l.flags, "io_kiocb", []string{"flags"}},
		{&l.fd, "io_kiocb", []string{"cqe", "fd"}},
		{&l.file, "io_kiocb", []string{"file"}},
		{&l.inode, "file", []string{"f_inode"}},
	}); err != nil {
		return nil, err
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTypes, err)
	}
	var point *btf.Typedef
	if err := spec.TypeByName("btf_trace_io_uring_complete", &point); err != nil {
		return nil, fmt.Errorf("find tracepoint io_uring_complete: %w", err)
	}
	pointer, ok := point.Type.(*btf.Pointer)
	if !ok {
		return nil, errors.New("tracepoint io_uring_complete has no function")
	}
	proto, ok := pointer.Target.(*btf.FuncProto)
	if !ok {
		return nil, errors.New("tracepoint io_uring_complete has no function")
	}
	const old, now = 8, 4 // parameters, with one that programs do not get
	switch len(proto.Params) {
	case now:
		l.cqe = true
	case old:
	default:
		return nil, fmt.Errorf("tracepoint io_uring_complete has %d parameters, %d or %d are known", len(proto.Params), now, old)
	}
	return l, nil
}

// watchRings attaches the two programs.
func (e *IO) watchRings(c *ioConfig, m ioMaps, l *layout) error {
	if l.cache == nil {
		return errors.New("the kernel's types for files are not known")
	}
	r, err := ringOffsets()
	if err != nil {
		return err
	}
	for _, x := range []struct {
		point string
		code  asm.Instructions
	}{{"io_uring_complete", completed(c, m, r, l)}, {"io_uring_submit_req", submitted(c, m, r, l)}} {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_uring", Type: ebpf.RawTracepoint, License: "GPL", Instructions: x.code})
		if err != nil {
			return fmt.Errorf("load program for %s: %w", x.point, err)
		}
		e.progs = append(e.progs, p)
		at, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: x.point, Program: p})
		if err != nil {
			return fmt.Errorf("attach to %s: %w", x.point, err)
		}
		e.links = append(e.links, at)
	}
	return nil
}

// Places on the stack of these programs: a value of a map, and the address of the request.
const (
	onValue   = onHeader
	onRequest = onUse
)

// submitted is the program at a submission. Its argument is the request.
func submitted(c *ioConfig, m ioMaps, l *ringLayout, all *layout) asm.Instructions {
	const fixed = 1 // REQ_F_FIXED_FILE
	a := &assembler{}
	a.own(c.pid, all)
	a.add(asm.LoadMem(asm.R7, asm.R6, 0, asm.DWord), asm.StoreMem(asm.RFP, onRequest, asm.R7, asm.DWord))
	for off := int16(0); off < reqBytes; off += 8 {
		a.add(storeWord(asm.RFP, onValue+off, 0))
	}
	read := func(to int, n int32, off uint32) {
		a.add(asm.Mov.Reg(asm.R3, asm.R7))
		a.kernelRead(to, n, int32(off))
	}
	read(onValue+reqKey+8, 1, l.opcode)
	read(onValue+reqKey, 4, l.fd)
	read(onSize, 8, l.flags)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTID, asm.Word), asm.StoreMem(asm.RFP, onValue+reqTID, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord), asm.And.Imm(asm.R1, fixed), asm.StoreMem(asm.RFP, onValue+reqKey+9, asm.R1, asm.Byte),
		asm.JNE.Imm(asm.R1, 0, "known"),
		asm.LoadMem(asm.R8, asm.RFP, onValue+reqKey, asm.Word), asm.JGE.Imm(asm.R8, maxFDs, "known"), asm.StoreMem(asm.RFP, onKey, asm.R8, asm.DWord))
	a.lookup(m.fds, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "known"), asm.LoadMem(asm.R1, asm.R0, fdGen, asm.Word), asm.StoreMem(asm.RFP, onValue+reqKey+4, asm.R1, asm.Word))
	a.label("known")
	a.add(asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.RFP, onValue+reqStart, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, m.requests), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, onRequest), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, onValue),
		asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
	return a.end()
}

// completed is the program at a completion, which runs in a thread of the process.
func completed(c *ioConfig, m ioMaps, l *ringLayout, all *layout) asm.Instructions {
	const more = 2 // IORING_CQE_F_MORE: the request goes on
	a := &assembler{}
	a.own(c.pid, all)
	a.add(asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord), asm.StoreMem(asm.RFP, onRequest, asm.R1, asm.DWord))
	a.lookup(m.requests, onRequest)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R9, asm.R0))
	// R8: the result; R7: flags of the completion.
	if l.cqe { // struct io_uring_cqe: user data, result, flags
		a.add(asm.LoadMem(asm.R3, asm.R6, 16, asm.DWord), storeWord(asm.RFP, onTmp, 0))
		a.kernelRead(onTmp, 8, 8)
		a.add(asm.LoadMem(asm.R8, asm.RFP, onTmp, asm.Word), asm.LoadMem(asm.R7, asm.RFP, onTmp+4, asm.Word))
	} else {
		a.add(asm.LoadMem(asm.R8, asm.R6, 24, asm.DWord), asm.LoadMem(asm.R7, asm.R6, 32, asm.DWord))
	}
	a.add(asm.LSh.Imm(asm.R8, 32), asm.ArSh.Imm(asm.R8, 32))
	for off := int16(0); off < reqBytes; off += 8 {
		a.add(asm.LoadMem(asm.R1, asm.R9, off, asm.DWord), asm.StoreMem(asm.RFP, onValue+off, asm.R1, asm.DWord))
	}
	a.add(storeWord(asm.RFP, onValue+reqIno, 0), storeWord(asm.RFP, onValue+reqDev, 0), asm.LoadMem(asm.R3, asm.RFP, onRequest, asm.DWord))
	a.kernelRead(onTmp, 8, int32(l.file))
	a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord), asm.JEq.Imm(asm.R3, 0, "nameless"))
	a.kernelRead(onTmp, 8, int32(l.inode))
	a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord), asm.JEq.Imm(asm.R3, 0, "nameless"))
	a.identity(all.cache)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord), asm.StoreMem(asm.RFP, onValue+reqDev, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord), asm.StoreMem(asm.RFP, onValue+reqIno, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, onValue+reqKey+keyIno, asm.R1, asm.Word))
	a.label("nameless")
	a.add(asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.R9, reqStart, asm.R0, asm.DWord), // of what follows
		asm.LoadMem(asm.R1, asm.RFP, onValue+reqStart, asm.DWord), asm.Sub.Reg(asm.R0, asm.R1), asm.StoreMem(asm.RFP, onSize, asm.R0, asm.DWord))
	a.lookup(m.rings, onValue+reqKey)
	a.add(asm.JNE.Imm(asm.R0, 0, "sums"), storeWord(asm.RFP, onKey, 0))
	a.lookup(m.zero, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R3, asm.R0), asm.LoadMapPtr(asm.R1, m.rings), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, onValue+reqKey),
		asm.Mov.Imm(asm.R4, 1), asm.FnMapUpdateElem.Call()) // BPF_NOEXIST: another thread may be first
	a.lookup(m.rings, onValue+reqKey)
	a.add(asm.JNE.Imm(asm.R0, 0, "sums"))
	a.count(m, lostUses)
	a.add(asm.Ja.Label("done"))
	a.label("sums")
	a.add(asm.Mov.Reg(asm.R9, asm.R0), asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, ringOps),
		asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, ringTime),
		asm.LoadMem(asm.R2, asm.R9, ringLongest, asm.DWord), asm.JGE.Reg(asm.R2, asm.R1, "shorter"), asm.StoreMem(asm.R9, ringLongest, asm.R1, asm.DWord))
	a.label("shorter")
	a.add(asm.LoadMem(asm.R1, asm.RFP, onValue+reqTID, asm.Word), asm.StoreMem(asm.R9, ringTID, asm.R1, asm.Word), asm.JSLT.Imm(asm.R8, 0, "failed"),
		asm.AddAtomic.Mem(asm.R9, asm.R8, asm.DWord, ringMoved), asm.Ja.Label("file"))
	a.label("failed")
	a.add(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, ringErrors))
	a.label("file")
	a.add(asm.LoadMem(asm.R1, asm.RFP, onValue+reqDev, asm.DWord), asm.StoreMem(asm.R9, ringDev, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, onValue+reqIno, asm.DWord), asm.StoreMem(asm.R9, ringIno, asm.R1, asm.DWord))
	a.label("done")
	a.add(asm.And.Imm(asm.R7, more), asm.JNE.Imm(asm.R7, 0, "out"), asm.LoadMapPtr(asm.R1, m.requests), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, onRequest),
		asm.FnMapDeleteElem.Call())
	return a.end()
}

// RingUse is the requests of one operation of io_uring on one descriptor.
type RingUse struct {
	FD      int32 // or with Fixed the position of a registered file; -1: the operation has none
	Gen     uint32
	Fixed   bool
	Op      iowatch.Op // OpRead, OpWrite, OpSync, or OpNone for another operation
	Ino     uint64     // of the file, as in IORecord; 0: unknown
	Dev     uint32
	TID     stack.TID // of the last submission
	Ops     uint64
	Errors  uint64
	Bytes   uint64 // that were read or written
	Time    uint64 // ns from submission to completion
	Longest uint64
}

// Rings calls f for the completed requests of io_uring, as they are now. The error says why there are none
// on this kernel.
func (e *IO) Rings(f func(*RingUse)) error {
	if e.noRings != nil {
		return e.noRings
	}
	var k ringKey
	var v struct {
		Ops, Errors, Moved, Time, Longest, Ino uint64
		Dev, TID                               uint32
	}
	it := e.maps["io_rings"].Iterate()
	for it.Next(&k, &v) {
		u := RingUse{FD: int32(k.FD), Gen: k.Gen, Fixed: k.Fixed != 0, Op: ringOp(k.Op), Ino: v.Ino, Dev: v.Dev, TID: stack.TID(v.TID), Ops: v.Ops, Errors: v.Errors,
			Time: v.Time, Longest: v.Longest}
		if u.Op == iowatch.OpRead || u.Op == iowatch.OpWrite {
			u.Bytes = v.Moved
		}
		if ringNoFile(k.Op) {
			u.FD, u.Gen, u.Fixed = -1, 0, false
		}
		f(&u)
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // it changes while it is read
		return fmt.Errorf("read sums of io_uring: %w", err)
	}
	return nil
}

// ringOp returns the sort of an operation (include/uapi/linux/io_uring.h, enum io_uring_op).
func ringOp(n uint8) iowatch.Op {
	switch n {
	case 1, 4, 10, 22, 27, 49, 58, 60: // READV, READ_FIXED, RECVMSG, READ, RECV, READ_MULTISHOT, RECV_ZC, READV_FIXED
		return iowatch.OpRead
	case 2, 5, 9, 23, 26, 47, 48, 61: // WRITEV, WRITE_FIXED, SENDMSG, WRITE, SEND, SEND_ZC, SENDMSG_ZC, WRITEV_FIXED
		return iowatch.OpWrite
	case 3, 8: // FSYNC, SYNC_FILE_RANGE
		return iowatch.OpSync
	}
	return iowatch.OpNone
}

// ringNoFile reports whether an operation has no descriptor (those without needs_file in io_uring/opdef.c of
// Linux 6.18): the kernel leaves that of its requests at 0.
func ringNoFile(n uint8) bool {
	switch n {
	case 0, 7, 11, 12, 14, 15, // NOP, POLL_REMOVE, TIMEOUT, TIMEOUT_REMOVE, ASYNC_CANCEL, LINK_TIMEOUT
		18, 19, 20, 21, 25, 28, 29, // OPENAT, CLOSE, FILES_UPDATE, STATX, MADVISE, OPENAT2, EPOLL_CTL
		31, 32, 35, 36, 37, 38, 39, // PROVIDE_BUFFERS, REMOVE_BUFFERS, RENAMEAT, UNLINKAT, MKDIRAT, SYMLINKAT, LINKAT
		42, 44, 45, 50, 51, 52, 53, 62: // SETXATTR, GETXATTR, SOCKET, WAITID, FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAITV, PIPE
		return true
	}
	return false
}
