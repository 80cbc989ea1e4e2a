package target

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// usable refuses processes that have no stack to sample.
func (p *Process) usable(st *Stat, status *Status) error {
	who := fmt.Sprintf("process %d (%s)", p.pid, st.Comm)
	switch {
	case p.pid == os.Getpid():
		return refuse(p.pid, st.Comm, Itself, fmt.Sprintf("process %d is this very program", p.pid),
			"sample it from another one")
	case st.Flags&pfKthread != 0:
		return refuse(p.pid, st.Comm, KernelThread, who+" is a kernel thread: it has no user stack", "use perf for the kernel")
	case (st.State == 'Z' || st.State == 'X') && st.Threads <= 1:
		return refuse(p.pid, st.Comm, Zombie, who+" has ended and waits for its parent to take its status (a zombie)", "")
	case status.TracerPid != 0 && !ownThread(status.TracerPid):
		return refuse(p.pid, st.Comm, AlreadyTraced, fmt.Sprintf("%s is traced by %s already", who, named(status.TracerPid)),
			fmt.Sprintf("end or detach process %d first", status.TracerPid))
	}
	return nil
}

func named(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(b)))
}

// access checks whether the process may be traced, without touching it: reading its memory
// requires the same permissions as ptrace. On a refusal it determines the reason.
func (p *Process) access(status *Status) error {
	comm := p.facts.Comm
	who := fmt.Sprintf("process %d (%s)", p.pid, comm)
	if err := filtered(); err != nil {
		return refuse(p.pid, comm, Filtered, fmt.Sprintf("%v: a seccomp filter of this container or service is in the way", err),
			"run it with --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined, or on the host")
	}
	var b [1]byte
	_, err := readMemory(p.memoryOf(), b[:], 0)
	if err == unix.ESRCH && p.elect() {
		_, err = readMemory(p.memoryOf(), b[:], 0)
	}
	if err == nil || errors.Is(err, unix.EFAULT) {
		if err := p.files(who, status); err != nil {
			return err
		}
		return p.machine(who)
	}
	if errors.Is(err, unix.ESRCH) {
		if !p.Alive() {
			return p.vanished(unix.ESRCH)
		}
		return p.vanished(unix.ESRCH)
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("read memory of %s: %w", who, err)
	}
	d := denial{pid: p.pid, comm: comm, who: who, status: *status, me: self(), euid: os.Geteuid(), container: p.facts.Container,
		child: p.child, yama: yama()}
	// The owner of /proc/PID/* is root if a process is not dumpable.
	var st unix.Stat_t
	d.hidden = unix.Fstatat(p.dir, "stat", &st, 0) == nil && int(st.Uid) != status.UID
	return d.reason()
}

// files refuses a process that may be traced, but whose /proc files are unreadable. The files
// that show where a blocked thread is have ordinary file modes, which CAP_SYS_PTRACE does not
// override.
func (p *Process) files(who string, status *Status) error {
	fd, err := p.openat(fmt.Sprintf("task/%d/syscall", p.pid), unix.O_RDONLY)
	if err == nil {
		unix.Close(fd)
		return nil
	}
	if !errors.Is(err, unix.EACCES) {
		return nil // the first thread has ended, or the process: later steps report it
	}
	euid := os.Geteuid()
	if status.UID != euid {
		return refuse(p.pid, p.facts.Comm, OtherUser, fmt.Sprintf("%s belongs to user %d, you are user %d: its files in /proc are not yours to read, for which CAP_SYS_PTRACE is not enough", who, status.UID, euid),
			"run as that user, or give sliver CAP_DAC_READ_SEARCH as well"+showsHow)
	}
	return refuse(p.pid, p.facts.Comm, NotDumpable, who+" is not dumpable (it has changed its user, or asked for that): its files in /proc are root's, for which CAP_SYS_PTRACE is not enough",
		"run with sudo, or give sliver CAP_DAC_READ_SEARCH as well"+showsHow)
}

// bothCaps are the capabilities needed for processes of other users: to trace them, and to read
// their files in /proc.
const (
	bothCaps  = "cap_sys_ptrace,cap_dac_read_search+ep"
	ptraceCap = "cap_sys_ptrace+ep"
)

// giveCaps returns the command that gives a program capabilities for one group of users only,
// because whoever may run it can inspect every process. chgrp comes first, because it removes
// capabilities (chown(2)).
func giveCaps(caps, program string) string {
	return "chgrp GROUP " + program + " && chmod 0750 " + program + " && setcap " + caps + " " + program + " (for GROUP alone: it may look into every process then)"
}

// showsHow ends an advice to give capabilities. The commands for that are too long for an error.
const showsHow = " ('sliver doctor' shows how)"

