package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// DetailWoken is the name of the fact that Woken returns.
const DetailWoken = "woken_by"

// Measured follows the name of a thread that the kernel saw wake another one.
const Measured = " (measured)"

// Waker returns the thread of the recording's process that ended a wait, by the payload of its Waker event; false:
// it was an interrupt or another process, or is unknown.
func (v *View) Waker(payload uint64) (tid stack.TID, ok bool) {
	w, by := v.waker(payload)
	if w == nil || !by.Thread() || w.PID != v.Rec.Process.PID {
		return 0, false
	}
	return w.TID, true
}

// WakerOf returns the thread that ended a wait, also one of another process, by the payload of its Waker event; nil:
// it is unknown. soft: an interrupt found it on the CPU.
func (v *View) WakerOf(payload uint64) (w *trace.Waker, soft bool) {
	w, by := v.waker(payload)
	if by&(event.ByTimer|event.ByHard) != 0 {
		return nil, false
	}
	return w, by&event.BySoft != 0
}

func (v *View) waker(payload uint64) (*trace.Waker, event.WokenBy) {
	n, by := event.WakerFields(payload)
	if payload == 0 || n < 0 || n >= len(v.Rec.Wakers) {
		return nil, by
	}
	return &v.Rec.Wakers[n], by
}

// Woken describes what ended a wait, as the kernel saw it: a thread, also of another process, or an interrupt,
// "worker-1 (1240) (measured)"; "": unknown.
func (v *View) Woken(payload uint64) string {
	if payload == 0 {
		return ""
	}
	w, by := v.waker(payload)
	switch {
	case by&event.ByTimer != 0:
		return "a timer" + Measured
	case by&event.ByHard != 0:
		return "an interrupt" + Measured
	case w == nil && by&event.BySoft != 0:
		return "deferred work of an interrupt" + Measured
	case w == nil:
		return ""
	}
	name := v.threadOf(w)
	if by&event.BySoft != 0 { // a packet of the same machine is received while its sender runs
		return "deferred work of an interrupt while " + name + " ran" + Measured
	}
	return name + Measured
}

// threadOf names a waker.
func (v *View) threadOf(w *trace.Waker) string {
	switch {
	case w.PID == v.Rec.Process.PID:
		return v.ThreadName(w.TID)
	case w.TID == 0:
		return "the idle thread"
	case int(w.TID) == w.PID:
		return fmt.Sprintf("process %s (%d)", Text(w.Name, maxThreadName), w.PID)
	}
	return fmt.Sprintf("process %d, thread %s (%d)", w.PID, Text(w.Name, maxThreadName), w.TID)
}

// DetailKernel is the name of the fact that KernelStack returns.
const DetailKernel = "kernel_stack"

// maxKernelText limits the text of a kernel stack, in bytes.
const maxKernelText = 4096

// KernelStack returns the functions of the kernel in which a thread waited, outermost first, separated by ";"; "":
// unknown.
func (v *View) KernelStack(number uint64) string {
	if number == 0 || number > uint64(len(v.Rec.KernelStacks)) {
		return ""
	}
	var names []string
	for _, name := range slices.Backward(v.Rec.KernelStacks[number-1]) {
		names = append(names, strings.ReplaceAll(name, ";", "_"))
	}
	return Text(strings.Join(names, ";"), maxKernelText)
}

// switchLosses describes the losses of context switches, one line each.
func switchLosses(x *trace.Switches) (out []string) {
	if x == nil {
		return nil
	}
	add := func(n uint64, why string) {
		if n > 0 {
			out = append(out, count(n)+" switches are in sums only: "+why)
		}
	}
	add(x.Full, "the kernel's buffer was full")
	add(x.Rate, "their threads or CPUs had too many")
	for i, l := range x.Lost {
		if i == maxReasons {
			break
		}
		out = append(out, Text(l, 300))
	}
	return out
}
