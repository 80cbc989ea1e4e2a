package session

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol/kallsyms"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// SwitchOptions let a Session record the context switches of the process too.
type SwitchOptions struct {
	Need bool // it is an error if the kernel or this user cannot do that; otherwise the recording says why
	// Limits of the records; zero values are the engine's.
	Kernel kernel.SchedOptions

	after time.Duration // recording begins then
	begin func() bool   // reports whether it may begin; nil: it may
	end   func()        // is called after the end, if it began and begin is not nil
}

// switchLog writes context switches to a recording.
type switchLog struct {
	e     *kernel.Sched             // belongs to the goroutine of run
	all   func() bool               // reports whether switches of all threads are recorded, or of the sampled ones alone
	bare  func() (why, many string) // see Session.bareSamples
	p     *target.Process
	rec   *trace.Recorder
	stop  chan struct{}
	once  sync.Once
	done  chan struct{}
	began stack.Time
	last  *trace.Switches // the newest accounts, after done

	wakers  map[wakerKey]int
	fresh   []trace.Waker // not written yet
	kernel  kernelStacks
	batch   map[stack.TID][]trace.Switch // records that are not written yet
	waiting int                          // their number
	records uint64
	noted   time.Time
	counted time.Time
}

const (
	// switchEvery is how often the ring is read. It has room for more than that at the highest rate.
	switchEvery = 100 * time.Millisecond
	switchBatch = 1 << 14 // records that wait for the next second
	maxBatches  = 256     // threads whose memory for records is kept
)

// logSwitches begins to record the switches of p, of all of its threads where all says so, otherwise of those in rec.
// If that is refused and not needed, the recording says so. bare says which CPU samples have no kernel stacks, and why.
func logSwitches(p *target.Process, o *SwitchOptions, rec *trace.Recorder, all func() bool, bare func() (why, many string)) (*switchLog, error) {
	x := &switchLog{p: p, all: all, bare: bare, rec: rec, stop: make(chan struct{}), done: make(chan struct{}), wakers: map[wakerKey]int{}, batch: map[stack.TID][]trace.Switch{}}
	if o.after > 0 {
		go x.later(o)
		return x, nil
	}
	if err := x.open(o); err != nil && o.Need {
		return nil, fmt.Errorf("record context switches: %w", err)
	} else if err != nil {
		x.none(switchesRefused(err))
		return x, nil
	}
	go x.run()
	return x, nil
}

func (x *switchLog) open(o *SwitchOptions) error {
	if x.kernel.why = kallsyms.Hidden(); x.kernel.why != "" {
		o.Kernel.Stacks = -1 // addresses without names are of no use, and show where the kernel is
	}
	x.kernel.least = cmp.Or(o.Kernel.Stacks, time.Millisecond)
	e, err := kernel.OpenSched(x.p.PID(), o.Kernel)
	if err != nil {
		return err
	}
	x.began = target.Now()
	x.e, x.noted, x.counted = e, time.Now(), time.Now()
	x.account()
	return nil
}

// later begins after a while.
func (x *switchLog) later(o *SwitchOptions) {
	select {
	case <-x.stop:
		close(x.done)
		return
	case <-time.After(o.after):
	}
	if !o.begin() {
		x.none(fmt.Sprintf("that is for at most %d processes at once", maxWatched))
		return
	}
	defer o.end()
	if err := x.open(o); err != nil {
		x.none(switchesRefused(err))
		return
	}
	x.run()
}

// none ends the log and writes why context switches were not recorded. In most cases the missing rights explain as well
// why CPU samples have no kernel stacks.
func (x *switchLog) none(why string) {
	now, what := target.Now(), "context switches"
	if why, _ := x.bare(); why != "" {
		what += " and kernel stacks"
	}
	x.last = &trace.Switches{At: now, Began: now, Lost: []string{what + " were not recorded: " + why}}
	x.rec.Switches(x.last)
	close(x.done)
}

