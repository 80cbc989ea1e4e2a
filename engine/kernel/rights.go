package kernel

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/caps"
)

// Errors that callers distinguish.
var (
	ErrRights = errors.New("not allowed: CAP_BPF and CAP_PERFMON are needed (setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep, or root)")
	ErrUsers  = errors.New("not allowed in a user namespace, where CAP_BPF and CAP_PERFMON have no effect on the kernel: run sliver outside of it (as root, or with both)")
	ErrDenied = errors.New("the kernel refuses BPF although CAP_BPF and CAP_PERFMON are there")
	ErrOld    = errors.New("this kernel has no uprobe_multi links: Linux 6.6 or later is needed")
	ErrSpace  = errors.New("sliver runs in a PID namespace of its own, where the kernel's process numbers are unknown")
	ErrTypes  = errors.New("this kernel has no type information (/sys/kernel/btf/vmlinux): one built with CONFIG_DEBUG_INFO_BTF has it, and in a container /sys has to be mounted")
)

// Refused reports whether err is about the rights of this program or the age of the kernel, so that the text of
// err says all of it.
func Refused(err error) bool {
	for _, e := range []error{ErrRights, ErrUsers, ErrDenied, ErrOld, ErrSpace, ErrTypes} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// rights returns why no program can be loaded here; nil if no reason is known.
func rights() error {
	if !supported {
		return errors.New("the kernel engine knows amd64 and arm64 only")
	}
	if !caps.InitialUsers() {
		return ErrUsers
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var c [2]unix.CapUserData
	if err := unix.Capget(&h, &c[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	has := func(n int) bool { return c[n/32].Effective&(1<<(n%32)) != 0 }
	if has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	var missing []string
	for _, x := range []struct {
		n    int
		name string
	}{{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_PERFMON, "CAP_PERFMON"}} {
		if !has(x.n) {
			missing = append(missing, x.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w; missing: %s", ErrRights, strings.Join(missing, ", "))
	}
	return nil
}

// initialSpace returns ErrSpace if this process has other process numbers than the kernel's programs.
func initialSpace() error {
	if !caps.InitialPIDs() {
		return ErrSpace
	}
	return nil
}

// release is the kernel's version, 0 if it cannot be read.
func release() (major, minor int) {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return 0, 0
	}
	parts := strings.FieldsFunc(unix.ByteSliceToString(u.Release[:]), func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return 0, 0
	}
	major, _ = strconv.Atoi(parts[0])
	minor, _ = strconv.Atoi(parts[1])
	return major, minor
}

// explain replaces refusals, for which rights found no reason. The library's own text for EPERM blames
// RLIMIT_MEMLOCK, which counts up to Linux 5.10 only.
func explain(err error) error {
	lockdown, _ := os.ReadFile("/sys/kernel/security/lockdown") // it is missing where the kernel cannot be locked down
	major, minor := release()
	return explainOn(err, string(lockdown), major < 5 || major == 5 && minor < 11)
}

// explainOn is explain with the kernel's text about lockdown; limited says that BPF counts for ulimit -l.
func explainOn(err error, lockdown string, limited bool) error {
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
	var checked *ebpf.VerifierError
	switch {
	case Refused(err), errors.As(err, &checked): // the kernel's check of a program also fails with EACCES
		return err
	// In this mode the kernel hides the functions that read its memory, which gives EINVAL (bpf_tracing_func_proto).
	case strings.Contains(lockdown, "[confidentiality]") && (denied || errors.Is(err, unix.EINVAL)):
		return fmt.Errorf("%w: the kernel is locked down (confidentiality); boot it with lockdown=integrity, or without lockdown", ErrDenied)
	case denied && limited:
		return fmt.Errorf("%w: raise ulimit -l, which limits BPF before Linux 5.11; in a container, its seccomp profile has to allow bpf and perf_event_open", ErrDenied)
	case denied:
		return fmt.Errorf("%w: a seccomp filter (of a container: its profile has to allow bpf and perf_event_open) or a security module forbids it", ErrDenied)
	}
	return err
}

// Try sets a uprobe in this program, on an instruction that it runs once, and removes it. It returns why that is
// not possible.
func Try() error {
	const self = "/proc/self/exe"
	f, err := elf.Open(self)
	if err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && f.Entry >= p.Vaddr && f.Entry-p.Vaddr < p.Filesz {
			e, err := Open(os.Getpid(), []Probe{{Path: self, Off: f.Entry - p.Vaddr + p.Off, Where: calls.Enter}})
			if err != nil {
				return err
			}
			return e.Close()
		}
	}
	return fmt.Errorf("this program's entry %#x is in none of its segments", f.Entry)
}
