package target

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perfring"
	"github.com/sliverprof/sliver/stack"
)

// Death is the state of a thread when a signal that it caused itself killed it.
type Death struct {
	TID   stack.TID
	PID   int
	At    stack.Time
	Regs  stack.Regs
	SP    uint64
	Stack []byte // from SP up; at most deathStack
}

// Deaths records the deaths of all processes of this machine, as the kernel reports them at the
// moment of the signal (tracepoint signal:signal_deliver, perf_event_open(2)). It stops no
// thread, and signals with a handler are not reported. It requires permission to observe all
// processes of the machine (CAP_PERFMON, or root) and tracefs. Methods may be called from any
// goroutine.
type Deaths struct {
	perfRings
	done chan struct{}

	mu    sync.Mutex // guards the fields below, and reading rings
	known []Death    // the last maxDeaths
}

const (
	maxDeaths = 32
	// deathStack is how much of a stack is copied: together with the other fields it must fit
	// into a record, whose size has 16 bits.
	deathStack = 48 << 10
	// perfPages is the size of each CPU's ring: two such records fit.
	perfPages  = 32
	maxCPUs    = 512
	perfSample = unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER
)

// deathFilter selects the signals for which the kernel writes a core dump if they have no handler
// (kernel/signal.c, SIG_KERNEL_COREDUMP_MASK): those of Ending.Crash except SIGKILL, and SIGQUIT.
const deathFilter = "sa_handler==0&&(sig==3||sig==4||sig==5||sig==6||sig==7||sig==8||sig==11||sig==24||sig==25||sig==31)"

// OpenDeaths starts recording deaths.
func OpenDeaths() (*Deaths, error) {
	id, err := tracepoint("signal/signal_deliver")
	if err != nil {
		return nil, err
	}
	d := &Deaths{done: make(chan struct{})}
	if d.perfRings, err = openRings("watch fatal signals", func(cpu int) (*perfRing, error) { return openPerf(id, cpu) }); err != nil {
		return nil, err
	}
	go d.follow()
	return d, nil
}

func openPerf(id uint64, cpu int) (*perfRing, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Size: unix.PERF_ATTR_SIZE_VER5, Config: id, Sample: 1, Sample_type: perfSample,
		Bits: unix.PerfBitUseClockID | unix.PerfBitDisabled, Wakeup: 1, Sample_regs_user: perfRegsMask, Sample_stack_user: deathStack, Clockid: unix.CLOCK_MONOTONIC}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	r := &perfRing{fd: fd}
	if err := setFilter(fd, deathFilter); err != nil {
		r.close()
		return nil, fmt.Errorf("choose signals: %w", err)
	}
	if r.ring, err = perfring.Map(fd, perfPages); err != nil {
		r.close()
		return nil, err
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// tracepoint returns the ID of a tracepoint.
func tracepoint(name string) (id uint64, err error) {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		var b []byte
		if b, err = os.ReadFile(dir + "/events/" + name + "/id"); err == nil {
			return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		}
	}
	return 0, err
}

// follow empties the rings as they fill, so that there is room for further records. It sleeps
// until a death is reported.
func (d *Deaths) follow() {
	defer close(d.done)
	fds := d.pollFDs()
	for {
		n, err := unix.Poll(fds, -1)
		if err != nil && !errors.Is(err, unix.EINTR) || n > 0 && fds[0].Revents != 0 {
			return
		}
		forgetGone(fds)
		d.mu.Lock()
		d.read()
		d.mu.Unlock()
	}
}

// read takes new records out of the rings. The caller holds d.mu.
func (d *Deaths) read() {
	for _, r := range d.rings {
		r.ring.Read(func(b []byte) {
			if x, ok := parseDeath(b); ok {
				d.known = append(d.known, x)
			}
		})
	}
	if n := len(d.known) - maxDeaths; n > 0 {
		clear(d.known[:n])
		d.known = d.known[n:]
	}
}

// Of returns the death of a thread after a time; ok is false if none is known.
func (d *Deaths) Of(pid int, tid stack.TID, after stack.Time) (x Death, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read()
	for i := range d.known {
		if k := &d.known[i]; k.PID == pid && k.TID == tid && k.At > after {
			return *k, true
		}
	}
	return x, false
}

// Close ends the recording.
func (d *Deaths) Close() {
	d.rouse()
	<-d.done
	d.release()
}

// parseDeath parses a record of perf_event_open(2): PERF_RECORD_SAMPLE with perfSample.
func parseDeath(b []byte) (x Death, ok bool) {
	var c perfCopy
	if !c.parse(b, 0) {
		return x, false
	}
	return Death{TID: c.tid, PID: c.pid, At: c.at, Regs: c.regs, SP: c.regs.R[nativeSP], Stack: append([]byte(nil), c.stack...)}, true
}

// Died returns the thread's death after a time, if d knows it. Its registers are completed by the
// known state of the thread.
func (t *Thread) Died(d *Deaths, after stack.Time) (x Death, ok bool) {
	if x, ok = d.Of(t.pid, t.tid, after); ok && x.Regs.TLS == 0 {
		x.Regs.TLS = t.tls
	}
	return x, ok
}