// switchesRefused describes in one line why context switches cannot be recorded, with a remedy where there is one.
func switchesRefused(err error) string {
	if kernel.Refused(err) {
		return oneLine(err)
	}
	return "this kernel does not let programs run at its scheduler's tracepoints (Linux 5.8 or later does): " + oneLine(err)
}

// TrySwitches records this program's own context switches for a moment, and returns why that is not possible; "":
// it is.
func TrySwitches() string {
	e, err := kernel.OpenSched(os.Getpid(), kernel.SchedOptions{Ring: os.Getpagesize()})
	if err != nil {
		return switchesRefused(err)
	}
	_ = e.Close() // the kernel removes the programs in any case
	return ""
}

func (x *switchLog) run() {
	defer close(x.done)
	defer x.e.Close() // the kernel removes the programs in any case
	tick := time.NewTicker(switchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			x.read()
		case <-x.stop:
			x.finish()
			return
		}
	}
}

// read takes what the ring has.
func (x *switchLog) read() {
	x.e.Read(x.take)
	if x.waiting >= switchBatch || time.Since(x.noted) >= noteEvery {
		x.flush()
	}
	if time.Since(x.counted) >= accountsFor {
		x.account()
	}
}

// finish writes the rest, and what the threads do at the end.
func (x *switchLog) finish() {
	now := target.Now()
	_ = x.e.Stop()
	x.e.Read(x.take)
	_ = x.e.Rest(func(s *kernel.Switch) { x.rest(s, now) }) // of damage, nothing more can be read
	x.flush()
	x.account()
}

// rest takes what a thread does at the end.
func (x *switchLog) rest(s *kernel.Switch, now stack.Time) {
	if _, err := os.Stat("/proc/" + strconv.Itoa(x.p.PID()) + "/task/" + strconv.Itoa(int(s.TID))); err != nil {
		return // a thread that runs another program takes the number of the main thread
	}
	on := s.Out == 0 && s.In != 0
	if s.Out == 0 && s.In == 0 && s.Wake == 0 {
		return
	}
	if on {
		s.Out, s.Wake = max(now, s.In), 0
	}
	s.In = max(now, s.Out, s.Wake)
	r := x.switchOf(s)
	r.Open = true
	if on {
		r.State, r.Waker, r.By, r.Open = stack.StateRunning, -1, 0, false
	} else if s.Wake == 0 && (r.State == stack.StateBlocked || r.State == stack.StateDisk) {
		r.Stack = x.kernel.atEnd(x.p.PID(), s.TID, r.Out, now)
	}
	x.add(r)
}

func (x *switchLog) take(s *kernel.Switch) {
	r := x.switchOf(s)
	r.Stack = x.kernel.number(s.Stack)
	x.add(r)
}

func (x *switchLog) add(s trace.Switch) {
	x.records++
	x.batch[s.TID] = append(x.batch[s.TID], s)
	if x.waiting++; x.waiting >= 2*switchBatch {
		x.flush()
	}
}

func (x *switchLog) switchOf(s *kernel.Switch) trace.Switch {
	r := trace.Switch{TID: s.TID, Out: s.Out, In: s.In, Wake: s.Wake, State: s.How.State(), Waker: -1, Skipped: s.Skipped, Asleep: s.Asleep, Queued: s.Queued}
	if s.Ended {
		r.State, r.In = stack.StateDead, r.Out
	}
	if r.Out == 0 { // it left before
		r.Out = x.began
		if r.Wake != 0 {
			r.Out = min(r.Out, r.Wake)
		}
		r.Out = min(r.Out, r.In)
	}
	for _, b := range []struct {
		is bool
		by event.WokenBy
	}{{s.Hard, event.ByHard}, {s.Soft, event.BySoft}, {s.Timer, event.ByTimer}} {
		if b.is {
			r.By |= b.by
		}
	}
	if s.Waker != 0 && r.By&(event.ByHard|event.ByTimer) == 0 { // an interrupt has nothing to do with the thread that it finds
		r.Waker = x.waker(s)
	}
	if s.Full {
		r.Why |= trace.SwitchFull
	}
	if s.Rate {
		r.Why |= trace.SwitchRate
	}
	return r
}

