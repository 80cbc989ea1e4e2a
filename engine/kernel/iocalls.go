package kernel

import (
	"sync"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/iowatch"
)

// ioCall is a system call that is watched.
type ioCall struct {
	nr    int
	name  string
	class uint64
}

// ioCalls are those of both architectures; ioCallsArch are further ones.
var ioCalls = []ioCall{
	{unix.SYS_READ, "read", classRead | classSized},
	{unix.SYS_PREAD64, "pread64", classRead | classSized},
	{unix.SYS_READV, "readv", classRead | classVec},
	{unix.SYS_PREADV, "preadv", classRead},
	{unix.SYS_PREADV2, "preadv2", classRead},
	{unix.SYS_WRITE, "write", classWrite | classSized},
	{unix.SYS_PWRITE64, "pwrite64", classWrite | classSized},
	{unix.SYS_WRITEV, "writev", classWrite | classVec},
	{unix.SYS_PWRITEV, "pwritev", classWrite},
	{unix.SYS_PWRITEV2, "pwritev2", classWrite},
	{unix.SYS_RECVFROM, "recvfrom", classRead | classSized},
	{unix.SYS_RECVMSG, "recvmsg", classRead | classMsg | classHead},
	{unix.SYS_SENDTO, "sendto", classWrite | classSized | classAddr},
	{unix.SYS_SENDMSG, "sendmsg", classWrite | classHead},
	{unix.SYS_SENDMMSG, "sendmmsg", classSends | classHead},
	{unix.SYS_RECVMMSG, "recvmmsg", classGets | classHead},
	{unix.SYS_FSYNC, "fsync", classSync},
	{unix.SYS_FDATASYNC, "fdatasync", classSync},
	{unix.SYS_OPENAT, "openat", classOpen | classPath1},
	{unix.SYS_OPENAT2, "openat2", classOpen | classPath1},
	{unix.SYS_SOCKET, "socket", classOpen},
	{unix.SYS_ACCEPT, "accept", classOpen},
	{unix.SYS_ACCEPT4, "accept4", classOpen},
	{unix.SYS_EVENTFD2, "eventfd2", classOpen},
	{unix.SYS_EPOLL_CREATE1, "epoll_create1", classOpen},
	{unix.SYS_MEMFD_CREATE, "memfd_create", classOpen},
	{unix.SYS_TIMERFD_CREATE, "timerfd_create", classOpen},
	{unix.SYS_SIGNALFD4, "signalfd4", classOpen | classSome},
	{unix.SYS_INOTIFY_INIT1, "inotify_init1", classOpen},
	{unix.SYS_PIDFD_OPEN, "pidfd_open", classOpen},
	{unix.SYS_PIDFD_GETFD, "pidfd_getfd", classOpen},
	{unix.SYS_OPEN_BY_HANDLE_AT, "open_by_handle_at", classOpen},
	{unix.SYS_MQ_OPEN, "mq_open", classOpen},
	{unix.SYS_MEMFD_SECRET, "memfd_secret", classOpen},
	{unix.SYS_USERFAULTFD, "userfaultfd", classOpen},
	{unix.SYS_FANOTIFY_INIT, "fanotify_init", classOpen},
	{unix.SYS_PERF_EVENT_OPEN, "perf_event_open", classOpen},
	{unix.SYS_IO_URING_SETUP, "io_uring_setup", classOpen},
	{unix.SYS_FSOPEN, "fsopen", classOpen},
	{unix.SYS_FSPICK, "fspick", classOpen},
	{unix.SYS_FSMOUNT, "fsmount", classOpen},
	{unix.SYS_OPEN_TREE, "open_tree", classOpen},
	{unix.SYS_OPEN_TREE_ATTR, "open_tree_attr", classOpen},
	{unix.SYS_BPF, "bpf", classOpen | classSome},
	{unix.SYS_LANDLOCK_CREATE_RULESET, "landlock_create_ruleset", classOpen | classSome},
	{unix.SYS_SECCOMP, "seccomp", classOpen | classSome},
	{unix.SYS_CLONE, "clone", classOpen | classSome},
	{unix.SYS_CLONE3, "clone3", classOpen | classSome},
	{unix.SYS_CONNECT, "connect", classConnect},
	{unix.SYS_DUP, "dup", classOpen},
	{unix.SYS_DUP3, "dup3", classOpen},
	{unix.SYS_FCNTL, "fcntl", classOpen | classFcntl},
	{unix.SYS_PIPE2, "pipe2", classPair | classPtr0},
	{unix.SYS_SOCKETPAIR, "socketpair", classPair | classPtr3},
	{unix.SYS_CLOSE, "close", classClose},
	{unix.SYS_CLOSE_RANGE, "close_range", classRange},
	{unix.SYS_MMAP, "mmap", classMap},
	{unix.SYS_EXECVE, "execve", classExec},
	{unix.SYS_EXECVEAT, "execveat", classExec},
	{unix.SYS_FLOCK, "flock", classCall},
	{unix.SYS_GETDENTS64, "getdents64", classCall},
	{unix.SYS_FSTAT, "fstat", classCall},
	{unix.SYS_FSTATFS, "fstatfs", classCall},
	{unix.SYS_FTRUNCATE, "ftruncate", classCall},
	{unix.SYS_FALLOCATE, "fallocate", classCall},
	{unix.SYS_SYNCFS, "syncfs", classCall},
	{unix.SYS_SYNC_FILE_RANGE, "sync_file_range", classCall},
	{unix.SYS_COPY_FILE_RANGE, "copy_file_range", classMove},
	{unix.SYS_SENDFILE, "sendfile", classMove},
	{unix.SYS_SPLICE, "splice", classMove},
	{unix.SYS_TEE, "tee", classMove},
	{unix.SYS_VMSPLICE, "vmsplice", classMove},
	{unix.SYS_STATX, "statx", classCall | classPath1},
	{unix.SYS_FACCESSAT, "faccessat", classCall | classPath1},
	{unix.SYS_FACCESSAT2, "faccessat2", classCall | classPath1},
	{unix.SYS_UNLINKAT, "unlinkat", classCall | classPath1},
	{unix.SYS_RENAMEAT, "renameat", classCall | classPath1},
	{unix.SYS_RENAMEAT2, "renameat2", classCall | classPath1},
	{unix.SYS_MKDIRAT, "mkdirat", classCall | classPath1},
	{unix.SYS_LINKAT, "linkat", classCall | classPath1},
	{unix.SYS_READLINKAT, "readlinkat", classCall | classPath1},
	{unix.SYS_FCHMODAT, "fchmodat", classCall | classPath1},
	{unix.SYS_FCHOWNAT, "fchownat", classCall | classPath1},
	{unix.SYS_UTIMENSAT, "utimensat", classCall | classPath1},
	{unix.SYS_STATFS, "statfs", classCall | classPath0},
	{unix.SYS_TRUNCATE, "truncate", classCall | classPath0},
	{unix.SYS_CHDIR, "chdir", classChdir | classPath0},
	{unix.SYS_FCHDIR, "fchdir", classChdir},
	{unix.SYS_EPOLL_PWAIT, "epoll_pwait", classPoll},
	{unix.SYS_EPOLL_PWAIT2, "epoll_pwait2", classPoll},
	{unix.SYS_PPOLL, "ppoll", classPoll},
	{unix.SYS_PSELECT6, "pselect6", classPoll},
}

