package jvm

import "github.com/sliverprof/sliver/stack"

// Sort is the kind of a thread's wait.
type Sort uint8

// The kinds of waits.
const (
	Entering       Sort = iota // to enter a monitor
	Waiting                    // in Object.wait: it does not want the monitor yet
	Synchronizer               // parked, for a java.util.concurrent lock that records its owner
	Semaphore                  // parked, for another java.util.concurrent synchronizer
	Condition                  // parked, for a condition of a java.util.concurrent lock
	Parked                     // parked, for anything else or an unknown object
	Sleeping                   // in Thread.sleep
	Initialization             // another thread initializes a class; Addr is the class
)

// Monitor is a lock that a thread wants, or another object that it waits for, at one moment.
type Monitor struct {
	Sort    Sort
	Addr    uint64 // of the ObjectMonitor, or the first known address of the object that it parked for; 0: none
	Class   string // of the object; "": unreadable, or none
	Unknown bool   // the object or the owner cannot be read at the moment
	Locked  bool   // owned by a thread
	Owner   int32  // TID of the owner, as the process sees it; 0: unknown, or none
	Readers int    // number of read locks
	Why     string // further information about the owner, or why there is none

	class uint64
}

// Values of ObjectMonitor._owner that do not identify an owner
// (src/hotspot/share/runtime/objectMonitor.hpp of 17, 21 and 25).
const (
	ownerAnonymous = 1          // 21, 25: the monitor is in its owner's lock stack
	ownerDeflater  = 2          // 21, 25
	ownerDeflating = ^uint64(0) // 17
)

// owner holds a thread's identities in monitors.
type owner struct {
	thread   uint64
	low, end uint64 // its stack
	id       uint64 // 25
	tid      int32
}

// Wanted returns the object that a Java thread waits for: the monitor that it wants to enter or
// waits in, or the object that it parked for. ok is false if there is none, if it changed during
// the read, or if the JavaThread at that address does not belong to tid any more.
func (r *Runtime) Wanted(thread uint64, tid int32) (m Monitor, ok bool) {
	l := r.l
	v := &look{r: r} // for reads without references
	v.ahead([]stack.Span{{Addr: thread + l.osThread, Len: 8}, {Addr: thread + l.pending, Len: 8}, {Addr: thread + l.waiting, Len: 8}})
	os := v.word(thread + l.osThread)
	if v.err != nil || os == 0 || int32(v.half(os+l.osThreadID)) != tid {
		return m, false
	}
	at := thread + l.pending
	if m.Addr = v.word(at); m.Addr == 0 {
		at = thread + l.waiting
		if m.Addr = v.word(at); m.Addr == 0 && v.err == nil {
			if m, ok = r.parked(thread, os); !ok {
				m, ok = r.initializing(thread)
			}
			return m, ok
		}
		m.Sort = Waiting
	}
	if v.err != nil {
		return m, false
	}
	m.Class = r.monitorClass(m.Addr)
	if m.Sort == Waiting && m.Class == initLockClass {
		if c, ok := r.initializing(thread); ok {
			return c, true
		}
	}
	m.Locked, m.Owner = r.MonitorOwner(m.Addr)
	again, err := word(r.mem, at)
	return m, err == nil && again == m.Addr
}

// initLockClass is the class of the objects in which 17 waits for the initialization of a class.
const initLockClass = "[I"

// objectOf returns the object of a monitor, or 0 if it cannot be read.
func (v *look) objectOf(monitor uint64) uint64 { return v.handle(monitor + v.r.l.monitorObject) }

func (r *Runtime) monitorClass(monitor uint64) string {
	v, err := r.look()
	if err != nil {
		return ""
	}
	obj := v.objectOf(monitor)
	if obj == 0 {
		return ""
	}
	c := v.classAt(v.class(obj))
	if v.err != nil {
		return ""
	}
	if at := r.s.static["java_lang_Class._klass_offset"]; at != 0 && c.text == "java.lang.Class" {
		if of := v.word(obj + uint64(v.half(at))); of != 0 { // the lock of static methods
			if c := v.classAt(of); v.err == nil {
				return "java.lang.Class for " + c.text
			}
		}
	}
	return c.text
}

