// Package linux is the folder of facts about the kernel: system calls by number (linux/syscalls), and what
// /proc says about descriptors, sockets and file locks (linux/files, linux/procdir). Opening a process,
// its memory and its registers are left to target.
package linux
