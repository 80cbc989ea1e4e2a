package target

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/background"
)

// Types of the auxiliary vector (linux/auxvec.h).
const (
	auxBase  = 7 // where the loader is mapped; 0: the program is static
	auxEntry = 9 // the program's entry point
)

// Of perf_event_open(2) and ptrace(2) (linux/perf_event.h, linux/hw_breakpoint.h, linux/ptrace.h).
const (
	perfRemoveOnExec = unix.CBitFieldMaskBit36 // Linux 5.13
	perfSigtrap      = unix.CBitFieldMaskBit37 // Linux 5.13
	breakOnExecute   = 4
	breakLength      = 8

	optionExec = 0x10 // PTRACE_O_TRACEEXEC
	eventExec  = 4
)

// maxExecs bounds how many programs a command becomes before its entry is reached.
const maxExecs = 16

// ToEntry lets the command run to its program's entry point and holds it there: the libraries that it was linked with
// are mapped, and their constructors have run. A static program stays where it is. On an error the command is held
// where it was. If it ends, is stopped by a signal, or a constructor does not return, the same happens as without
// sliver; ToEntry waits as long.
//
// A breakpoint of the kernel (perf_event_open(2)) stops it: nothing is written into the program, and if sliver is
// killed, the breakpoint is removed and the program goes on.
func (c *Command) ToEntry() (err error) {
	background.Do(func() {
		for range maxExecs {
			var again bool
			if again, err = c.toEntry(); !again {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("run to the program's entry: %w", err)
	}
	return nil
}

// toEntry reports again if the command has become another program, at whose first instruction it is held.
func (c *Command) toEntry() (again bool, err error) {
	pid := c.cmd.Process.Pid
	base, entry, err := auxiliary(pid)
	if err != nil || base == 0 || pcOf(pid) == entry { // it is there
		return false, err
	}
	if err := takesTrap(pid); err != nil {
		return false, err
	}
	if err := unix.PtraceSetOptions(pid, optionExec); err != nil {
		return false, os.NewSyscallError("ptrace", err)
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_BREAKPOINT, Size: unix.PERF_ATTR_SIZE_VER7, Sample: 1,
		Bits:    unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | perfRemoveOnExec | perfSigtrap,
		Bp_type: breakOnExecute, Ext1: entry, Ext2: breakLength}
	fd, err := unix.PerfEventOpen(&attr, pid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return false, os.NewSyscallError("perf_event_open", err)
	}
	defer unix.Close(fd)
	for sig := 0; ; {
		if err := unix.PtraceCont(pid, sig); err != nil {
			return false, nil // killed
		}
		var info unix.Siginfo
		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WALL, nil)
		}
		if err != nil || info.Code != cldTrapped && info.Code != cldStopped {
			return false, err // it has ended: Wait takes its status
		}
		var ws unix.WaitStatus
		if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
			return false, os.NewSyscallError("wait4", err)
		}
		sig = int(ws.StopSignal())
		switch {
		case int(ws)>>16 == eventExec:
			return true, nil
		case sig == sigTrap && pcOf(pid) == entry:
			return false, nil // the signal is dropped when it is released
		case sig == sigStop || sig == sigTstp || sig == sigTtin || sig == sigTtou:
			c.once.Do(func() { _ = traceCall(ptraceDetach, uintptr(pid), 0, uintptr(sig)) })
			return false, nil
		}
	}
}

// auxiliary reads where the kernel mapped the loader of a process, and its entry point.
func auxiliary(pid int) (base, entry uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, 0, err
	}
	for ; len(b) >= 16; b = b[16:] {
		switch v := binary.NativeEndian.Uint64(b[8:]); binary.NativeEndian.Uint64(b) {
		case auxBase:
			base = v
		case auxEntry:
			entry = v
		}
	}
	if entry == 0 {
		return 0, 0, errors.New("its entry point is unknown")
	}
	return base, entry, nil
}

// takesTrap returns an error if the process would not be stopped by SIGTRAP: it blocks or ignores it from the start.
func takesTrap(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(b) {
		key, v, _ := strings.Cut(string(line), ":")
		if key != "SigBlk" && key != "SigIgn" {
			continue
		}
		if set, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64); err != nil || set>>(sigTrap-1)&1 != 0 {
			return errors.New("it blocks or ignores SIGTRAP")
		}
	}
	return nil
}

// pcOf is where a held thread is, 0 if it is in a call of the kernel (proc_pid_syscall(5)).
func pcOf(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) != 3 || f[0] != "-1" {
		return 0
	}
	pc, _ := strconv.ParseUint(f[2], 0, 64)
	return pc
}
