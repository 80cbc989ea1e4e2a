package naming

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// dump returns a jitdump of functions that were at 0x1000 in turn.
func dump(names map[uint64]string, times ...uint64) []byte {
	var b bytes.Buffer
	put := func(vs ...any) {
		for _, v := range vs {
			binary.Write(&b, binary.LittleEndian, v)
		}
	}
	put(uint32(0x4A695444), uint32(1), uint32(40), uint32(62), uint32(0), uint32(7), uint64(1), uint64(0))
	for _, t := range times {
		name := append([]byte(names[t]), 0)
		put(uint32(0), uint32(16+40+len(name)), t, uint32(7), uint32(7), uint64(0x1000), uint64(0x1000), uint64(0x40), uint64(1), name)
	}
	return b.Bytes()
}

// An address of a JIT compiler must resolve to the code of its time, from a jitdump and
// from the parts of a perf map.
func TestJITByTime(t *testing.T) {
	for what, captured := range map[string][]trace.Captured{
		"jitdump": {{What: "jitdump", At: 300, Data: dump(map[uint64]string{100: "early", 200: "late"}, 100, 200)}},
		"perf-map": {{What: "perf-map", At: 100, Data: []byte("1000 40 early\n")},
			{What: "perf-map", At: 200, Data: []byte("1008 4 late\n")}},
	} {
		byTime(t, what, captured)
	}
}

func byTime(t *testing.T, what string, captured []trace.Captured) {
	var b bytes.Buffer
	w, err := trace.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(w.Process(trace.Process{PID: 7, Arch: "amd64"}))
	check(w.Thread(trace.Thread{TID: 7, Main: true}))
	anon := []trace.Module{{Path: "[anon]"}}
	mapped := func(module int) []trace.Mapping { return []trace.Mapping{{Start: 0x1000, End: 0x2000, Module: module}} }
	check(w.Maps(trace.Maps{At: 0, Mappings: mapped(0)}, 0, anon))
	check(w.Maps(trace.Maps{At: 200, Mappings: mapped(1)}, 1, anon))
	for _, c := range captured {
		check(w.Captured(c))
	}
	frame := stack.Frame{PC: 0x1008, Func: 0x1000, Exact: true}
	word := uint64(event.WordOf(&frame))
	check(w.Events(0, []event.Event{event.Make(110, event.Sync, 0), event.Make(120, event.Enter, word), event.Make(190, event.Exit, 0),
		event.Make(210, event.Enter, word), event.Make(290, event.Exit, 0)}))
	check(w.End(trace.End{At: 300}))
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	check(err)
	var problems []string
	rec.Symbols, problems = Symbols(rec, one{}, Options{Captured: rec.Captured})
	l := &called{names: trace.NewNames(rec)}
	rec.Replay(0, l.names, l)
	if got := l.s; got != "120 early, 210 late, " || len(problems) > 0 {
		t.Errorf("%s: got %s, problems %q", what, got, problems)
	}
}

type called struct {
	names *trace.Names
	s     string
}

func (c *called) Begin(t stack.Time, _ int, s *trace.Slice) {
	c.s += map[bool]string{true: "120 ", false: "210 "}[t == 120] + c.names.Func(&s.Frame).Name + ", "
}
func (c *called) End(stack.Time, int, *trace.Slice) {}
func (c *called) Other(event.Event)                 {}
