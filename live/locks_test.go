package live

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

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait"
)

// told is a sampler.Sink that keeps the events.
type told struct{ events []event.Event }

func (s *told) Sample(*stack.Sample)             {}
func (s *told) Gap(stack.Time, stack.Why, int64) {}
func (s *told) End(stack.Time, stack.Why)        {}
func (s *told) Flush()                           {}
func (s *told) Event(t stack.Time, k event.Kind, p uint64) {
	s.events = append(s.events, event.Make(t, k, p))
}

// holders are the holders that were told, with the times.
func (s *told) holders() (out []event.Event) {
	for _, e := range s.events {
		if e.Kind() == event.Holder {
			out = append(out, e)
		}
	}
	return out
}

// wantsFlock in the environment makes this program one that waits for a lock.
const wantsFlock = "SLIVER_TEST_WANTS_FLOCK"

func TestMain(m *testing.M) {
	if path := os.Getenv(wantsFlock); path != "" {
		wantFlock(path)
		return
	}
	os.Exit(m.Run())
}

// wantFlock prints the number of a thread that waits for a file lock, and again
// when it has got that. It returns when its standard input ends.
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

// flocked is a thread of another process that waits for a file lock that another
// descriptor has, and a waits that looks at it.
type flocked struct {
	*waits
	t       *testing.T
	held    *os.File
	thread  *thread
	info    stack.ThreadInfo
	says    *bufio.Reader // the thread's number, and once more when it has got the lock
	woken   chan struct{}
	entered chan struct{} // a reading has taken the list
	release chan struct{} // and may hand it over
	known   map[int]trace.Wait
	sink    told
}

// newFlocked starts it. relatives: the descriptors of the program and of its parent,
// this process, are looked at too.
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
	x.thread = &thread{Thread: th}
	t.Cleanup(func() { x.thread.Close() })
	return x
}

// number is what the program says next.
func (x *flocked) number() (n int) {
	x.t.Helper()
	if _, err := fmt.Fscanln(x.says, &n); err != nil {
		x.t.Fatal(err)
	}
	return n
}

// look has it looked at as a sampler does, when it waits. A thread of Go may be
// woken now and then: then it is another wait.
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

const never = stack.Time(1 << 62)

// A look at a thread that waits for a file lock does not wait for the list of
// them. Who holds the lock is told when it comes, as of then.
func TestFileLockLater(t *testing.T) {
	x := newFlocked(t, false)
	x.look()
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
			x.look() // it was woken meanwhile
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

// Who holds a lock is known before the list of all is read where the one who has it
// is a relative: by the descriptor that holds it. Another file that comes to have
// that descriptor is not taken for it.
func TestFileLockSoon(t *testing.T) {
	x := newFlocked(t, true)
	for try := 0; ; try++ {
		x.look()
		<-x.woken // a descriptor was found
		<-x.entered
		x.Late(0, never)
		h := x.sink.holders()
		if len(h) == 0 && try < 10 {
			x.release <- struct{}{} // the thread was woken meanwhile
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
	keep, err := syscall.Dup(fd) // the lock stays
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

// An event is not before those of the round that ended meanwhile.
func TestFileLockOrder(t *testing.T) {
	x := newFlocked(t, false)
	for try := 0; ; try++ {
		x.look()
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

// Who held the lock when the list was read is not told of a thread that has got
// it meanwhile, though it has not been looked at since.
func TestFileLockGone(t *testing.T) {
	x := newFlocked(t, false)
	x.look()
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

// A group that ends is not woken any more, and no goroutine stays behind.
func TestFileLockClosed(t *testing.T) {
	x := newFlocked(t, false)
	x.look()
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