// callOf returns the call with a number. An unknown one has no name.
func callOf(nr uint32) ioCall {
	if nr < maxCalls {
		return byNumber()[nr]
	}
	return ioCall{}
}

var byNumber = sync.OnceValue(func() *[maxCalls]ioCall {
	t := new([maxCalls]ioCall)
	for _, all := range [][]ioCall{ioCalls, ioCallsArch} {
		for _, c := range all {
			t[c.nr] = c
		}
	}
	return t
})

// sort returns the operation that a call makes, OpNone for those that are not reads or writes of bytes.
func (c *ioCall) sort() iowatch.Op {
	switch c.class & 0xff {
	case classRead:
		return iowatch.OpRead
	case classWrite, classSends:
		return iowatch.OpWrite
	case classGets:
		return iowatch.OpRead
	}
	return iowatch.OpNone
}

// lockWait is F_SETLKW, and lockWaitOFD F_OFD_SETLKW (include/uapi/asm-generic/fcntl.h).
const lockWait, lockWaitOFD = 7, 38

// called handles slow calls that are neither reads, writes, syncs nor opens: on a path, on a descriptor, and
// opens and moves that failed. "failed" goes there with the latter.
func (a *assembler) called(c *ioConfig, m ioMaps, l *layout) {
	a.label("failed")
	a.add(asm.JEq.Imm(asm.R6, classMove, "call"), asm.JNE.Imm(asm.R6, classOpen, "out"), asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classPath0|classPath1), asm.JEq.Imm(asm.R1, 0, "out"))
	a.label("call")
	a.get(asm.R1, recBusy, asm.DWord)
	a.add(asm.LoadImm(asm.R2, int64(c.slow), asm.DWord), asm.JGT.Reg(asm.R1, asm.R2, "slow"), asm.JNE.Imm(asm.R6, classChdir, "out"))
	a.get(asm.R1, recRet, asm.DWord)
	a.add(asm.JNE.Imm(asm.R1, 0, "out"))
	a.label("slow")
	a.set(recOp, int64(iowatch.OpCall), asm.Byte)
	a.set(recDir, atCwd, asm.Word)
	a.set(recFD, -1, asm.Word)
	a.set(recSize, -1, asm.DWord)
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classPath0|classPath1), asm.JEq.Imm(asm.R1, 0, "held"), asm.JEq.Imm(asm.R1, classPath0, "known"))
	a.arg(asm.R1, 0)
	a.put(recDir, asm.R1, asm.Word)
	a.add(asm.Ja.Label("known"))
	a.label("held")
	a.descriptor(m)
	a.add(asm.LoadMem(asm.R1, asm.R0, fdGen, asm.Word))
	a.put(recGen, asm.R1, asm.Word)
	a.inode(l)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord))
	a.put(recMode, asm.R1, asm.Word)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord))
	a.put(recSize, asm.R1, asm.DWord)
	a.label("known")
	a.get(asm.R1, recBusy, asm.DWord)
	a.add(asm.LoadImm(asm.R2, int64(c.slow), asm.DWord), asm.JGT.Reg(asm.R1, asm.R2, "stack"), asm.Ja.Label("pathonly"))
}

