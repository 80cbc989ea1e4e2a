package live

import (
	"fmt"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
)

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		in   wait.Info
		want trace.Wait
	}{
		{wait.Info{Kind: kind.WaitPipe, Call: "read", Args: "0 pipe, 1 bytes", File: "pipe"},
			trace.Wait{Kind: "pipe", Call: "read", Args: "0 pipe, 1 bytes", File: "pipe"}},
		{wait.Info{Kind: kind.WaitLock, Call: "futex", Args: "mutex m, timeout 3.445867ms", Timeout: 3445867, Lock: &wait.Lock{Symbol: "m"}},
			trace.Wait{Kind: "lock", Call: "futex", Args: "mutex m", Symbol: "m", Timeout: 3400000}},
		{wait.Info{Kind: kind.WaitPoll, Call: "poll", Args: "timeout 1s", Timeout: time.Second},
			trace.Wait{Kind: "poll", Call: "poll", Timeout: int64(time.Second)}},
		{wait.Info{Kind: kind.WaitSleep, Call: "clock_nanosleep", Args: "1m38.156204564s", Timeout: 98156204564},
			trace.Wait{Kind: "sleep", Call: "clock_nanosleep", Args: "1m38s", Timeout: 98e9}},
		{wait.Info{Kind: kind.WaitSleep, Call: "clock_nanosleep", Args: "910.204µs left", Timeout: 910204},
			trace.Wait{Kind: "sleep", Call: "clock_nanosleep", Args: "910µs left", Timeout: 910e3}},
		{wait.Info{Kind: kind.WaitSleep, Call: "futex", Args: "Thread.sleep, 1.576607ms left", Timeout: 1576607},
			trace.Wait{Kind: "sleep", Call: "futex", Args: "Thread.sleep", Timeout: 1600000}},
		{wait.Info{Kind: kind.WaitLock, Call: "futex", Args: "mutex m, timeout 3.445867ms left", Timeout: 3445867, Lock: &wait.Lock{Symbol: "m"}},
			trace.Wait{Kind: "lock", Call: "futex", Args: "mutex m", Symbol: "m", Timeout: 3400000}},
		{wait.Info{Kind: kind.WaitSleep, Call: "futex", Args: "Thread.sleep, 1.576607ms", Timeout: 1576607},
			trace.Wait{Kind: "sleep", Call: "futex", Args: "Thread.sleep", Timeout: 1600000}},
	} {
		if got := describe(&c.in); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.in, got, c.want)
		}
	}
}

// Equal waits have one number. A program that waits for something new each time must
// not fill memory.
func TestDescriptions(t *testing.T) {
	put := map[int]trace.Wait{}
	full := false
	d := Descriptions{Put: func(w trace.Wait) bool {
		if full {
			return false
		}
		if _, twice := put[w.ID]; twice || w.ID <= 0 {
			t.Errorf("number %d", w.ID)
		}
		put[w.ID] = w
		return true
	}}
	read := func(i int) *wait.Info {
		return &wait.Info{Kind: kind.WaitFile, Call: "pread64", File: "/x", Args: fmt.Sprintf("at %d", i)}
	}
	if a, b := d.id(read(1)), d.id(read(1)); a != b || a == 0 || put[a].Args != "at 1" {
		t.Errorf("%d and %d, %+v", a, b, put)
	}
	full = true
	if id := d.id(read(2)); id != 0 {
		t.Errorf("number %d of what was not taken", id)
	}
	full = false
	if id := d.id(read(2)); id == 0 {
		t.Error("not asked again")
	}
	for i := range 3 * maxDetailed {
		if d.id(read(i)) == 0 {
			t.Fatalf("no number for wait %d", i)
		}
	}
	if id := d.id(read(1 << 30)); len(put) != maxDetailed+1 || put[id].Args != "" || put[id].File != "/x" {
		t.Errorf("%d descriptions, %+v", len(put), put[id])
	}
	for i := range 2 * maxCoarse {
		d.id(&wait.Info{Kind: kind.WaitFile, Call: "open", File: fmt.Sprint(i)})
	}
	if len(put) != maxCoarse {
		t.Errorf("%d descriptions", len(put))
	}
}

func TestBehind(t *testing.T) {
	maps := []stack.Mapping{
		{Start: 0x1000, End: 0x2000, Inode: 7, Path: "/bin/x", Exec: true},
		{Start: 0x2000, End: 0x3000, Inode: 7, Path: "/bin/x", Write: true},
		{Start: 0x3000, End: 0x5000, Write: true}, // zeroed variables
		{Start: 0x6000, End: 0x7000, Write: true}, // of no file
		{Start: 0x7000, End: 0x8000, Write: true, Path: "[heap]"},
	}
	for addr, want := range map[uint64]*stack.Mapping{0x1800: &maps[0], 0x2000: &maps[1], 0x4fff: &maps[1], 0x5000: nil, 0x6800: nil,
		0x7800: nil, 0: nil, 0x9000: nil} {
		if got := behind(maps, addr); got != want {
			t.Errorf("%#x: %+v, want %+v", addr, got, want)
		}
	}
}
