package jvm

import (
	"encoding/binary"
	"time"
)

// A class is initialized by the first thread that needs it, and others wait until that thread is done
// (JVM specification, 5.5). HotSpot records the thread in the class. The waiting thread has a pointer
// to the class, JavaThread::_class_to_be_initialized (src/hotspot/share/runtime/javaThread.hpp of 21
// and 25, thread.hpp of 17), whose offset no table contains. It is found by its value: a class
// that another thread initializes.

// classInit holds the offsets for waits for the initialization of a class.
type classInit struct {
	state, thread uint64 // in InstanceKlass; thread is none if the version lacks one of them
	being         byte   // value of state while a thread initializes the class
	size          uint64 // bytes of a JavaThread
}

func newClassInit(s *structs) classInit {
	g := &lookup{s: s}
	c := classInit{state: g.field("InstanceKlass._init_state"), thread: g.field("InstanceKlass._init_thread"),
		being: byte(g.constant("InstanceKlass::being_initialized")), size: g.size("JavaThread")}
	if len(g.missing) > 0 || c.size > maxStruct {
		c.thread = none
	}
	return c
}

// Searches for the offset in a JavaThread take some 100 µs each. maxInitLooks bounds them in each
// initEach: threads of the runtime itself look as if they waited for a class.
const (
	maxInitLooks = 64
	initEach     = time.Second
)

// initSearch is the state of the searches.
type initSearch struct {
	offset uint64 // of the pointer to the class; 0: not found yet
	begin  time.Time
	looks  int
}

// initializing returns the class for whose initialization a Java thread waits. ok is false if there is
// none.
func (r *Runtime) initializing(thread uint64) (m Monitor, ok bool) {
	c := &r.classInit
	if c.thread == none {
		return m, false
	}
	r.mu.Lock()
	at := r.initSearch.offset
	if at == 0 {
		x := &r.initSearch
		if now := time.Now(); now.Sub(x.begin) > initEach {
			x.begin, x.looks = now, 0
		}
		if x.looks++; x.looks > maxInitLooks {
			r.mu.Unlock()
			return m, false
		}
	}
	r.mu.Unlock()
	if at != 0 {
		class, err := word(r.mem, thread+at)
		if err != nil {
			return m, false
		}
		if m, ok = r.initializedBy(class, thread); !ok {
			return m, false
		}
		again, err := word(r.mem, thread+at)
		return m, err == nil && again == class
	}
	b := make([]byte, c.size)
	if n, err := r.mem.ReadAt(b, int64(thread)); n < len(b) && err != nil {
		return m, false
	}
	for off := uint64(0); off+8 <= c.size; off += 8 {
		class := binary.LittleEndian.Uint64(b[off:])
		if m, ok = r.initializedBy(class, thread); !ok {
			continue
		}
		if again, err := word(r.mem, thread+off); err != nil || again != class {
			return m, false
		}
		r.mu.Lock()
		r.initSearch.offset = off
		r.mu.Unlock()
		return m, true
	}
	return m, false
}

// minAddr is below all addresses of HotSpot's structures.
const minAddr = 1 << 16

// initializedBy describes the class at addr, if a thread other than waiter initializes it.
func (r *Runtime) initializedBy(addr, waiter uint64) (m Monitor, ok bool) {
	if addr < minAddr || addr&7 != 0 {
		return m, false
	}
	c := &r.classInit
	var state [1]byte
	if n, _ := r.mem.ReadAt(state[:], int64(addr+c.state)); n < 1 || state[0] != c.being {
		return m, false
	}
	by, err := word(r.mem, addr+c.thread)
	if err != nil || by == waiter || by < minAddr || by&7 != 0 {
		return m, false
	}
	o, ok := r.threadAt(by)
	if !ok {
		return m, false
	}
	v := &look{r: r}
	name := v.word(addr + r.l.klassName)
	if v.err != nil {
		return m, false
	}
	text, err := r.symbol(name)
	if err != nil {
		return m, false
	}
	return Monitor{Sort: Initialization, Addr: addr, Class: ClassName(text), Locked: true, Owner: o.tid}, true
}
