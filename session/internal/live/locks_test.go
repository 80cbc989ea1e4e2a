package live

//sliver:layer live unraced

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/ptrace"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
)

// A sampler.Sink that keeps the events.
type told struct{ events []event.Event }

func (s *told) Sample(*stack.Sample)             {}
func (s *told) Gap(stack.Time, stack.Why, int64) {}
func (s *told) End(stack.Time, stack.Why)        {}
func (s *told) Flush()                           {}
func (s *told) Full() bool                       { return false }
func (s *told) Event(t stack.Time, k event.Kind, p uint64) {
	s.events = append(s.events, event.Make(t, k, p))
}

// holders returns the reported holders, with their times.
func (s *told) holders() (out []event.Event) {
	for _, e := range s.events {
		if e.Kind() == event.Holder {
			out = append(out, e)
		}
	}
	return out
}

// wantsFlock in the environment makes this program wait for a file lock.
const wantsFlock = "SLIVER_TEST_WANTS_FLOCK"

func TestMain(m *testing.M) {
	if path := os.Getenv(wantsFlock); path != "" {
		wantFlock(path)
		return
	}
	os.Exit(m.Run())
}

// wantFlock prints the TID of a thread that waits for a file lock, and prints it again
// when the thread has the lock. It returns when its standard input ends.
func wantFlock(path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fd := int(f.Fd())
	defer runtime.KeepAlive(f)
	go func() {
		runtime.LockOSThread()
		fmt.Println(syscall.Gettid())
		for syscall.Flock(fd, syscall.LOCK_EX) == syscall.EINTR {
		}
		fmt.Println(syscall.Gettid())
		select {}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// flocked is a thread of another process that waits for a file lock held by another
// descriptor, and the waits that samples it.
type flocked struct {
	*waits
	t       *testing.T
	held    *os.File
	thread  *ptrace.Thread
	info    stack.ThreadInfo
	says    *bufio.Reader // the thread's TID, printed again when it has the lock
	woken   chan struct{}
	entered chan struct{} // a reading has fetched the list
	release chan struct{} // the reading may deliver the list
	known   map[int]trace.Wait
	sink    told
}

// newFlocked starts it. With relatives, the descriptors of the program and of its
// parent, which is this process, are examined too.
func newFlocked(t *testing.T, relatives bool) *flocked {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.lock")
	held, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	x := &flocked{t: t, held: held, woken: make(chan struct{}, 100),
		entered: make(chan struct{}), release: make(chan struct{}), known: map[int]trace.Wait{}}
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), wantsFlock+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	x.says = bufio.NewReader(out)
	p, err := target.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	tg := &Target{proc: p}
	if relatives {
		tg.locks.pid = p.PID()
	}
	tg.locks.read = func() *wait.FileLocks {
		list := readLocks()
		x.entered <- struct{}{}
		<-x.release
		return list
	}
	d := &Descriptions{Put: func(w trace.Wait) bool { x.known[w.ID] = w; return true }}
	x.waits = tg.Waits(d, tg.Variables(nil), func() { x.woken <- struct{}{} }).(*waits)
	t.Cleanup(x.Close)
	x.info.TID = stack.TID(x.number())
	th, err := p.Thread(x.info.TID)
	if err != nil {
		t.Fatal(err)
	}
	x.thread = &ptrace.Thread{Thread: th}
	t.Cleanup(func() { x.thread.Close() })
	return x
}

// number returns the next number that the program prints.
func (x *flocked) number() (n int) {
	x.t.Helper()
	if _, err := fmt.Fscanln(x.says, &n); err != nil {
		x.t.Fatal(err)
	}
	return n
}

// look samples the thread while it waits, as a sampler does. The Go runtime may wake a
// thread from time to time, which makes it another wait.
func (x *flocked) look() {
	x.t.Helper()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); runtime.Gosched() {
		g := &sampler.Glance{State: stack.StateBlocked, Sample: &stack.Sample{Time: target.Now(), Way: stack.WayRead}}
		if x.thread.Counters(&g.Counters) != nil {
			continue
		}
		var after sampler.Counters
		running, err := x.thread.Call(&g.Call)
		if err != nil || running || g.Call.Nr != syscall.SYS_FLOCK || x.thread.Counters(&after) != nil || ran(&g.Counters, &after) {
			continue
		}
		g.Sample.Switches, g.Sample.Call = g.Counters.Switches, g.Call
		x.Look(x.thread, &x.info, g, &x.sink)
		return
	}
	x.t.Fatal("it does not wait")
}

// request looks until the list has been requested: a request is omitted while the reader
// holds its mutex.
func (x *flocked) request() {
	x.t.Helper()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); runtime.Gosched() {
		x.look()
		r := x.reader
		r.mu.Lock()
		_, later := r.asked[x.waits]
		_, now := r.now[x.waits]
		r.mu.Unlock()
		if later || now {
			return
		}
	}
	x.t.Fatal("the list is not requested")
}

