package target

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Stat holds the used fields of /proc/PID/stat (proc_pid_stat(5)).
type Stat struct {
	PID        int
	Comm       string
	State      byte
	PPID       int
	Flags      uint64 // PF_*
	UTime      uint64 // clock ticks in user mode, of all threads
	STime      uint64 // clock ticks in the kernel, of all threads
	Threads    int
	Ticks      uint64 // clock ticks on CPUs, user and kernel, of the whole process
	Children   uint64 // clock ticks of its ended and awaited children, recursively
	Start      uint64 // clock ticks after boot
	StartCode  uint64 // 0 if the reader lacks permission
	EndCode    uint64
	StartStack uint64
	Exit       int // wait(2) status of an ended process; -1: unknown
}

// pfKthread is PF_KTHREAD of linux/sched.h.
const pfKthread = 0x00200000

// ParseStat parses the one line of /proc/PID/stat. The name may contain anything, including
// parentheses and newlines: it ends at the last ")".
func ParseStat(b []byte) (Stat, error) {
	var st Stat
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return st, errors.New("stat: no name in parentheses")
	}
	pid, rest, ok := decimal(b[:open])
	if !ok || len(blanks(rest)) > 0 || pid > math.MaxInt32 {
		return st, fmt.Errorf("stat: offset 0: invalid number %q", b[:open])
	}
	st.PID, st.Comm, st.Exit = int(pid), string(b[open+1:end]), -1
	const last = 28
	field := 2 // the name; the manual counts from 1
	for w := range bytes.FieldsSeq(b[end+1:]) {
		field++
		if !st.set(field, w) {
			return st, fmt.Errorf("stat: field %d: invalid value %q", field, w)
		}
	}
	if field < last {
		return st, fmt.Errorf("stat: offset %d: %d fields, want at least %d", end+1, field, last)
	}
	return st, nil
}

// set sets the field of that number of the manual, and reports whether its value is valid. It allocates nothing: samplers
// read such a line for each new thread, and that of the process some times a second.
func (s *Stat) set(field int, w []byte) bool {
	if field == 3 {
		s.State = w[0]
		return len(w) == 1
	}
	v, rest, ok := decimal(w)
	ok = ok && len(rest) == 0
	switch field {
	case 4:
		s.PPID, ok = int(v), ok && v <= math.MaxInt32
	case 9:
		s.Flags = v
	case 14:
		s.UTime = v
		s.Ticks += v
	case 15:
		s.STime = v
		s.Ticks += v
	case 16, 17:
		s.Children += v
	case 20:
		s.Threads, ok = int(v), ok && v <= math.MaxInt32
	case 22:
		s.Start = v
	case 26:
		s.StartCode = v
	case 27:
		s.EndCode = v
	case 28:
		s.StartStack = v
	case 52:
		if ok && v <= math.MaxInt32 {
			s.Exit = int(v)
		}
		return true
	default:
		return true
	}
	return ok
}

// Status holds the used fields of /proc/PID/status (proc_pid_status(5)).
type Status struct {
	TGID      int
	TracerPid int // 0: no tracer, or one in a namespace that is not visible here
	UID       int // real user
	NSpid     []int
	CapPrm    uint64
}

// maxNS is MAX_PID_NS_LEVEL of linux/pid_namespace.h, plus one for this namespace.
const maxNS = 33

// parseSwitches finds in /proc/PID/status how often the thread left a CPU, from the last two
// lines. It does not allocate.
func parseSwitches(b []byte) (n int64, err error) {
	rest := b
	for _, key := range [...]string{"\nvoluntary_ctxt_switches:\t", "\nnonvoluntary_ctxt_switches:\t"} {
		i := bytes.LastIndex(rest, []byte(key))
		if i < 0 {
			return 0, errors.New("status: no" + key[1:])
		}
		v := int64(0)
		at := i + len(key)
		for ; at < len(rest) && rest[at] >= '0' && rest[at] <= '9' && v < 1<<58; at++ {
			v = v*10 + int64(rest[at]-'0')
		}
		if at == i+len(key) || at == len(rest) || rest[at] != '\n' {
			return 0, fmt.Errorf("status: offset %d: %s is not a number", at, key[1:len(key)-2])
		}
		n += v
	}
	return n, nil
}

