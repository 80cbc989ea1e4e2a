package kernel

import "golang.org/x/sys/unix"

// regBlock is how much of struct pt_regs is read (arch/x86/include/asm/ptrace.h).
const regBlock = 168

// regArgs are the offsets of a system call's arguments.
var regArgs = [6]int32{112, 104, 96, 56, 72, 64}

// In struct bpf_perf_event_data: bytes of registers, and the address of a page fault. regResult is the
// offset of a call's result, which is argument 0 where the two have one register.
const (
	eventRegs = 168
	eventAddr = 176
	regResult = 80
)

// taskTLS is the path of the FS base in struct task_struct. arch_prctl(2) keeps it up to date there,
// and a libc sets it only so.
var taskTLSPath = []string{"thread", "fsbase"}

var ioCallsArch = []ioCall{
	{unix.SYS_OPEN, "open", classOpen | classPath0},
	{unix.SYS_CREAT, "creat", classOpen | classPath0},
	{unix.SYS_DUP2, "dup2", classOpen},
	{unix.SYS_EVENTFD, "eventfd", classOpen},
	{unix.SYS_EPOLL_CREATE, "epoll_create", classOpen},
	{unix.SYS_SIGNALFD, "signalfd", classOpen | classSome},
	{unix.SYS_INOTIFY_INIT, "inotify_init", classOpen},
	{unix.SYS_PIPE, "pipe", classPair | classPtr0},
	{unix.SYS_NEWFSTATAT, "newfstatat", classCall | classPath1},
	{unix.SYS_STAT, "stat", classCall | classPath0},
	{unix.SYS_LSTAT, "lstat", classCall | classPath0},
	{unix.SYS_ACCESS, "access", classCall | classPath0},
	{unix.SYS_UNLINK, "unlink", classCall | classPath0},
	{unix.SYS_RENAME, "rename", classCall | classPath0},
	{unix.SYS_MKDIR, "mkdir", classCall | classPath0},
	{unix.SYS_RMDIR, "rmdir", classCall | classPath0},
	{unix.SYS_LINK, "link", classCall | classPath0},
	{unix.SYS_READLINK, "readlink", classCall | classPath0},
	{unix.SYS_CHMOD, "chmod", classCall | classPath0},
	{unix.SYS_CHOWN, "chown", classCall | classPath0},
	{unix.SYS_GETDENTS, "getdents", classCall},
	{unix.SYS_EPOLL_WAIT, "epoll_wait", classPoll},
	{unix.SYS_POLL, "poll", classPoll},
	{unix.SYS_SELECT, "select", classPoll},
}