// wakerKey identifies a waker. Threads of the recorded process have no name here: the recording has it.
type wakerKey struct {
	tid  stack.TID
	pid  int
	comm [16]byte
}

func (x *switchLog) waker(s *kernel.Switch) int {
	k := wakerKey{tid: s.Waker, pid: s.WakerPID}
	if k.pid != x.p.PID() {
		k.comm = s.WakerComm
	}
	n, ok := x.wakers[k]
	if !ok {
		if n = len(x.wakers); n >= trace.MaxWakers {
			return -1
		}
		x.wakers[k] = n
		w := trace.Waker{TID: k.tid, PID: k.pid}
		if k.comm != ([16]byte{}) {
			w.Name = s.WakerName()
		}
		x.fresh = append(x.fresh, w)
	}
	return n
}

// flush writes what waits.
func (x *switchLog) flush() {
	x.noted = time.Now()
	if x.waiting == 0 {
		return
	}
	if n := len(x.kernel.fresh); n > 0 {
		x.rec.KernelStacks(len(x.kernel.numbers)-n, x.kernel.fresh)
		x.kernel.fresh = nil
	}
	var sampled map[stack.TID]bool // nil: all are written
	if !x.all() {
		sampled = map[stack.TID]bool{}
		for _, s := range x.rec.Sinks() {
			sampled[s.Thread.TID] = true
		}
	}
	for tid, all := range x.batch {
		if sampled != nil && !sampled[tid] {
			x.records -= uint64(len(all))
			x.batch[tid] = all[:0]
			continue
		}
		x.rec.Switched(len(x.wakers)-len(x.fresh), x.fresh, all)
		x.fresh, x.batch[tid] = x.fresh[:0], all[:0]
	}
	if x.waiting = 0; len(x.batch) >= maxBatches { // threads come and go
		clear(x.batch)
	}
}

// account writes the counts so far.
func (x *switchLog) account() {
	x.counted = time.Now()
	l := x.e.Losses()
	a := &trace.Switches{At: target.Now(), Began: x.began, Records: x.records, Full: l.Full, Rate: l.Rate, Lost: []string{}}
	for _, n := range []struct {
		n    uint64
		what string
	}{
		{l.Threads, "switches were of threads beyond the limit"},
		{l.Ends, "threads ended without a record of their last switches"},
		{l.Bad, "records of switches could not be read"},
		{l.Stacks, "long waits have no kernel stack: the kernel's buffer was full, or the kernel did not find it"},
		{x.kernel.beyond, "long waits have no kernel stack: there were too many different ones"},
		{x.kernel.unread, "waits at the end have no kernel stack: reading those of all threads takes too long"},
	} {
		if n.n > 0 {
			a.Lost = append(a.Lost, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	a.Lost = append(a.Lost, x.e.Without()...)
	why, many := x.bare()
	if why != "" && why == x.kernel.why {
		a.Lost = append(a.Lost, "CPU samples and waits have no kernel stacks: "+why)
	} else {
		if x.kernel.why != "" {
			a.Lost = append(a.Lost, "waits have no kernel stacks: "+x.kernel.why)
		}
		if why != "" {
			a.Lost = append(a.Lost, "CPU samples have no kernel stacks: "+why)
		}
	}
	if many != "" {
		a.Lost = append(a.Lost, many)
	}
	x.rec.Switches(a)
	x.last = a
}

// end stops recording and writes the rest. It may be called again.
func (x *switchLog) end() {
	x.once.Do(func() { close(x.stop) })
	<-x.done
}
