package target

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perfring"
)

// perfRing is an event with its buffer.
type perfRing struct {
	fd   int
	ring *perfring.Ring
}

func (r *perfRing) close() {
	if r.ring != nil {
		_ = r.ring.Close()
	}
	unix.Close(r.fd)
}

// perfRings are the events of all CPUs, and an eventfd that ends a wait for them.
type perfRings struct {
	rings []*perfRing
	wake  int
}

// openRings opens an event on each CPU. An error of open gets what as its beginning.
func openRings(what string, open func(cpu int) (*perfRing, error)) (p perfRings, err error) {
	cpus, err := OnlineCPUs()
	if err != nil {
		return p, err
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return p, fmt.Errorf("make an eventfd: %w", err)
	}
	for _, cpu := range cpus {
		r, err := open(cpu)
		if err != nil {
			p.release()
			return p, fmt.Errorf("%s: %w", what, err)
		}
		p.rings = append(p.rings, r)
	}
	return p, nil
}

// pollFDs returns what to poll for: wake first.
func (p *perfRings) pollFDs() []unix.PollFd {
	fds := []unix.PollFd{{Fd: int32(p.wake), Events: unix.POLLIN}}
	for _, r := range p.rings {
		fds = append(fds, unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN})
	}
	return fds
}

// forgetGone removes events whose CPU or process is gone: poll would report them forever.
func forgetGone(fds []unix.PollFd) {
	for i := range fds {
		if fds[i].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			fds[i].Fd = -1
		}
	}
}

// rouse ends a wait.
func (p *perfRings) rouse() { _, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (p *perfRings) release() {
	for _, r := range p.rings {
		r.close()
	}
	unix.Close(p.wake)
}

// OnlineCPUs are the CPUs that run threads, by number.
func OnlineCPUs() ([]int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

// parseCPUs parses a list such as 0-3,5.
func parseCPUs(s string) (out []int, err error) {
	for part := range strings.SplitSeq(s, ",") {
		a, b, is := strings.Cut(part, "-")
		if !is {
			b = a
		}
		from, e1 := strconv.Atoi(a)
		to, e2 := strconv.Atoi(b)
		if e1 != nil || e2 != nil || from < 0 || to < from || to-from >= maxCPUs || len(out) >= maxCPUs {
			return nil, fmt.Errorf("invalid list of CPUs %q", s)
		}
		for i := from; i <= to; i++ {
			out = append(out, i)
		}
	}
	return out, nil
}
