package trace_test

import (
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// FuzzSharp: no events and no calls break the order or the nesting of slices.
func FuzzSharp(f *testing.F) {
	f.Add([]byte{7, 1, 1, 1, 1, 9, 3, 20, 1, 30, 0, 10, 3, 5, 8, 40}, []byte{1, 9, 0, 2, 8, 2, 30, 40, 3})
	f.Add([]byte{7, 0, 1, 2, 3, 3, 0, 50, 8, 10, 7, 2, 1, 1, 1, 2, 3, 90}, []byte{1, 200, 4, 2, 100, 2, 90, 0, 3, 5, 250, 1})
	f.Fuzz(func(t *testing.T, es, cs []byte) {
		b := exporttest.New(t)
		th := b.Thread(1, "main")
		th.Look(exporttest.Look{State: stack.StateRunning, Stack: "main:1 f:1 g:1 f:1"})
		for i := 0; i+2 < len(cs); i += 3 {
			from := int64(cs[i]) * us
			b.Exact(1, []string{"f", "g", "h"}[cs[i+2]%3], []string{"main:1", "f:1", "g:2", "other:1"}[cs[i+2]/3%4], from, from+int64(cs[i+1])*us, calls.How(cs[i+2]/12%4)).Before = cs[i+2] > 200
		}
		at := int64(0)
		for i := 0; i+1 < len(es); i += 2 {
			k, payload := event.Kind(es[i]%12), uint64(es[i+1])
			if k == event.Enter || k == event.Move {
				payload = 0x402104 + payload%4*0x1000 // in one of the functions
			}
			if k == event.Gap {
				payload = event.GapOf(stack.Why(es[i+1]%8), 1)
			}
			at += int64(es[i+1]%32) * us / 4
			th.Raw(event.Make(exporttest.Start+stack.Time(at), k, payload))
		}
		sharp(t, b.Finish(at+ms), 0)
	})
}