const never = stack.Time(1 << 62)

// A sample of a thread that waits for a file lock must not wait for the list of locks.
// The holder must be reported when the list arrives, with the time of the list.
func TestFileLockLater(t *testing.T) {
	x := newFlocked(t, false)
	x.request()
	<-x.entered
	for range 10 {
		x.look()
		x.Late(0, never)
	}
	if h := x.sink.holders(); len(h) != 0 {
		t.Errorf("holders %v before the list was read", h)
	}
	wt := x.known[x.by[x.info.TID].id]
	if wt.Call != "flock" || wt.NoHolder == "" || wt.HolderTID != 0 {
		t.Errorf("before the list was read: %+v", wt)
	}
	for try := 0; ; try++ {
		before := target.Now()
		x.release <- struct{}{}
		<-x.woken
		r := x.reader.last.Load()
		if r.at < before || r.at > target.Now() {
			t.Errorf("read at %d, let go at %d", r.at, before)
		}
		x.Late(0, never)
		h := x.sink.holders()
		if len(h) == 0 && try < 10 {
			x.request() // the thread was woken in between
			<-x.entered
			continue
		}
		if tid, by := event.HolderFields(h[0].Payload()); len(h) != 1 || tid != stack.TID(os.Getpid()) || by != event.KnownByKernel || h[0].Time != r.at {
			t.Errorf("holders %v at %d", h, r.at)
		}
		break
	}
	if wt := x.known[x.by[x.info.TID].id]; wt.NoHolder != "" {
		t.Errorf("after the list was read: %+v", wt)
	}
	n := len(x.sink.events)
	x.Late(0, never)
	if len(x.sink.events) != n {
		t.Error("told twice")
	}
}

// If the holder is a relative, its descriptor must identify it before the list of all
// locks is read. Another file that gets that descriptor must not be taken for it.
func TestFileLockSoon(t *testing.T) {
	x := newFlocked(t, true)
	for try := 0; ; try++ {
		x.request()
		<-x.woken // a descriptor was found
		<-x.entered
		x.Late(0, never)
		h := x.sink.holders()
		if len(h) == 0 && try < 10 {
			x.release <- struct{}{} // the thread was woken in between
			<-x.woken
			continue
		}
		if len(h) != 1 {
			t.Fatalf("holders %v", h)
		}
		if tid, by := event.HolderFields(h[0].Payload()); tid != stack.TID(os.Getpid()) || by != event.KnownByKernel {
			t.Errorf("holder %d by %d", tid, by)
		}
		break
	}
	w := x.by[x.info.TID]
	tell := func() (known, sure, changed bool) {
		return x.r.TellSoon(w.thread, &x.reader.open, func() bool { return true })
	}
	if known, sure, changed := tell(); !known || !sure || changed {
		t.Errorf("asked again: known %v, sure %v, changed %v", known, sure, changed)
	}
	if known, _, _ := x.r.TellSoon(w.thread, &x.reader.open, func() bool { return false }); known {
		t.Error("told of a thread that has run")
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(x.held.Fd())
	keep, err := syscall.Dup(fd) // keeps the lock
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(keep)
	if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
		t.Fatal(err)
	}
	if known, _, _ := tell(); known {
		t.Error("/dev/null holds a lock")
	}
	x.release <- struct{}{}
	<-x.woken
}

// An event must not precede those of a round that ended in between.
func TestFileLockOrder(t *testing.T) {
	x := newFlocked(t, false)
	for try := 0; ; try++ {
		x.request()
		<-x.entered
		x.release <- struct{}{}
		<-x.woken
		since := target.Now()
		x.Late(since, never)
		h := x.sink.holders()
		if len(h) == 0 && try < 10 {
			continue
		}
		if len(h) != 1 || h[0].Time != since {
			t.Errorf("holders %v, want one at %d", h, since)
		}
		return
	}
}

// The holder at the time of the list must not be reported for a thread that got the
// lock after that, even if the thread has not been sampled since.
func TestFileLockGone(t *testing.T) {
	x := newFlocked(t, false)
	x.request()
	<-x.entered
	if err := syscall.Flock(int(x.held.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	x.number()
	x.release <- struct{}{}
	<-x.woken
	if len(x.files) != 1 {
		t.Fatal("nobody is to be told")
	}
	x.Late(0, never)
	if h := x.sink.holders(); len(h) != 0 {
		t.Errorf("holders %v of a lock that it has got", h)
	}
}

// After a group ends it must not be woken, and no goroutine may be left.
func TestFileLockClosed(t *testing.T) {
	x := newFlocked(t, false)
	x.request()
	<-x.entered
	x.reader.forget(x.waits)
	x.release <- struct{}{}
	for going := true; going; runtime.Gosched() {
		x.reader.mu.Lock()
		going = x.reader.going
		x.reader.mu.Unlock()
	}
	if len(x.woken) != 0 {
		t.Error("woken")
	}
}
