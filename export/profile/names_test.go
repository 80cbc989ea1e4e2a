package profile

import (
	"fmt"
	"maps"
	"testing"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// TestThreadNames: samples have the name that their thread had at that time, and stacks of functions begin with it.
func TestThreadNames(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	th := b.Thread(1234, "one")
	for at := int64(0); at <= 100; at += 10 {
		switch at {
		case 30:
			th.Rename(25*ms, "two")
		case 80:
			th.Rename(75*ms, "one")
		}
		th.Look(exporttest.Look{At: at * ms, CPU: at * ms, State: stack.StateRunning, Stack: "main:1 work:2"})
	}
	v := view.New(b.Finish(100*ms), view.Options{})
	p, samples := New(v, nil), map[string]int64{}
	err := p.Samples(func(s *Sample) error {
		for _, l := range p.Labels(s) {
			if l.Key == "thread" {
				samples[l.Text] += s.Values[0]
			}
		}
		return nil
	})
	if want := map[string]int64{"one": 6, "two": 5}; err != nil || !maps.Equal(samples, want) {
		t.Errorf("%v %v, want %v", samples, err, want)
	}
	c, wall := tally.ByCalls(v, false, func(x *tally.Values) int64 { return x.Wall }), map[string]int64{}
	for n, ns := range c.Self {
		path := c.Path(int32(n), nil)
		if ns > 0 {
			name, _ := c.Word(path[len(path)-1])
			wall[name] += ns / int64(ms)
		}
	}
	if wall["one"]+wall["two"] != 100 || wall["two"] < 40 || wall["two"] > 60 {
		t.Errorf("%v", wall)
	}

	// Numbers of requests give no frames.
	b = exporttest.New(t)
	th = b.Thread(1234, "main")
	for at := int64(0); at <= 100; at++ {
		th.Look(exporttest.Look{At: at * ms, CPU: at * ms, State: stack.StateRunning, Stack: "main:1"})
		th.Rename(at*ms, fmt.Sprint("request ", at))
	}
	c = tally.ByCalls(view.New(b.Finish(100*ms), view.Options{}), false, func(x *tally.Values) int64 { return x.Wall })
	for n := range c.Self {
		if path := c.Path(int32(n), nil); len(path) > 0 {
			if name, _ := c.Word(path[len(path)-1]); name != "request 100" {
				t.Fatalf("a frame for %q", name)
			}
		}
	}
}
