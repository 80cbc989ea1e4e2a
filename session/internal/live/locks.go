package live

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/linux/procdir"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/wait"
)

// lockReader reads /proc/locks for groups, which must not block on it: a reading takes
// some ms, because the kernel first waits until no CPU is working on a file lock.
// Before a reading it looks for descriptors of the requested files, which let a group
// resolve the holder itself (wait.Openers). Its goroutine runs while requests are
// pending, on the low-priority threads of package background. Its methods may be called
// from any goroutine.
type lockReader struct {
	pid  int          // of the process
	open wait.Openers // of the requested files

	// read replaces the reading; nil: read /proc/locks.
	read func() *wait.FileLocks

	last  atomic.Pointer[reading] // nil: none yet
	found atomic.Uint32           // how often new descriptors were found

	mu    sync.Mutex
	going bool                     // the goroutine runs
	files map[wait.FileID]struct{} // requested since the last reading began
	asked map[*waits]struct{}      // requesters since then
	now   map[*waits]struct{}      // requesters before then, to wake when the reading ends
	next  stack.Time               // earliest time of the next reading
	took  stack.Time               // duration of the last reading
}

// reading is one reading of /proc/locks. It is read-only.
type reading struct {
	list  *wait.FileLocks
	began stack.Time
	at    stack.Time // when it ended: the list is valid at this time
	every stack.Time // minimum time to the next reading
}

const (
	askShare = 20         // divisor of the time that may be spent reading the list for waits that are not new
	askMost  = 25_000_000 // ns: upper bound, however long the reading took
	askLine  = 20_000     // minimum pause in ns for each line; a line costs about 1 µs of CPU time
)

// ask requests the list for a lock of file f, and wakes w after a reading that begins
// from now on. It does nothing while mu is held: a sampler may not wait for a thread of
// low priority, which may have lost its CPU. The sampler asks again at its next tick.
func (r *lockReader) ask(w *waits, f wait.FileID) {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if r.asked == nil {
		r.asked, r.files = map[*waits]struct{}{}, map[wait.FileID]struct{}{}
	}
	r.asked[w] = struct{}{}
	if f.Inode != 0 {
		r.files[f] = struct{}{}
	}
	if !r.going {
		r.going = true
		go r.run()
	}
}

// forget removes w: it is not woken after forget returns.
func (r *lockReader) forget(w *waits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, w)
	delete(r.now, w)
}

// run reads until no requests are pending. It pauses as long as a reading took, and
// longer if the list is long.
func (r *lockReader) run() {
	for {
		r.mu.Lock()
		pause := r.next - target.Now()
		r.mu.Unlock()
		if pause > 0 {
			time.Sleep(time.Duration(pause))
		}
		r.mu.Lock()
		if len(r.asked) == 0 {
			r.going = false
			r.mu.Unlock()
			return
		}
		var of map[wait.FileID]struct{}
		r.now, r.asked, of, r.files = r.asked, nil, r.files, nil
		r.mu.Unlock()

		last := r.last.Load()
		r.find(of, last)
		x := &reading{began: target.Now()}
		if r.read != nil {
			x.list = r.read()
		} else {
			x.list = readLocks()
		}
		x.at = target.Now()
		r.find(of, x)

		r.mu.Lock()
		// Use the shorter of the two times: in the other this program may have lost the CPU.
		took := x.at - x.began
		least := min(took, max(r.took, 1))
		r.took = took
		lines := stack.Time(x.list.Len()) * askLine
		x.every = max(min(least*askShare, askMost), lines)
		r.next = x.at + max(least, lines)
		r.last.Store(x)
		for w := range r.now {
			w.wake()
		}
		r.now = nil
		r.mu.Unlock()
	}
}