// ParseStatus parses /proc/PID/status; it ignores unknown lines.
func ParseStatus(b []byte) (Status, error) {
	s := Status{TGID: -1}
	off := 0
	for line := range bytes.Lines(b) {
		key, val, ok := bytes.Cut(line, []byte(":"))
		at := off
		off += len(line)
		if !ok {
			continue
		}
		f := strings.Fields(string(val))
		var err error
		switch string(key) {
		case "Tgid":
			err = number(f, &s.TGID)
		case "TracerPid":
			err = number(f, &s.TracerPid)
		case "Uid":
			err = number(f, &s.UID)
		case "CapPrm":
			if len(f) == 0 {
				err = errors.New("no value")
			} else {
				s.CapPrm, err = strconv.ParseUint(f[0], 16, 64)
			}
		case "NSpid":
			s.NSpid = nil
			for i := range min(len(f), maxNS) {
				n := 0
				if err = number(f[i:], &n); err != nil {
					break
				}
				s.NSpid = append(s.NSpid, n)
			}
		}
		if err != nil {
			return s, fmt.Errorf("status: offset %d: %s: %w", at, key, err)
		}
	}
	if s.TGID < 0 {
		return s, fmt.Errorf("status: offset %d: no Tgid", off)
	}
	return s, nil
}

func number(f []string, to *int) error {
	if len(f) == 0 {
		return errors.New("no value")
	}
	n, err := strconv.ParseUint(f[0], 10, 32)
	*to = int(n)
	return err
}

// Errors of the two parsers in the sampling loop: made once, so that the parsers do not allocate.
var (
	errSchedstat = errors.New("schedstat: not three numbers")
	errSyscall   = errors.New("syscall: neither \"running\" nor numbers")
)

// parseSchedstat parses "cpu_ns delay_ns times_in\n" (kernel:
// Documentation/scheduler/sched-stats.rst). It does not allocate.
func parseSchedstat(b []byte, c *Counters) error {
	var v [3]uint64
	for i := range v {
		n, rest, ok := decimal(b)
		if !ok {
			return errSchedstat
		}
		v[i], b = n, rest
	}
	if v[0] > math.MaxInt64 || v[1] > math.MaxInt64 {
		return errSchedstat
	}
	c.CPU, c.Delay, c.Switches = int64(v[0]), int64(v[1]), v[2]
	return nil
}

// parseSyscall parses /proc/TID/syscall (kernel: fs/proc/base.c, proc_pid_syscall): "running",
// "-1 SP PC" (blocked, but in no system call: a page fault) or "NR a0 … a5 SP PC". It does not
// allocate.
func parseSyscall(b []byte, c *stack.Call) (running bool, pc, sp uint64, err error) {
	*c = stack.Call{Nr: -1}
	if bytes.HasPrefix(b, []byte("running")) {
		return true, 0, 0, nil
	}
	args := 0
	if len(b) > 2 && b[0] == '-' && b[1] == '1' {
		b = b[2:]
	} else {
		n, rest, ok := decimal(b)
		if !ok || n > math.MaxInt32 {
			return false, 0, 0, errSyscall
		}
		c.Nr, b, args = int32(n), rest, len(c.Args)
	}
	for i := range args + 2 {
		v, rest, ok := hexadecimal(b)
		if !ok {
			c.Nr = -1
			return false, 0, 0, errSyscall
		}
		b = rest
		switch {
		case i < args:
			c.Args[i] = v
		case i == args:
			sp = v
		default:
			pc = v
		}
	}
	return false, pc, sp, nil
}

func blanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

func decimal(b []byte) (v uint64, rest []byte, ok bool) {
	b = blanks(b)
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		d := uint64(b[i] - '0')
		if v > (math.MaxUint64-d)/10 {
			return 0, b, false
		}
		v = v*10 + d
	}
	return v, b[i:], i > 0
}

func hexadecimal(b []byte) (v uint64, rest []byte, ok bool) {
	b = blanks(b)
	if len(b) < 3 || b[0] != '0' || b[1] != 'x' {
		return 0, b, false
	}
	b = b[2:]
	i := 0
	for ; i < len(b); i++ {
		var d byte
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			d = c - '0'
		case c >= 'a' && c <= 'f':
			d = c - 'a' + 10
		default:
			return v, b[i:], i > 0
		}
		if i == 16 {
			return 0, b, false
		}
		v = v<<4 | uint64(d)
	}
	return v, nil, i > 0
}

// stateLetter extracts the state without parsing the whole line.
func stateLetter(b []byte) (byte, bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, false
	}
	b = blanks(b[i+1:])
	if len(b) < 2 || b[1] != ' ' || (b[0]|0x20) < 'a' || (b[0]|0x20) > 'z' {
		return 0, false
	}
	return b[0], true
}

// appendTIDs appends the numeric names in a buffer of struct linux_dirent64 (getdents(2)): u64
// inode, s64 offset, u16 record length, u8 type, zero-terminated name.
func appendTIDs(to []stack.TID, b []byte) []stack.TID {
	const name = 19
	for len(b) > name {
		n := int(binary.NativeEndian.Uint16(b[16:]))
		if n <= name || n > len(b) {
			break
		}
		if v, rest, ok := decimal(b[name:n]); ok && v <= math.MaxInt32 && len(rest) > 0 && rest[0] == 0 {
			to = append(to, stack.TID(v))
		}
		b = b[n:]
	}
	return to
}