// MonitorOwner returns the current owner of a monitor. If locked is true and tid is 0, the owner is
// unknown.
func (r *Runtime) MonitorOwner(monitor uint64) (locked bool, tid int32) {
	v, err := word(r.mem, monitor+r.l.monitorOwner)
	switch {
	case err != nil, v == 0, r.Major < 20 && v == ownerDeflating, r.Major >= 20 && v == ownerDeflater:
		return false, 0
	case v == ownerAnonymous && r.l.lockStack != none:
		return true, r.anonymous(monitor)
	}
	if o, ok := r.ownerOf(v); ok {
		return true, o.tid
	}
	return true, 0
}

// ownerOf returns the thread that an owner word v identifies: by its address, by an address in its
// stack, or by its number.
func (r *Runtime) ownerOf(v uint64) (owner, bool) {
	find := func(all []owner) (owner, bool) {
		for _, o := range all {
			if r.l.ownerID != none && o.id == v || r.l.ownerID == none && (o.thread == v || v >= o.low && v < o.end) {
				return o, true
			}
		}
		return owner{}, false
	}
	r.mu.Lock()
	all := r.owners
	r.mu.Unlock()
	if o, ok := find(all); ok && r.tidOf(o.thread) == o.tid {
		return o, true
	}
	return find(r.listOwners())
}

// threadAt returns the Java thread whose JavaThread is at addr.
func (r *Runtime) threadAt(addr uint64) (owner, bool) {
	if addr == 0 {
		return owner{}, false
	}
	r.mu.Lock()
	all := r.owners
	r.mu.Unlock()
	for _, o := range all {
		if o.thread == addr && r.tidOf(addr) == o.tid {
			return o, true
		}
	}
	for _, o := range r.listOwners() {
		if o.thread == addr {
			return o, true
		}
	}
	return owner{}, false
}

func (r *Runtime) tidOf(thread uint64) int32 {
	os, err := word(r.mem, thread+r.l.osThread)
	if err != nil || os == 0 {
		return 0
	}
	tid, _ := half(r.mem, os+r.l.osThreadID)
	return int32(tid)
}

func (r *Runtime) listOwners() []owner {
	threads, err := r.Threads()
	if err != nil {
		return nil
	}
	l := r.l
	all := make([]owner, 0, len(threads))
	for _, t := range threads {
		o := owner{thread: t.Addr, tid: t.TID}
		end, err1 := word(r.mem, t.Addr+l.stackBase)
		size, err2 := word(r.mem, t.Addr+l.stackSize)
		if err1 == nil && err2 == nil && size <= end {
			o.low, o.end = end-size, end
		}
		if l.ownerID != none {
			o.id, _ = word(r.mem, t.Addr+l.ownerID)
		}
		all = append(all, o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners = all
	return all
}

// maxLockStack bounds a thread's list of the objects that it has locked without a monitor.
// HotSpot's list has eight entries.
const maxLockStack = 8

// anonymous finds the owner of a monitor that does not record it: the thread with its object in the
// lock stack.
func (r *Runtime) anonymous(monitor uint64) int32 {
	look, err := r.look()
	if err != nil {
		return 0
	}
	obj := look.place(look.objectOf(monitor))
	if look.stale || !look.steady() {
		obj = 0
	}
	l := r.l
	for _, o := range r.listOwners() {
		top, err := half(r.mem, o.thread+l.lockStackTop) // relative to the thread's beginning
		if err != nil || uint64(top) < l.lockStack {
			continue
		}
		for i := range min((uint64(top)-l.lockStack)/8, maxLockStack) {
			v, err := word(r.mem, o.thread+l.lockStack+8*i)
			if err != nil || v == 0 {
				continue
			}
			if obj != 0 && look.place(look.plain(v)) == obj {
				return o.tid
			}
			// An object's first word points to its monitor, unless a table holds it.
			const hasMonitor = 2
			if m, err := word(r.mem, v); err == nil && m == monitor|hasMonitor {
				return o.tid
			}
		}
	}
	return 0
}
