package files

import (
	"bytes"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// anonymous describes a descriptor that has no name other than its sort (kernel: the
// show_fdinfo functions of fs/eventfd.c, fs/timerfd.c, fs/signalfd.c, fs/eventpoll.c,
// fs/notify/fdinfo.c, kernel/pid.c).
func (t *Table) anonymous(fd int, sort string, now int64) (Desc, int64) {
	b, err := t.info(fd)
	if err != nil {
		return Desc{Kind: anonKind(sort), Text: sort, Why: reason("fdinfo of descriptor "+strconv.Itoa(fd), err)}, now + t.c.TTL
	}
	return Anonymous(sort, b), now + t.c.TTL
}

func anonKind(sort string) Kind {
	switch sort {
	case "eventfd":
		return Eventfd
	case "timerfd":
		return Timerfd
	case "signalfd":
		return Signalfd
	case "eventpoll":
		return Epoll
	case "inotify":
		return Inotify
	case "pidfd":
		return Pidfd
	}
	return Other
}

// Anonymous describes a descriptor without a file by the kernel's word for its sort
// ("eventpoll") and its fdinfo file (proc_pid_fdinfo(5)). It skips unknown lines.
func Anonymous(sort string, info []byte) Desc {
	d := Desc{Kind: anonKind(sort), Text: sort}
	n, clock := 0, ""
	for line := range bytes.Lines(info) {
		key, val, ok := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if !ok {
			continue
		}
		v := strings.TrimSpace(string(val))
		switch {
		case d.Kind == Epoll && string(key) == "tfd":
			n++
		case d.Kind == Inotify && bytes.HasPrefix(key, []byte("inotify wd")):
			n++
		case d.Kind == Pidfd && string(key) == "Pid":
			pid, err := strconv.Atoi(v)
			switch {
			case err == nil && pid > 0:
				d.Target = pid
				d.Text = fmt.Sprintf("pidfd of %d", pid)
			case err == nil && pid < 0:
				d.Text = "pidfd of a process that has ended"
			default:
				d.Why = "the process is in another PID namespace"
			}
		case d.Kind == Signalfd && string(key) == "sigmask":
			// The mask is inverted: the signals missing from it are waited for (fs/signalfd.c).
			if m, err := strconv.ParseUint(v, 16, 64); err == nil {
				d.Text = "signalfd of " + SignalSet(m)
			}
		case d.Kind == Timerfd && string(key) == "clockid":
			clock = v
		case d.Kind == Timerfd && string(key) == "it_value":
			var s, ns int64
			if _, err := fmt.Sscanf(v, "(%d, %d)", &s, &ns); err == nil && s >= 0 {
				switch {
				case s == 0 && ns == 0:
					d.Text = "timerfd, not set"
				default:
					d.Text = fmt.Sprintf("timerfd, %d.%03d s left", s, ns/1e6)
				}
			}
		}
	}
	switch d.Kind {
	case Epoll:
		d.Text = fmt.Sprintf("epoll of %d", n)
	case Inotify:
		d.Text = fmt.Sprintf("inotify of %d", n)
	case Timerfd:
		if name, ok := map[string]string{"0": "realtime", "1": "", "7": "boottime", "8": "realtime alarm", "9": "boottime alarm"}[clock]; ok && name != "" {
			d.Text += " (" + name + ")"
		}
	}
	return d
}

// signals are the names of 1 to 31 on both architectures (signal(7)).
var signals = [...]string{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1",
	11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP",
	21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS"}

// maxShown is how many signals of a set are named.
const maxShown = 8

// SignalSet names the signals of a kernel sigset_t: bit 0 is signal 1.
func SignalSet(m uint64) string {
	if m == 0 {
		return "no signal"
	}
	if bits.OnesCount64(m) > 32 {
		return fmt.Sprintf("%d signals", bits.OnesCount64(m))
	}
	var s []string
	for i := range 64 {
		if m>>i&1 == 0 {
			continue
		}
		if len(s) == maxShown {
			s = append(s, fmt.Sprintf("%d more", bits.OnesCount64(m>>i)))
			break
		}
		name := fmt.Sprintf("RT%d", i+1-32)
		if i+1 < len(signals) {
			name = signals[i+1]
		}
		s = append(s, name)
	}
	return strings.Join(s, ",")
}