// wake sends a record that wakes Wait, and ends.
func (a *assembler) wake(m ioMaps, why int32) {
	const forceWakeup = 2 // BPF_RB_FORCE_WAKEUP
	a.add(asm.LoadMapPtr(asm.R1, m.news), asm.Mov.Imm(asm.R2, newsBytes), asm.Mov.Imm(asm.R3, 0), asm.FnRingbufReserve.Call(), asm.JEq.Imm(asm.R0, 0, "out"),
		storeWord(asm.R0, 0, why), asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Imm(asm.R2, forceWakeup), asm.FnRingbufSubmit.Call(), asm.Ja.Label("out"))
}

// newsBytes is the size of a record that wakes Wait: a word that says why.
const newsBytes = 8

// Why Wait is woken.
const (
	newsMapped = iota // code of a file was mapped, or another program runs
	newsYoung         // the first stack of a thread without a plan
)

// young wakes Wait if this is the first stack of a thread without a plan, and if that was asked for.
func (a *assembler) young(m ioMaps) {
	a.label("young")
	a.add(asm.LoadMapValue(asm.R1, m.mask, 0), asm.LoadMem(asm.R1, asm.R1, maskYoung, asm.DWord), asm.JEq.Imm(asm.R1, 0, "out"),
		asm.LoadMem(asm.R1, asm.R9, taskYoung, asm.DWord), asm.JNE.Imm(asm.R1, 0, "out"), storeWord(asm.R9, taskYoung, 1))
	a.wake(m, newsYoung)
}
