package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// On a machine without a free CPU, a helper of low priority may need seconds to start or to respond, and this program seconds
// to read the reply. A file system that hangs keeps the helper asleep.

// starvedMost is the timeout of a request whose helper gets no CPU.
const starvedMost = 20 * time.Second

// runs reports whether a thread of the helper runs or waits for a CPU, so that no file system is to blame for the time.
func (h *helper) runs() bool {
	dir := fmt.Sprintf("/proc/%d/task", h.cmd.Process.Pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, t := range threads {
		b, err := os.ReadFile(dir + "/" + t.Name() + "/stat")
		if err != nil {
			continue
		}
		if i := bytes.LastIndexByte(b, ')'); i >= 0 && bytes.HasPrefix(b[i:], []byte(") R")) {
			return true
		}
	}
	return false
}

// starves reports whether a request since began has missed its deadline only because the helper has no CPU.
func (p *pool) starves(h *helper, began time.Time) bool {
	p.mu.Lock()
	rushed := p.rushed
	p.mu.Unlock()
	return !rushed && time.Since(began) < starvedMost && h.runs()
}

// anyStarves is starves of any helper.
func (p *pool) anyStarves(began time.Time) bool {
	p.mu.Lock()
	live := slices.Clone(p.live)
	p.mu.Unlock()
	for _, h := range live {
		if p.starves(h, began) {
			return true
		}
	}
	return false
}

// reply reads a helper's reply. The caller has set the deadline, and holds the turn.
func (p *pool) reply(h *helper, buf, in []byte) (n, on int, err error) {
	began := time.Now()
	for {
		n, on, _, _, err = h.conn.ReadMsgUnix(buf, in)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, on, err
		}
		late := p.starves(h, began)
		// A helper that slept before now has replied, or does not.
		if n, on, err := h.replied(buf, in); !errors.Is(err, unix.EAGAIN) {
			return n, on, err
		}
		if !late {
			return n, on, err
		}
		_ = h.conn.SetReadDeadline(time.Now().Add(brief))
	}
}

// replied reads a reply that has arrived, also after the deadline. The error is EAGAIN if none has.
func (h *helper) replied(buf, in []byte) (n, on int, err error) {
	raw, err := h.conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		for {
			n, on, _, _, err = unix.Recvmsg(int(fd), buf, in, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if err != unix.EINTR {
				return
			}
		}
	})
	if failed != nil {
		return 0, 0, failed
	}
	return n, on, err
}
