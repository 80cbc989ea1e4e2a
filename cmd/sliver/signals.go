package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/safefile"
)

// ender ends the program after a signal. After the first one the program finishes its work:
// a recording is named and written. If it waits instead of working (for a file system, a
// server, a reader of its output, or a command that it started), it exits within a second.
// A second signal exits at once, unless it is the first one again: see twiceWithin. The zero
// value is ready to use; the methods may be called concurrently.
type ender struct {
	stderr io.Writer
	// hurry shortens waits of other packages than safefile; nil: none.
	hurry func()
	// leave runs before an early exit, which waits for it for a time. It returns a note for the user or "".
	leave  func() string
	within time.Duration // 0: leaveWithin

	mu    sync.Mutex
	got   os.Signal // the first one that has arrived; nil: none has
	at    time.Time // when
	whole bool      // all outputs are written
	stays bool      // the program may wait: a page stays open
}

// wrote records that all outputs are written: an exit from now on loses nothing.
func (x *ender) wrote() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.whole = true
}

// stay lets the program wait from now on, although a signal has arrived.
func (x *ender) stay() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stays = true
}

// An exit because of waiting takes idleTicks times idleTick, and leaveWithin.
const (
	idleTick    = 50 * time.Millisecond
	idleTicks   = 9
	leaveWithin = 150 * time.Millisecond
	// twiceWithin is the time in which the same signal counts once: timeout(1) and others that end a command send
	// it to the command and then to its process group, and the kernel and a shell both report a closed terminal. A user
	// who presses Ctrl-C twice takes longer.
	twiceWithin = 100 * time.Millisecond
	// stuckTicks is how many ticks a thread may wait for a disk in the kernel. A helper opens the
	// files of targets, so the user named that disk: a slow one must not lose an output.
	stuckTicks = 200
	// A tick with less CPU time and less I/O than this is idle. Sampling of a recorder whose end waits for
	// its log takes less; work takes a whole CPU, or waits for one (busy).
	idleCPU   = 4 * time.Millisecond
	idleBytes = 4 << 10
)

// signaled handles a signal that ends the program, and reports whether it is the first one.
// For a later one it does not return, unless it is the first one again.
func (x *ender) signaled(sig os.Signal) (first bool) {
	first, again := x.note(sig, time.Now())
	switch {
	case again:
		return false
	case !first:
		x.exit(sig, "")
	}
	safefile.Hurry() // do not wait for file systems any longer
	if x.hurry != nil {
		x.hurry()
	}
	go func() {
		waitIdle(idleTicks)
		x.mu.Lock()
		stays := x.stays
		x.mu.Unlock()
		if !stays {
			x.exit(sig, "it waited for something that does not answer")
		}
	}()
	return first
}

// note notes a signal at a time. again says that it is the first one again.
func (x *ender) note(sig os.Signal, now time.Time) (first, again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.got == nil {
		x.got, x.at = sig, now
		return true, false
	}
	return false, x.got == sig && now.Sub(x.at) < twiceWithin
}

// atExit sets leave, and how long an exit waits for it, while signals may arrive.
func (x *ender) atExit(leave func() string, within time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leave, x.within = leave, within
}

// ended reports whether a signal has arrived.
func (x *ender) ended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.got != nil
}

// exit ends the program at once. Neither leave nor standard error can delay it.
func (x *ender) exit(sig os.Signal, why string) {
	no := sig.(syscall.Signal)
	x.mu.Lock()
	whole, leave, within := x.whole, x.leave, cmp.Or(x.within, leaveWithin)
	x.mu.Unlock()
	if whole {
		os.Exit(128 + int(no))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		note := ""
		if leave != nil {
			note = leave()
		}
		if why == "" && note == "" {
			return
		}
		if note != "" {
			note = "; " + note
		}
		if why != "" {
			why = ": " + why
		}
		fmt.Fprintf(x.stderr, "sliver: ended by %s without finishing%s%s\n", unix.SignalName(no), why, note)
	}()
	select {
	case <-done:
	case <-time.After(within):
	}
	os.Exit(128 + int(no))
}

// context returns a context that the first of some signals cancels. stop restores the
// signals' default action.
func (x *ender) context(parent context.Context, sigs ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, sigs...)
	go func() {
		for sig := range ch {
			if x.signaled(sig) {
				cancel()
			}
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(ch)
		close(ch)
		cancel()
	})
}

// waitIdle returns when this program has done nothing for some ticks in a row.
func waitIdle(ticks int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	cpu, moved := worked()
	for idle, stuck := 0, 0; idle < ticks; {
		<-tick.C
		c, m := worked()
		if c-cpu > idleCPU || m-moved > idleBytes {
			idle, stuck = 0, 0
		} else if runs, disk := busy(); disk && stuck < stuckTicks {
			stuck++
		} else if !runs && !safefile.Pending() { // a CPU ends the former, a deadline the latter
			idle++
		}
		cpu, moved = c, m
	}
}

// worked returns the CPU time of this program, and the bytes that it wrote, or read from
// disks.
func worked() (cpu time.Duration, bytes int64) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return cpu, 0
	}
	for _, key := range []string{"\nwchar: ", "\nread_bytes: ", "\nwrite_bytes: "} {
		bytes += ownNumber(b, key)
	}
	return cpu, bytes
}

// ownNumber returns the number after key, 0 without one.
func ownNumber(b []byte, key string) int64 {
	_, b, _ = bytes.Cut(b, []byte(key))
	b, _, _ = bytes.Cut(b, []byte("\n"))
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return n
}

// busy reports whether another thread of this program runs or waits for a CPU, and whether one
// waits for a disk (state D).
func busy() (runs, disk bool) {
	d, err := os.Open("/proc/self/task")
	if err != nil {
		return false, false
	}
	defer d.Close()
	tids, _ := d.Readdirnames(-1)
	own := strconv.Itoa(unix.Gettid())
	for _, tid := range tids {
		if tid == own {
			continue
		}
		b, err := os.ReadFile("/proc/self/task/" + tid + "/stat")
		if err != nil {
			continue
		}
		// "TID (NAME) STATE …": a name may contain parentheses.
		if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) {
			runs, disk = runs || b[i+2] == 'R', disk || b[i+2] == 'D'
		}
	}
	return runs, disk
}
