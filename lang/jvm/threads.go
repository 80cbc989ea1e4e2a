package jvm

import "fmt"

// maxThreads bounds the threads of a process.
const maxThreads = 1 << 16

// Thread is one of HotSpot's Java threads.
type Thread struct {
	Addr uint64 // address of its JavaThread
	TID  int32  // as the process itself sees it
}

// Threads returns all current Java threads. If the list changes during the read, threads may be
// missing.
func (r *Runtime) Threads() ([]Thread, error) {
	l := r.l
	list, err := word(r.mem, r.threadList)
	if err != nil {
		return nil, fmt.Errorf("list of Java threads: %w", err)
	}
	if list == 0 {
		return nil, ErrNotReady
	}
	n, err := half(r.mem, list+l.listLength)
	if err != nil {
		return nil, fmt.Errorf("list of Java threads: %w", err)
	}
	at, err := word(r.mem, list+l.listThreads)
	if err != nil || n > maxThreads {
		return nil, fmt.Errorf("list of %d Java threads at %#x: %w", n, at, err)
	}
	b := make([]byte, 8*uint64(n))
	if n > 0 {
		if err := read(r.mem, b, at); err != nil {
			return nil, fmt.Errorf("list of Java threads: %w", err)
		}
	}
	var out []Thread
	for i := range uint64(n) {
		t := Thread{Addr: u64(b, 8*i)}
		os, err := word(r.mem, t.Addr+l.osThread)
		if err != nil || os == 0 {
			continue // it is starting or ending
		}
		tid, err := half(r.mem, os+l.osThreadID)
		if err != nil || tid == 0 {
			continue
		}
		t.TID = int32(tid)
		out = append(out, t)
	}
	return out, nil
}

// maxAnchor bounds the bytes to copy of a JavaThread.
const maxAnchor = 512

// AnchorSpan returns the part of a JavaThread to copy: where it last left Java.
func (r *Runtime) AnchorSpan(thread uint64) (addr uint64, n int) {
	l := r.l
	lo := min(l.anchorSP, l.anchorPC, l.anchorFP)
	hi := max(l.anchorSP, l.anchorPC, l.anchorFP) + 8
	if hi-lo > maxAnchor {
		return 0, 0
	}
	return thread + lo, int(hi - lo)
}

// Anchor returns where a thread outside of Java code left Java: stack pointer, PC and frame pointer
// (0: unknown) of its last Java frame, from the copy. ok is false if the thread is in Java, or has
// never been.
func (r *Runtime) Anchor(w Words, thread uint64) (pc, sp, fp uint64, ok bool) {
	l := r.l
	if sp, ok = w.Word(thread + l.anchorSP); !ok || sp == 0 {
		return 0, 0, 0, false
	}
	if pc, ok = w.Word(thread + l.anchorPC); !ok {
		return 0, 0, 0, false
	}
	if pc == 0 { // stored right below its stack pointer
		if pc, ok = w.Word(sp - 8); !ok {
			return 0, 0, 0, false
		}
	}
	fp, _ = w.Word(thread + l.anchorFP)
	return pc, sp, fp, r.Covers(pc)
}
