package trigger

import (
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/iowatch"
)

func ioRule(t *testing.T, text string) *Rule {
	t.Helper()
	r, err := Parse(IO, text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestIO: each rule fires for its findings alone, and slow= for operations above its own limit.
func TestIO(t *testing.T) {
	ms := int64(time.Millisecond)
	slow := IOFinding{Rule: iowatch.MainIO, At: 70, TID: 9, Path: "/x", Longest: 14 * ms, Text: "One operation on x held the main thread."}
	loop := IOFinding{Rule: iowatch.LoopIO, At: 80, TID: 10, Path: "/y", Longest: 5 * ms}
	leak := IOFinding{Rule: iowatch.Leak, At: 90, TID: 9, Path: "/z"}
	for text, want := range map[string][]string{"slow=13ms,cool=0s": {"/x"}, "slow=4ms,cool=0s": {"/x", "/y"}, "slow=20ms": nil, "leak age=1s count=3": {"/z"}, "fsync": nil, "all,cool=0s": {"/x", "/y", "/z"}} {
		var got []string
		for _, f := range []IOFinding{slow, loop, leak} { // one fires in a look
			s, err := NewSet([]*Rule{ioRule(t, text)}, &world{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range s.Check(&Look{Now: 100, IO: []IOFinding{f}}) {
				if x.Kind != IO || x.At != f.At || x.TID != f.TID || x.Values[1] != (Value{"file", f.Path}) || !strings.HasSuffix(x.Text, f.Text) {
					t.Errorf("%s: %+v", text, x)
				}
				got = append(got, f.Path)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s fires for %q, want %q", text, got, want)
		}
	}
}

func TestWatchIO(t *testing.T) {
	stall, err := Parse(Stall, "5s")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := WatchIO([]*Rule{stall}); ok {
		t.Error("I/O is watched without a rule for it")
	}
	c, ok := WatchIO([]*Rule{ioRule(t, "slow=20ms"), ioRule(t, "leak age=3s count=4"), ioRule(t, "slow=5ms,times=3/1m")})
	if !ok || c.Slow != 5*time.Millisecond || c.LeakAge != 3*time.Second || c.LeakCount != 4 || !c.On[iowatch.MainIO] || !c.On[iowatch.LoopIO] || !c.On[iowatch.Leak] || c.On[iowatch.Fsync] {
		t.Errorf("%v, %+v", ok, c)
	}
	c, ok = WatchIO([]*Rule{ioRule(t, "all"), ioRule(t, "fsync count=7")})
	if !ok || len(c.Enabled()) != len(iowatch.Rules()) || c.FsyncCount != 7 || c.Slow != 13*time.Millisecond {
		t.Errorf("%v, %+v", ok, c)
	}
	for text, says := range map[string]string{"": "write slow=TIME", "slow=1us": "use 100µs to", "slow=x": "invalid time", "frob": `unknown rule "frob"`, "fsync frob=1": "unknown setting"} {
		if _, err := Parse(IO, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