// find looks for descriptors of the files in the process's relatives and in the
// processes that x shows, and wakes the requesters if there are new ones.
func (r *lockReader) find(of map[wait.FileID]struct{}, x *reading) {
	if r.pid == 0 || len(of) == 0 {
		return
	}
	sys, err := procdir.Open("/proc")
	if err != nil {
		return
	}
	defer sys.Close()
	relatives := wait.Relatives(sys, r.pid)
	var news bool
	for f := range of {
		pids := relatives
		if x != nil {
			pids = append(x.list.Of(f.Inode), relatives...)
		}
		news = r.open.Find(sys, f, pids) || news
	}
	if !news {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found.Add(1)
	for w := range r.now {
		w.wake()
	}
}

func readLocks() *wait.FileLocks {
	sys, err := procdir.Open("/proc")
	if err != nil {
		return wait.NoFileLocks(err)
	}
	defer sys.Close()
	return wait.ReadFileLocks(sys)
}

// fileWait is a thread's wait for a file lock.
type fileWait struct {
	t  sampler.Thread
	to sampler.Sink
	// counters are those of the thread in this wait. sure: no stop has changed them
	// since.
	counters sampler.Counters
	sure     bool
	// need is the earliest start of a useful reading: not before the wait was sampled,
	// and not soon after the last reading.
	need stack.Time
	// soon is when the descriptors of the file may be read next. knew is when they last
	// identified the holder.
	soon, knew stack.Time
}

// ran reports whether the thread has run since its counters were c.
func ran(c, now *sampler.Counters) bool { return c.Switches != now.Switches || c.CPU != now.CPU }

// still reports whether the thread has not run since its wait was sampled.
func (f *fileWait) still() bool {
	var now sampler.Counters
	return f.t.Counters(&now) == nil && !ran(&f.counters, &now)
}

// seen records that the thread waits at time at, with counters c.
func (f *fileWait) seen(c *sampler.Counters, at stack.Time) {
	if !f.sure || ran(&f.counters, c) {
		f.counters, f.sure, f.need = *c, true, max(f.need, at)
	}
}

// settle takes over the counters of a thread that a stop woke, once it sleeps in the
// same call again.
func (f *fileWait) settle(call *stack.Call) {
	var before, after sampler.Counters
	var now stack.Call
	if f.t.Counters(&before) != nil {
		return
	}
	running, err := f.t.Call(&now)
	if err != nil || running || now != *call || f.t.Counters(&after) != nil || ran(&before, &after) {
		return
	}
	f.seen(&after, target.Now())
}

// askFile resolves the holder of the file lock that x waits for, as of at. It requests
// the list of all locks if the known descriptors do not identify the holder.
func (w *waits) askFile(x *waiting, at stack.Time) {
	f := x.file
	if !f.sure {
		if f.settle(&x.call); !f.sure {
			return // on its way back to sleep
		}
	}
	now := target.Now()
	if now >= f.soon {
		f.soon = now + stack.Time(len(w.files))*askEach
		known, sure, changed := w.r.TellSoon(x.thread, &w.reader.open, f.still)
		if known {
			f.knew = target.Now()
		}
		if changed {
			w.put(x, x.thread.Info(), at, f.knew, f.to)
		}
		if known && sure {
			return
		}
	}
	if now >= f.need {
		w.reader.ask(w, x.thread.File())
	}
}

// staleAfter is how long after a reading, in ns, its result is still reported: the
// thread still waits, but another thread may have taken the lock.
const staleAfter = 20_000_000

// Late implements sampler.Waits: it reports the holders of the file locks that threads
// wait for, as of the time at which the list was read. A thread that has run since its
// wait was sampled may have got its lock before that.
func (w *waits) Late(since, until stack.Time) {
	if n := w.reader.found.Load(); n != w.found {
		w.found = n
		for x := range w.files {
			if now := target.Now(); x.thread.Info().Lock.Holder.TID == 0 && now < until {
				x.file.soon = 0
				w.askFile(x, max(now, since))
			}
		}
	}
	r := w.reader.last.Load()
	if r == nil || r == w.told {
		return
	}
	at := max(r.at, since)
	for x := range w.files {
		f := x.file
		if !f.sure || r.began < f.need || r.at < f.knew {
			continue
		}
		now := target.Now()
		if now >= until {
			return // reported after the next round
		}
		if now-r.at > staleAfter {
			break // they request it again
		}
		if !f.still() {
			continue
		}
		f.need = r.at + r.every
		if w.r.Tell(x.thread, r.list) {
			w.put(x, x.thread.Info(), at, at, f.to)
		}
	}
	w.told = r
}
