package unwind

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/rule"
)

// What Steppers use of a Walker. All of it is about the walk in progress.

// Arch returns the architecture of the target's code.
func (w *Walker) Arch() rule.Arch { return w.arch }

// Properties returns those of all runtimes that take part.
func (w *Walker) Properties() Properties { return w.with.all }

// Start returns the registers at the start of the walk, and its first stack pointer.
func (w *Walker) Start() (regs *stack.Regs, sp uint64) { return w.leaf, w.first }

// Registers returns the registers at the current frame, by DWARF number. Bit i of known: register i
// has the thread's value. A Stepper may change both.
func (w *Walker) Registers() (regs *[64]uint64, known *uint64) { return &w.regs, &w.known }

// Frames returns the frames found so far, leaf first.
func (w *Walker) Frames() []stack.Frame { return w.frames }

// SetFrames replaces the frames found so far.
func (w *Walker) SetFrames(frames []stack.Frame) { w.frames = frames }

// Continue walks on at pc with the current registers and appends the frames. exact: pc is the next
// instruction, not a return address. Use it in Resume only.
func (w *Walker) Continue(pc uint64, exact bool) stack.Reason { return w.walk(pc, exact) }

// Copied returns the copy of the thread's memory.
func (w *Walker) Copied() *Copy { return w.mem }

// Word reads 8 bytes of the copy. It implements rule.Words.
func (w *Walker) Word(addr uint64) (uint64, bool) { return w.word(addr) }

// Needed returns Word for data without which the walk cannot go on: the next copy includes a word that
// was missing.
func (w *Walker) Needed() rule.Words { return (*frozen)(w) }

// Live returns Word for self-validating data: what the copy lacks is read from the target's current
// memory.
func (w *Walker) Live() rule.Words { return (*live)(w) }

// Missing returns the reason of a walk that ends because the word at addr is not in the copy.
func (w *Walker) Missing(addr uint64) stack.Reason { return w.lack(addr) }

// Meter returns the target's current memory, within the walk's budget.
func (w *Walker) Meter() *meter.Meter { return &w.meter }

// Reads starts a budget of reads for More. The caller ends it (meter.Meter.End).
func (w *Walker) Reads() *meter.Meter {
	w.beginReads()
	return &w.meter
}

// IsCode reports whether a return address points into mapped code.
func (w *Walker) IsCode(ra uint64) bool { return w.isCode(ra) }

// Region describes the mapping that contains addr; ok is false if there is none.
func (w *Walker) Region(addr uint64) (r Region, ok bool) {
	at := w.snap.find(addr)
	if at == nil {
		return r, false
	}
	return at.describe(), true
}

// Mapped calls each for all mappings until it returns false.
func (w *Walker) Mapped(each func(Region) bool) {
	for i := range w.snap.regions {
		if !each(w.snap.regions[i].describe()) {
			return
		}
	}
}

// Generation returns a number that changes with the mappings.
func (w *Walker) Generation() uint64 { return w.snap.nr }

// Turns returns how often the walk went on to another stack.
func (w *Walker) Turns() int { return w.turns }

// Crossed reports whether a runtime continued the walk, possibly on another stack (Stepper.Cross), or a signal
// handler ran on one. The distance of the stack's end from the first stack pointer then says nothing.
func (w *Walker) Crossed() bool { return w.crossed }

// Relocated says that the Stepper has moved the CFAs of the frames found, so that StackEnd returns the
// end before that. Call it before.
func (w *Walker) Relocated() { w.end = w.stackEnd() }

// SetReach sets the result of Reach.
func (w *Walker) SetReach(end uint64) { w.reach = end }

// Ends says that the stack ends where Merge's result ends, although machine code continues.
func (w *Walker) Ends() { w.ended = true }

// Region is one mapping.
type Region struct {
	Path string // of the file
	File bool   // false: memory without a file
	Exec bool
	// Made: a runtime may have generated code there (Properties.Generates).
	Made bool
}

func (r *region) describe() Region {
	out := Region{Exec: r.exec, Made: r.made}
	if r.mod != nil {
		out.Path, out.File = r.mod.mapping.Path, true
	}
	return out
}

// live is a Walker's memory for self-validating data: the copy, or the target's current memory if
// the copy lacks it.
type live Walker

// Word implements rule.Words.
func (l *live) Word(addr uint64) (uint64, bool) {
	w := (*Walker)(l)
	if v, ok := w.word(addr); ok {
		return v, true
	}
	return readWord(&w.meter, w.buf[:8], addr)
}

// frozen is a Walker's memory for data that must come from the copy.
type frozen Walker

// Word implements rule.Words.
func (f *frozen) Word(addr uint64) (uint64, bool) {
	v, ok := (*Walker)(f).word(addr)
	if !ok {
		f.wanted = addr
	}
	return v, ok
}
