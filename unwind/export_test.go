package unwind

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// What tests with languages use: those import unwind.

// Core is a core dump.
type Core = core

// HostFiles opens files of this machine.
type HostFiles = hostFiles

// DumpCore starts a program, waits for a line of its output, and returns its core.
func DumpCore(t *testing.T, name string, args ...string) *Core {
	t.Helper()
	c, _ := dumpCore(t, name, args...)
	return c
}

// Maps returns the mappings of the process.
func (c *core) Maps() []stack.Mapping { return c.maps }

// Threads returns the numbers and registers of the threads.
func (c *core) Threads() (tids []int, regs []stack.Regs) {
	for _, tid := range c.tids {
		tids = append(tids, int(tid))
	}
	return tids, c.regs
}

// CopyOf returns the memory that a walk of a thread copies.
func (c *core) CopyOf(w *Walker, th *Thread, regs *stack.Regs) *Copy { return c.copyOf(w, th, regs) }

// Spent returns what the last walk read of the target's current memory.
func (w *Walker) Spent() (bytes, reads int) { return w.meter.Bytes, w.meter.Reads }

// BiasAt returns the offset from vaddrs to addresses of the file that is mapped at addr.
func (s *Space) BiasAt(addr uint64) uint64 {
	r := s.snap.Load().find(addr)
	bias, _ := r.mod.bias(r)
	return bias
}

// Helpers of tests.
var (
	Need  = need
	Words = words
)

// RedZone is redZone.
const RedZone = redZone

// LeaveUnread makes the walker read n bytes less than its budget.
func (w *Walker) LeaveUnread(n int) { w.spare = n }
