package jvm

import "github.com/sliverprof/sliver/stack"

// Sort is how a thread waits.
type Sort uint8

// Sorts of waits.
const (
	Entering     Sort = iota // for a monitor
	Waiting                  // in Object.wait: it does not want the monitor yet
	Synchronizer             // parked, for a lock of java.util.concurrent that keeps its owner
	Semaphore                // parked, for one of java.util.concurrent
	Condition                // parked, for a condition of a lock of java.util.concurrent
	Parked                   // for something else, or nothing that is known
	Sleeping                 // in Thread.sleep
)

// Monitor is a lock that a thread wants, or what else it waits for, at one moment.
type Monitor struct {
	Sort    Sort
	Addr    uint64 // of the ObjectMonitor; of the object that it parked for, where that was met first; 0: none
	Class   string // of the object; "": it cannot be read, or there is none
	Unknown bool   // what it parked for, or who has it, cannot be read at the moment
	Locked  bool   // somebody has it
	Owner   int32  // TID of who has it, as the process sees it; 0: not known, or nobody
	Readers int    // how many have it for reading
	Why     string // what else there is to say of the owner, or why there is none

	class uint64
}

// Values of ObjectMonitor._owner that are no owner (src/hotspot/share/runtime/objectMonitor.hpp
// of 17, 21 and 25).
const (
	ownerAnonymous = 1          // 21, 25: it is in its owner's lock stack
	ownerDeflater  = 2          // 21, 25
	ownerDeflating = ^uint64(0) // 17
)

// owner is a thread as monitors name it.
type owner struct {
	thread   uint64
	low, end uint64 // its stack
	id       uint64 // 25
	tid      int32
}

// Wanted is what a Java thread waits for: the monitor that it wants to enter or waits in,
// or what it parked for. ok is false where there is none, where it changed while it was looked at, and where the JavaThread at
// that address is not that of tid any more.
func (r *Runtime) Wanted(thread uint64, tid int32) (m Monitor, ok bool) {
	l := r.l
	v := &look{r: r} // follows none
	v.ahead([]stack.Span{{Addr: thread + l.osThread, Len: 8}, {Addr: thread + l.pending, Len: 8}, {Addr: thread + l.waiting, Len: 8}})
	os := v.word(thread + l.osThread)
	if v.err != nil || os == 0 || int32(v.half(os+l.osThreadID)) != tid {
		return m, false
	}
	at := thread + l.pending
	if m.Addr = v.word(at); m.Addr == 0 {
		at = thread + l.waiting
		if m.Addr = v.word(at); m.Addr == 0 && v.err == nil {
			return r.parked(thread, os)
		}
		m.Sort = Waiting
	}
	if v.err != nil {
		return m, false
	}
	m.Class = r.monitorClass(m.Addr)
	m.Locked, m.Owner = r.MonitorOwner(m.Addr)
	again, err := word(r.mem, at)
	return m, err == nil && again == m.Addr
}

// objectOf is the object of a monitor; 0: it cannot be read.
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
		if of := v.word(obj + uint64(v.half(at))); of != 0 { // what is locked by static methods
			if c := v.classAt(of); v.err == nil {
				return "java.lang.Class for " + c.text
			}
		}
	}
	return c.text
}

// MonitorOwner tells who has a monitor now: locked without a TID is somebody who cannot
// be named.
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

// ownerOf is the thread that the word v of a monitor means: by its address, by one of
// its stack, or by its number.
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

// threadAt is the Java thread whose JavaThread is at addr.
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

// maxLockStack bounds a thread's list of the objects that it has locked without a
// monitor; HotSpot's has eight places.
const maxLockStack = 8

// anonymous finds the owner of a monitor that does not know it: who has its object in
// its lock stack.
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
		top, err := half(r.mem, o.thread+l.lockStackTop) // from the thread's beginning on
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
			// An object's first word leads to its monitor, but where a table has them.
			const hasMonitor = 2
			if m, err := word(r.mem, v); err == nil && m == monitor|hasMonitor {
				return o.tid
			}
		}
	}
	return 0
}
