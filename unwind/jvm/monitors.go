package jvm

// Monitor is one that a thread wants, at one moment.
type Monitor struct {
	Addr    uint64 // of the ObjectMonitor
	Class   string // of its object; "": it cannot be read
	Waiting bool   // the thread is in Object.wait, and does not want it yet
	Locked  bool   // somebody has it
	Owner   int32  // TID of who has it, as the process sees it; 0: not known, or nobody
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

// Wanted is the monitor that a Java thread wants to enter or waits in. ok is false where
// there is none, where it changed while it was looked at, and where the JavaThread at
// that address is not that of tid any more.
func (r *Runtime) Wanted(thread uint64, tid int32) (m Monitor, ok bool) {
	l := r.l
	if r.tidOf(thread) != tid {
		return m, false
	}
	at := thread + l.pending
	m.Addr, _ = word(r.mem, at)
	if m.Addr == 0 {
		at = thread + l.waiting
		if m.Addr, _ = word(r.mem, at); m.Addr == 0 {
			return m, false
		}
		m.Waiting = true
	}
	m.Class = r.monitorClass(m.Addr)
	m.Locked, m.Owner = r.MonitorOwner(m.Addr)
	again, err := word(r.mem, at)
	return m, err == nil && again == m.Addr
}

// objectOf is the object of a monitor.
func (r *Runtime) objectOf(monitor uint64) uint64 {
	handle, err := word(r.mem, monitor+r.l.monitorObject)
	if err != nil || handle == 0 {
		return 0
	}
	obj, _ := word(r.mem, handle)
	return obj
}

func (r *Runtime) monitorClass(monitor uint64) string {
	o, err := r.heapOf()
	if err != nil {
		return ""
	}
	class, err := r.classOf(o, r.objectOf(monitor))
	if err != nil || class == 0 {
		return ""
	}
	p, err := word(r.mem, class+r.l.klassName)
	if err != nil {
		return ""
	}
	name, err := r.symbol(p)
	if err != nil {
		return ""
	}
	return ClassName(name)
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
	obj := r.objectOf(monitor)
	if obj == 0 {
		return 0
	}
	l := r.l
	for _, o := range r.listOwners() {
		top, err := half(r.mem, o.thread+l.lockStackTop) // from the thread's beginning on
		if err != nil || uint64(top) < l.lockStack {
			continue
		}
		for i := range min((uint64(top)-l.lockStack)/8, maxLockStack) {
			if v, err := word(r.mem, o.thread+l.lockStack+8*i); err == nil && v == obj {
				return o.tid
			}
		}
	}
	return 0
}
