package syscalls

// Meaning is the meaning of an argument.
type Meaning uint8

// Meanings of arguments. If one uses a second register, its comment names it.
const (
	FD         Meaning = iota + 1 // a descriptor
	DirFD                         // a directory's descriptor, or AT_FDCWD (-100)
	Path                          // address of a NUL-terminated path, relative to the DirFD before it
	Size                          // bytes
	Offset                        // bytes from the file's start
	Msec                          // timeout in ms; negative: none
	Timespec                      // address of a relative timeout, struct timespec; 0: none
	Timeval                       // address of a relative timeout, struct timeval; 0: none
	UntilReal                     // address of a point in time, CLOCK_REALTIME; 0: none
	Sleep                         // clock_nanosleep: Arg.Reg is the clock, then flags and request
	PollFDs                       // address of an array of struct pollfd; Arg.Len is the register of its length
	ReadSet                       // select: Arg.Reg is the number of descriptors, three sets follow
	PID                           // wait4's pid: a child, -1 any, 0 or negative: a group
	IDType                        // waitid: the type of the ID in Arg.Reg+1
	TID                           // a process or thread
	Sockaddr                      // address of a struct sockaddr; Arg.Len is the register of its length
	Signals                       // address of a sigset_t
	Futex                         // futex: address, op, value, timeout
	FutexWaitv                    // futex_waitv: waiters, how many, flags, timeout, clock
	Futex2                        // futex_wait: address, value, mask, flags, timeout, clock
	Flock                         // flock: descriptor, operation
	Fcntl                         // fcntl: descriptor, command, argument
	Request                       // ioctl's request
	OpenFlags                     // flags of open
	SysV                          // identifier of a System V object
	Count                         // a plain number
)

// Arg is an argument that helps to describe the wait.
type Arg struct {
	Meaning Meaning
	Reg     int // 0..5
	Len     int // register with the length, if the meaning has one
}