// denial holds everything that determines why a process may not be traced.
type denial struct {
	pid       int
	comm, who string
	status    Status // of the process
	me        Status
	euid      int
	container bool // in other namespaces than this program's
	child     bool // started by this program
	yama      int  // the module's ptrace_scope; 0 if it is not active
	hidden    bool // its files under /proc do not belong to its user
}

// reason returns the reason for the refusal.
func (d *denial) reason() error {
	no := func(why Reason, what, advice string) error { return refuse(d.pid, d.comm, why, what, advice) }
	if d.me.CapPrm&(1<<unix.CAP_SYS_PTRACE) != 0 {
		if d.container {
			return no(NoCapability, d.who+" is in another user namespace, which your CAP_SYS_PTRACE does not cover",
				"run as root of the host's user namespace")
		}
		return d.policy()
	}
	switch {
	case d.status.UID != d.euid:
		return no(OtherUser, fmt.Sprintf("%s belongs to user %d, you are user %d", d.who, d.status.UID, d.euid),
			"run as that user, or with sudo, or give sliver capabilities"+showsHow)
	case d.status.CapPrm&^d.me.CapPrm != 0:
		return no(NoCapability, d.who+" has capabilities that you lack",
			"run with sudo, or give sliver capabilities"+showsHow)
	case d.yama == 3:
		return no(YamaScope, "the Yama security module forbids all tracing until the next boot (kernel.yama.ptrace_scope is 3)",
			"set kernel.yama.ptrace_scope to 1 in /etc/sysctl.d and reboot")
	case d.yama == 2:
		return no(YamaScope, "the Yama security module lets only administrators trace (kernel.yama.ptrace_scope is 2)",
			"run with sudo, or give sliver capabilities"+showsHow)
	case d.yama == 1 && !d.child:
		return no(YamaScope, d.who+" is not a child of this program, and the Yama security module allows tracing of children only (kernel.yama.ptrace_scope is 1)",
			"run with sudo, record a command (record -- CMD), set kernel.yama.ptrace_scope to 0, or give sliver capabilities"+showsHow)
	case d.hidden:
		return no(NotDumpable, d.who+" is not dumpable and cannot be traced (it changed its user, you cannot read its file, or it requested that)",
			"run with sudo, or give sliver capabilities"+showsHow)
	}
	return d.policy()
}

func (d *denial) policy() error {
	what := d.who + " may not be traced: a security module refuses it"
	if b, err := os.ReadFile("/sys/kernel/security/lsm"); err == nil {
		what += " (in force: " + strings.TrimSpace(string(b)) + ")"
	}
	return refuse(d.pid, d.comm, OtherPolicy, what, "look at the kernel's audit log (dmesg, ausearch -m avc) for who did")
}

// machine refuses 32-bit programs. A stack above 4 GiB is enough to know a 64-bit one: to open the program's file takes
// a helper, which costs more than most of Open.
func (p *Process) machine(who string) error {
	var b [1024]byte
	if n, err := unix.Pread(p.stat, b[:], 0); err == nil {
		if st, err := ParseStat(b[:n]); err == nil && st.StartStack>>32 != 0 {
			return nil
		}
	}
	return p.class(who)
}

// class is machine by the program's file.
func (p *Process) class(who string) error {
	f, err := p.place().OpenLink("exe")
	if err != nil {
		return nil // no permission to read the file, or its file system hangs: the first registers will show it
	}
	defer f.Close()
	const classAt, class32 = 4, 1 // EI_CLASS, ELFCLASS32
	var b [classAt + 1]byte
	if n, err := f.ReadAt(b[:], 0); err != nil || n != len(b) || string(b[:4]) != "\x7fELF" {
		return nil
	}
	if b[classAt] == class32 {
		return refuse(p.pid, p.facts.Comm, Wrong32Bit, who+" is a 32-bit program; only 64-bit ones can be sampled", "")
	}
	return nil
}

// filtered reports whether the two system calls themselves are blocked, for any target. Both are
// called with arguments that must fail in another way.
func filtered() error {
	var b [1]byte
	if _, err := readMemory(os.Getpid(), b[:], 0); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("process_vm_readv: %w", err)
	}
	if errno := seize(-1); errno != unix.ESRCH {
		return fmt.Errorf("ptrace: %w", errno)
	}
	return nil
}

func self() Status {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return Status{}
	}
	s, _ := ParseStatus(b)
	return s
}

func program() string {
	if s, err := os.Executable(); err == nil {
		return s
	}
	return os.Args[0]
}

// yama returns the module's ptrace_scope, or 0 if it is not active.
func yama() int {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}
