package ptrace

//sliver:layer live

import (
	"bytes"
	"debug/elf"
	"errors"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// TestAside: each copy of a clock has the requested memory, except for memory that cannot be read.
func TestAside(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O2"), "--seconds", "120", "--wait-go")
	p.Ready()
	p.Go()
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	maps, err := proc.Maps()
	if err != nil {
		t.Fatal(err)
	}
	head := uint64(0) // of an ELF file
	for _, m := range maps {
		if m.Exec {
			break
		}
		head = m.Start
	}
	const nowhere = 0x1000
	for _, machine := range []bool{false, true} {
		th, err := Open(proc, stack.TID(p.PID), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		x := unwind.Aside{Blocks: []stack.Span{{Addr: head, Len: 8}, {Addr: nowhere, Len: 8}, {Addr: head + 8, Len: 256}, {Addr: head, Len: 257}}}
		plan := sampler.ClockPlan{Every: 2_000_000, Stack: 8 << 10, Aside: &x}
		if machine {
			plan.Tick = 1_000_000
		}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for begin := time.Now(); ; <-tick.C {
			if err = th.StartClock(plan); !errors.Is(err, sampler.ErrAsideLater) || time.Since(begin) > time.Minute {
				break
			}
		}
		switch {
		case errors.Is(err, sampler.ErrAside):
			testprog.Missing(t, "bpf", err.Error())
		case err != nil:
			testprog.Lack(t, "perf", err.Error())
		}
		var v sampler.View
		whole, later := 0, 0
		for begin := time.Now(); later < 20 && time.Since(begin) < time.Minute; <-tick.C {
			for {
				_, ok := th.NextCopy(&v)
				if !ok {
					break
				}
				b := v.Mem.Blocks[:len(v.Mem.Blocks)-1]
				switch {
				case len(b) == 2 && b[0].Addr == head && len(b[0].Data) == 8 && b[1].Addr == head+8 && len(b[1].Data) == 256:
					if !bytes.HasPrefix(b[0].Data, []byte(elf.ELFMAG)) || b[1].Data[8] != byte(elf.ET_DYN) && b[1].Data[8] != byte(elf.ET_EXEC) {
						t.Fatalf("machine %v: %x %x", machine, b[0].Data, b[1].Data)
					}
					if whole++; whole == 20 {
						if err := th.SetAside(&unwind.Aside{Blocks: []stack.Span{{Addr: head + 4, Len: 16}}}); err != nil {
							t.Fatal(err)
						}
					}
				case len(b) == 1 && b[0].Addr == head+4 && len(b[0].Data) == 16:
					later++
				case len(b) == 0 && whole == 0: // of the time before the program was set
				default:
					t.Fatalf("machine %v: copy %d has blocks %v", machine, whole, b)
				}
			}
		}
		if whole < 20 || later < 20 {
			t.Errorf("machine %v: %d copies, and %d after a change", machine, whole, later)
		}
		if err := th.Close(); err != nil {
			t.Error(err)
		}
	}
}