// Args returns the arguments that describe the wait in the call with that name: nil if
// there are none, or if the call is unknown. They are the same on both architectures
// (include/linux/syscalls.h of the kernel).
func Args(name string) []Arg {
	switch name {
	case "read", "write":
		return []Arg{{FD, 0, 0}, {Size, 2, 0}}
	case "pread64", "pwrite64":
		return []Arg{{FD, 0, 0}, {Size, 2, 0}, {Offset, 3, 0}}
	case "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2", "fsync", "fdatasync", "syncfs", "close", "ftruncate",
		"fallocate", "getdents64", "getdents", "vmsplice", "fstat", "lseek", "sync_file_range", "readahead", "fstatfs",
		"accept", "accept4", "listen", "shutdown", "getsockopt", "setsockopt", "bind", "getpeername", "fchmod", "fchown",
		"io_uring_enter", "finit_module", "tee", "timerfd_settime", "timerfd_gettime", "fadvise64":
		return []Arg{{FD, 0, 0}}
	case "mmap":
		return []Arg{{FD, 4, 0}, {Size, 1, 0}}
	case "recvfrom", "recvmsg", "sendmsg", "sendmmsg":
		return []Arg{{FD, 0, 0}}
	case "sendto":
		return []Arg{{FD, 0, 0}, {Size, 2, 0}, {Sockaddr, 4, 5}}
	case "recvmmsg":
		return []Arg{{FD, 0, 0}, {Count, 2, 0}, {Timespec, 4, 0}}
	case "connect":
		return []Arg{{FD, 0, 0}, {Sockaddr, 1, 2}}
	case "splice":
		return []Arg{{FD, 0, 0}, {FD, 2, 0}, {Size, 4, 0}}
	case "sendfile":
		return []Arg{{FD, 0, 0}, {FD, 1, 0}, {Size, 3, 0}}
	case "copy_file_range":
		return []Arg{{FD, 0, 0}, {FD, 2, 0}, {Size, 4, 0}}
	case "dup2", "dup3":
		return []Arg{{FD, 0, 0}, {FD, 1, 0}}
	case "ioctl":
		return []Arg{{FD, 0, 0}, {Request, 1, 0}}
	case "flock":
		return []Arg{{Flock, 0, 0}}
	case "fcntl":
		return []Arg{{Fcntl, 0, 0}}
	case "poll":
		return []Arg{{PollFDs, 0, 1}, {Msec, 2, 0}}
	case "ppoll":
		return []Arg{{PollFDs, 0, 1}, {Timespec, 2, 0}}
	case "select":
		return []Arg{{ReadSet, 0, 0}, {Timeval, 4, 0}}
	case "pselect6":
		return []Arg{{ReadSet, 0, 0}, {Timespec, 4, 0}}
	case "epoll_wait", "epoll_pwait":
		return []Arg{{FD, 0, 0}, {Msec, 3, 0}}
	case "epoll_pwait2":
		return []Arg{{FD, 0, 0}, {Timespec, 3, 0}}
	case "epoll_ctl":
		return []Arg{{FD, 0, 0}, {FD, 2, 0}}
	case "nanosleep":
		return []Arg{{Timespec, 0, 0}}
	case "clock_nanosleep":
		return []Arg{{Sleep, 0, 0}}
	case "futex":
		return []Arg{{Futex, 0, 0}}
	case "futex_waitv":
		return []Arg{{FutexWaitv, 0, 0}}
	case "futex_wait":
		return []Arg{{Futex2, 0, 0}}
	case "wait4":
		return []Arg{{PID, 0, 0}}
	case "waitid":
		return []Arg{{IDType, 0, 0}}
	case "rt_sigtimedwait":
		return []Arg{{Signals, 0, 0}, {Timespec, 2, 0}}
	case "rt_sigsuspend":
		return []Arg{{Signals, 0, 0}}
	case "semop", "msgsnd", "msgrcv":
		return []Arg{{SysV, 0, 0}}
	case "semtimedop":
		return []Arg{{SysV, 0, 0}, {Timespec, 3, 0}}
	case "mq_timedreceive", "mq_timedsend":
		return []Arg{{FD, 0, 0}, {UntilReal, 4, 0}}
	case "io_getevents", "io_pgetevents":
		return []Arg{{Count, 1, 0}, {Timespec, 4, 0}}
	case "open", "creat":
		return []Arg{{Path, 0, 0}, {OpenFlags, 1, 0}}
	case "openat":
		return []Arg{{DirFD, 0, 0}, {Path, 1, 0}, {OpenFlags, 2, 0}}
	case "openat2", "newfstatat", "statx", "faccessat", "faccessat2", "mkdirat", "unlinkat", "readlinkat", "fchmodat", "fchownat",
		"mknodat", "utimensat", "name_to_handle_at", "execveat":
		return []Arg{{DirFD, 0, 0}, {Path, 1, 0}}
	case "renameat", "renameat2", "linkat":
		return []Arg{{DirFD, 0, 0}, {Path, 1, 0}, {DirFD, 2, 0}, {Path, 3, 0}}
	case "symlinkat":
		return []Arg{{Path, 0, 0}, {DirFD, 1, 0}, {Path, 2, 0}}
	case "stat", "lstat", "access", "mkdir", "rmdir", "unlink", "readlink", "chmod", "chown", "lchown", "truncate", "execve",
		"chdir", "chroot", "statfs", "umount2", "mknod", "swapon", "swapoff", "utimes", "getxattr", "lgetxattr", "setxattr":
		return []Arg{{Path, 0, 0}}
	case "rename", "link", "symlink", "mount", "pivot_root":
		return []Arg{{Path, 0, 0}, {Path, 1, 0}}
	case "kill", "tkill", "pidfd_open", "get_robust_list", "sched_setaffinity":
		return []Arg{{TID, 0, 0}}
	case "tgkill":
		return []Arg{{TID, 1, 0}}
	case "ptrace":
		return []Arg{{TID, 1, 0}}
	case "process_vm_readv", "process_vm_writev":
		return []Arg{{TID, 0, 0}}
	case "getrandom":
		return []Arg{{Size, 1, 0}}
	case "msync", "munmap", "madvise", "mprotect", "mlock", "munlock":
		return []Arg{{Size, 1, 0}}
	}
	return nil
}
