package live

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind/managed"
)

// kernelText names made-up addresses of the kernel.
var kernelText = map[uint64]string{1: "entry_SYSCALL_64_after_hwframe", 2: "vfs_read", 3: "read_zero", 4: "asm_sysvec_apic_timer_interrupt", 5: "handle_softirqs",
	6: "asm_exc_page_fault", 7: "ret_from_intr", 8: "el0t_64_irq", 9: "ext4_read [ext4]", 10: "el0t_64_sync", 11: "irq_work_interrupt"}

// TestKernelFrames: frames of the kernel have names, are in the order of the stack and below all of the program's, and
// interrupts with all above them are left out. The same call has the same frames.
func TestKernelFrames(t *testing.T) {
	rng := managed.Of(stack.KindKernel)
	k := &kernelFrames{table: managed.NewTable(rng, nil), at: map[uint64]kernelFunc{}, name: func(ret uint64) string { return kernelText[(ret-1)/16] }}
	frames := func(leafFirst ...uint64) []stack.Frame {
		addrs := make([]uint64, 0, len(leafFirst))
		for i, a := range leafFirst {
			if addrs = append(addrs, a*16+3); i == 0 {
				addrs[0] = a * 16 // the first byte of the innermost function
			}
		}
		return k.Frames(addrs, nil)
	}
	for _, c := range []struct{ addrs, want []uint64 }{
		{nil, nil},
		{[]uint64{3, 2, 1}, []uint64{3, 2, 1}},
		{[]uint64{5, 4, 3, 2, 1}, []uint64{3, 2, 1}}, // an interrupt of a call
		{[]uint64{5, 4}, nil},
		{[]uint64{5, 7}, nil},
		{[]uint64{8}, nil},
		{[]uint64{11}, nil},
		{[]uint64{9, 6}, []uint64{9, 6}},
		{[]uint64{2, 10}, []uint64{2, 10}},
	} {
		got := frames(c.addrs...)
		var names []string
		last := uint64(0)
		for _, f := range got {
			fn := k.table.Find(f.PC)
			if fn == nil || f.Kind != stack.KindKernel || f.CFA <= last || f.CFA > kernelTop || f.PC>>48 != 0 {
				t.Fatalf("%v: %+v, %v", c.addrs, f, fn)
			}
			last = f.CFA
			names = append(names, fn.Name)
		}
		var want []string
		for _, a := range c.want {
			want = append(want, KernelMark+kernelText[a])
		}
		if !slices.Equal(names, want) {
			t.Errorf("%v: %q, want %q", c.addrs, names, want)
		}
	}
	b, n := k.table.Since(0)
	if all, err := managed.Parse(rng, b, nil); err != nil || len(all) != n || n < 9 {
		t.Errorf("%d functions of %d, %v", len(all), n, err)
	}

	// Over a sample of the program's stack, they are entered and left as its own calls are, which go on.
	own := []stack.Frame{{Func: 2, PC: 20, CFA: 90_000, Exact: true}, {Func: 1, PC: 10, CFA: 100_000}}
	var d diff.Differ
	var r diff.Replayer
	h := &shape{}
	for i, c := range []struct {
		kernel []uint64
		depth  int
	}{{nil, 2}, {[]uint64{3, 2, 1}, 5}, {[]uint64{3, 2, 1}, 5}, {[]uint64{2, 1}, 4}, {[]uint64{9, 2, 1}, 5}, {nil, 2}} {
		s := stack.Sample{Time: stack.Time(i + 1), CPU: int64(i + 1), Way: stack.WayClock, State: stack.StateRunning, Call: stack.Call{Nr: -1}, Stack: own, Kernel: frames(c.kernel...)}
		for _, e := range d.Flush(d.Step(&s, nil)) {
			r.Apply(e, h)
		}
		if len(r.Stack) != c.depth || r.Stack[0].Entered != 1 || r.Stack[1].Entered != 1 {
			t.Errorf("sample %d: %+v", i, r.Stack)
		}
	}
	if want := "+0+1+2+3+4-4+4-4-3-2"; h.text != want {
		t.Errorf("%s, want %s", h.text, want)
	}
}

// shape writes down which depths were entered and left.
type shape struct{ text string }

func (s *shape) Enter(_ stack.Time, depth int, _ diff.Frame) { s.text += fmt.Sprintf("+%d", depth) }
func (s *shape) Exit(_ stack.Time, depth int, _ diff.Frame)  { s.text += fmt.Sprintf("-%d", depth) }
func (s *shape) Move(_ stack.Time, depth int, _ diff.Frame)  { s.text += fmt.Sprintf("~%d", depth) }
func (s *shape) Other(event.Event)                           {}
