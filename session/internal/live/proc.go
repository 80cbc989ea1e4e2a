package live

import (
	"runtime"
	"strconv"
	"time"

	"github.com/sliverprof/sliver/linux/procdir"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/wait"
)

// Proc gives package wait access to a process's data outside its memory: the
// directories of /proc, and the kernel's socket diagnostics. It belongs to one
// goroutine at a time.
type Proc struct {
	p    *target.Process
	own  *procdir.Dir
	sys  *procdir.Dir
	diag *procdir.Diag // nil: the other ends of UNIX sockets stay unknown
}

// OpenProc opens a Proc for a process.
func OpenProc(p *target.Process) (*Proc, error) {
	w := &Proc{p: p}
	if err := w.open(); err != nil {
		return nil, err
	}
	w.diag, _ = procdir.OpenDiag(w.own) // other namespace, or refused
	return w, nil
}

// open opens the directories.
func (w *Proc) open() (err error) {
	if w.own, err = procdir.Open("/proc/" + strconv.Itoa(w.p.Directory())); err != nil {
		return err
	}
	if !w.p.Alive() { // the PID may have been reused before the open
		w.Close()
		return target.ErrGone
	}
	if w.sys, err = procdir.Open("/proc"); err != nil {
		w.Close()
		return err
	}
	return nil
}

// Config returns the configuration for wait.New; data names the target's variables,
// nil: they stay unnamed.
func (w *Proc) Config(data func(addr uint64) (wait.Symbol, bool)) wait.Config {
	c := wait.Config{PID: w.p.PID(), Arch: runtime.GOARCH, Mem: w.p, Proc: w.own, Sys: w.sys, Data: data,
		Monotonic: func() int64 { return int64(target.Now()) }, Realtime: func() int64 { return time.Now().UnixNano() }}
	if w.diag != nil {
		c.Unix = w.diag
	}
	return c
}

// openLater is wait.Later.Open for a process.
func openLater(p *target.Process) func() (own, sys wait.Dir, done func(), err error) {
	return func() (own, sys wait.Dir, done func(), err error) {
		w := &Proc{p: p}
		if err := w.open(); err != nil {
			return nil, nil, nil, err
		}
		return w.own, w.sys, w.Close, nil
	}
}

// openSystem is wait.Later.Open without a process.
func openSystem() (own, sys wait.Dir, done func(), err error) {
	d, err := procdir.Open("/proc")
	if err != nil {
		return nil, nil, nil, err
	}
	return nil, d, func() { d.Close() }, nil
}

// Close closes the directories and the socket.
func (w *Proc) Close() {
	if w.own != nil {
		w.own.Close()
	}
	if w.sys != nil {
		w.sys.Close()
	}
	if w.diag != nil {
		w.diag.Close()
	}
}
