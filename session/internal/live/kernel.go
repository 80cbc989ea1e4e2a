package live

import (
	"regexp"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
)

// KernelMark begins the names of the kernel's functions in stacks.
const KernelMark = "[kernel] "

// kernelFrames makes frames of the kernel's part of a stack. Interrupts are left out, as they are not what the thread
// called: those of a thread in its own code leave no frame of the kernel. A function gets an address in a managed.Range: addresses of
// the kernel do not fit into an event, and a recording that has them shows where this kernel is.
type kernelFrames struct {
	name   func(ret uint64) string
	table  *managed.Table
	passed int // functions passed to take; guarded by Runtimes.mu

	mu sync.Mutex
	at map[uint64]kernelFunc // by return address
}

// kernelFunc is a function of the kernel.
type kernelFunc struct {
	at        uint64 // its address in the table
	interrupt bool   // interrupts begin in it
}

const (
	// maxKernelPlaces limits the return addresses whose functions are kept.
	maxKernelPlaces = 1 << 15
	// kernelTop is the CFA of the outermost frame of the kernel; those of its callees are one less each. Frames of the
	// program are above it, as no program has memory there (vm.mmap_min_addr).
	kernelTop = 1 << 10
)

// NameKernel makes samples by clocks have the frames of the kernel. name returns the name of the function that a return
// address is in, and may be called from several goroutines. Call it at most once, before sampling begins.
func (r *Runtimes) NameKernel(name func(ret uint64) string) {
	rng := managed.Of(stack.KindKernel)
	k := &kernelFrames{name: name, table: managed.NewTable(rng, r.fresh), at: map[uint64]kernelFunc{}}
	r.mu.Lock()
	r.kernel = k
	r.mu.Unlock()
	r.t.kernel = k
	r.t.addRange(rng)
}

// Frames implements ptrace.Kernel.
func (k *kernelFrames) Frames(addrs []uint64, buf []stack.Frame) []stack.Frame {
	k.mu.Lock()
	defer k.mu.Unlock()
	from := len(buf)
	for i := len(addrs) - 1; i >= 0; i-- {
		a := addrs[i]
		if i == 0 {
			a++ // of the innermost function, not a return address
		}
		f := k.function(a)
		if f.interrupt {
			break
		}
		buf = append(buf, stack.Frame{Func: f.at, PC: f.at, CFA: uint64(max(kernelTop-(len(buf)-from), 1)), Kind: stack.KindKernel, Trust: stack.TrustRegs, Exact: true})
	}
	slices.Reverse(buf[from:])
	return buf
}

// function returns the function that a return address is in. The caller holds k.mu.
func (k *kernelFrames) function(ret uint64) kernelFunc {
	if f, ok := k.at[ret]; ok {
		return f
	}
	if len(k.at) >= maxKernelPlaces {
		clear(k.at)
	}
	name := k.name(ret)
	f := kernelFunc{interrupt: interrupts.MatchString(name)}
	f.at, _ = k.table.Add(managed.Key{Name: KernelMark + name, Size: 1}, func(yield func(uint64, int) bool) { yield(1, 0) })
	k.at[ret] = f
	return f
}

// interrupts matches the functions at which interrupts begin. On amd64 they are asm_sysvec_apic_timer_interrupt and
// others of DEFINE_IDTENTRY_SYSVEC (arch/x86/include/asm/idtentry.h), up to Linux 5.7 apic_timer_interrupt and others of
// arch/x86/entry/entry_64.S; on arm64 el0t_64_irq and others of arch/arm64/kernel/entry.S, up to 5.11 el0_irq.
var interrupts = regexp.MustCompile(`^(asm_sysvec_.*|asm_(common|spurious)_interrupt|asm_exc_(nmi|machine_check)|` +
	`(apic_timer|reschedule|call_function|call_function_single|irq_work|common)_interrupt|ret_from_intr|` +
	`el[01][th]?(_64|_32)?_(irq|fiq)(_naked)?)$`)
