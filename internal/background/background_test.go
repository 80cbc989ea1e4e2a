package background

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv("SLIVER_BACKGROUND") != "" {
		lowered()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lowered runs as a separate program, as a priority cannot be raised again. It prints the
// nice values of its threads.
func lowered() {
	own := func() int {
		n, err := nice(unix.Gettid())
		if err != nil {
			panic(err)
		}
		return n
	}
	if err := Lower(2); err != nil {
		panic(err)
	}
	fmt.Println("main", own())
	// If permitted, reserved threads run at a higher priority than all others.
	var may bool
	Do(func() {
		if may = unix.Setpriority(unix.PRIO_PROCESS, 0, urgentNice) == nil; may {
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, started)
		}
	})
	aside := map[bool]int{false: started, true: min(started, urgentNice)}[may]
	Urgent(func() {
		Urgent(func() {
			fmt.Println("urgent", own() == aside)
		})
	})
	for range 2 { // the second time reuses the threads of the first
		var meet, done sync.WaitGroup
		meet.Add(2)
		done.Add(2)
		out := make(chan int, 2)
		for range 2 {
			Go(func() bool {
				defer done.Done()
				out <- own()
				meet.Done()
				meet.Wait() // both at the same time
				return true
			})
		}
		done.Wait()
		fmt.Println("go", <-out == aside, <-out == aside)
		for idle.Load() < 2 {
			runtime.Gosched() // they are being returned
		}
	}
	// All threads created later are lowered, except those that are permitted otherwise.
	const many = 20
	var meet sync.WaitGroup
	meet.Add(many)
	low := make(chan bool, many)
	for range many {
		go func() {
			meet.Done()
			unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil) // one OS thread each
			low <- own() >= min(started+Nice, 19)
		}()
	}
	for range many {
		if !<-low {
			fmt.Println("a thread is not low")
		}
	}
	Do(func() {
		out, err := exec.Command("nice").Output()
		fmt.Println("child", strings.TrimSpace(string(out)), err)
	})
}

// TestLower examines the threads of a program whose priority was lowered.
func TestLower(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SLIVER_BACKGROUND=1")
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("main %d\nurgent true\ngo true true\ngo true true\nchild %d <nil>\n", min(started+Nice, 19), started)
	if err != nil || string(out) != want {
		t.Errorf("got %q, want %q: %v", out, want, err)
	}
}

// TestNotLowered runs everything that works before Lower as well.
func TestNotLowered(t *testing.T) {
	var a, b int
	Do(func() { a = unix.Gettid() })
	Do(func() { b = unix.Gettid() })
	if a != b {
		t.Errorf("threads %d and %d, want the same", a, b)
	}
	done := make(chan int)
	Go(func() bool {
		defer close(done)
		return true
	})
	<-done
}

// TestRaised compares the priority with that of a reserved thread, which is higher if permitted.
func TestRaised(t *testing.T) {
	var raised, reserved, tid int
	Raised(func() {
		tid = unix.Gettid()
		raised, _ = nice(tid)
	})
	done := make(chan struct{})
	Go(func() bool {
		defer close(done)
		reserved, _ = nice(unix.Gettid())
		return false
	})
	<-done
	if raised != reserved || raised > started {
		t.Errorf("nice value %d, want %d", raised, reserved)
	}
	if now, err := nice(unix.Gettid()); err != nil || now != started || tid == unix.Gettid() {
		t.Errorf("the caller has %d now, %v", now, err)
	}
}

// TestCollectRarely allocates garbage beside the untouched ballast, and where a collection is to come later.
func TestCollectRarely(t *testing.T) {
	const spare = 32 << 20
	if os.Getenv("SLIVER_GARBAGE") != "" {
		resident := func() (pages int) {
			b, err := os.ReadFile("/proc/self/statm")
			if err == nil {
				_, err = fmt.Sscan(string(b), new(int), &pages)
			}
			if err != nil {
				t.Fatal(err)
			}
			return pages
		}
		before := resident()
		switch os.Getenv("SLIVER_GARBAGE") {
		case "rarely":
			CollectRarely(spare)
		case "later":
			runtime.GC()
			CollectLater(spare)
		case "rarely, later":
			CollectRarely(spare)
			CollectLater(spare)
		}
		if more := (resident() - before) * os.Getpagesize(); more > spare/4 {
			t.Errorf("%d bytes are taken at once", more)
		}
		var from, to runtime.MemStats
		runtime.ReadMemStats(&from)
		for range spare / 2 >> 10 {
			garbageOf = make([]byte, 1<<10)
		}
		runtime.ReadMemStats(&to)
		fmt.Println("collections", to.NumGC-from.NumGC)
		for deadline := time.Now().Add(time.Minute); percent() != 100; runtime.Gosched() { // a collection restores it
			if runtime.GC(); time.Now().After(deadline) {
				t.Fatalf("%d%% after a collection", percent())
			}
		}
		return
	}
	count := func(which string) (n int) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCollectRarely$")
		cmd.Env = append(os.Environ(), "SLIVER_GARBAGE="+which, "GOGC=100")
		out, err := cmd.CombinedOutput()
		if _, scan := fmt.Sscanf(string(out), "collections %d", &n); err != nil || scan != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return n
	}
	if n := count("0"); n < 2 {
		t.Errorf("%d collections in a program without it: nothing is shown", n)
	}
	for _, which := range []string{"rarely", "later", "rarely, later"} {
		if n := count(which); n != 0 {
			t.Errorf("%s: %d collections", which, n)
		}
	}
}

// percent returns the runtime's setting.
func percent() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}

// TestFirstCollection: the percentage of the first collection holds while nothing is urgent, also if it is set or ends
// during urgent work.
func TestFirstCollection(t *testing.T) {
	c := &collector{}
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	c.keep()
	if c.set(1600) != 100 || percent() == 1600 {
		t.Errorf("%d%% during urgent work", percent())
	}
	c.letGo()
	if percent() != 1600 {
		t.Errorf("%d%% after urgent work, want 1600%%", percent())
	}
	c.keep()
	if c.set(100) != 1600 {
		t.Error("the percentage before is lost")
	}
	c.letGo()
	if percent() != 100 {
		t.Errorf("%d%%, want 100%%", percent())
	}
	if c.set(50) != 100 || percent() != 50 {
		t.Errorf("%d%%, want 50%%", percent())
	}
}

var garbageOf []byte

// All callers that wait with the same period wake at the same time.
func TestUntil(t *testing.T) {
	const apart = time.Hour
	a := time.Now().Add(Until(apart))
	b := time.Now().Add(Until(apart))
	if d := b.Sub(a).Abs(); d > time.Minute && d < apart-time.Minute {
		t.Errorf("two moments %v apart", d)
	}
	for range 100 {
		if d := Until(time.Millisecond); d <= 0 || d > time.Millisecond {
			t.Errorf("%v until the next millisecond", d)
		}
	}
}
