package jvm

import (
	"errors"
	"fmt"
	"math"

	"github.com/sliverprof/sliver/stack"
)

// Bits of java.lang.Thread's state (JavaThreadStatus in
// src/hotspot/share/classfile/javaClasses.hpp, with JVMTI's numbers).
const (
	statusSleeping = 0x40
	statusParked   = 0x200
)

// threadFields holds the offsets of fields of java.lang.Thread in its objects, in bytes.
type threadFields struct {
	name, blocker, eetop, id uint64
	holder, status           uint64 // holder: of the object with the status since 19; none up to 18
	known                    bool
}

// threadFields finds the fields by name, once, because the class stays loaded.
func (v *look) threadFields(obj uint64) threadFields {
	v.r.mu.Lock()
	f := v.r.thread
	v.r.mu.Unlock()
	if f.known || v.err != nil {
		return f
	}
	class := v.class(obj)
	if v.err == nil {
		if class = v.r.classNamed(v.o, class, "java/lang/Thread"); class == 0 {
			v.err = fmt.Errorf("no thread at %#x", obj)
		}
	}
	f = threadFields{name: v.field(class, "name", "Ljava/lang/String;"), blocker: v.field(class, "parkBlocker", "Ljava/lang/Object;"),
		eetop: v.field(class, "eetop", "J"), id: v.field(class, "tid", "J"), holder: none}
	if v.r.Major < 19 {
		f.status = v.field(class, "threadStatus", "I")
	} else {
		f.holder = v.field(class, "holder", "Ljava/lang/Thread$FieldHolder;")
		if h := v.ref(obj + f.holder); v.err == nil && h != 0 {
			f.status = v.field(v.class(h), "threadStatus", "I")
		} else {
			return f // not cached
		}
	}
	if f.known = v.err == nil; f.known {
		v.r.mu.Lock()
		v.r.thread = f
		v.r.mu.Unlock()
	}
	return f
}

// class describes the Java class of an object that threads park for.
type class struct {
	name    uint64 // address of its name, to validate a cached entry
	text    string // name in Java's form
	sort    Sort
	owner   uint64 // offset of exclusiveOwnerThread in its objects; none: it records no owner
	state   uint64 // offset of state; none
	long    bool   // state has 64 bits
	readers bool   // the upper half of state counts readers
	stamped bool   // it is StampedLock: see look.stamped
	virtual bool   // it is java.lang.VirtualThread
	carrier uint64 // offset of its carrierThread
}

// parkSorts lists classes of java.util.concurrent whose objects are not locks with an owner, though
// they may inherit from such a class.
var parkSorts = map[string]Sort{
	"java/util/concurrent/Semaphore$Sync":                                       Semaphore,
	"java/util/concurrent/CountDownLatch$Sync":                                  Parked,
	"java/util/concurrent/locks/AbstractQueuedSynchronizer$ConditionObject":     Condition,
	"java/util/concurrent/locks/AbstractQueuedLongSynchronizer$ConditionObject": Condition,
}

// classAt describes the class at addr.
func (v *look) classAt(addr uint64) (c class) {
	r := v.r
	c.name = v.word(addr + r.l.klassName)
	if v.err != nil {
		return c
	}
	r.mu.Lock()
	old, ok := r.classes[addr]
	r.mu.Unlock()
	if ok && old.name == c.name {
		return old
	}
	defer r.firstLook()()
	c.sort, c.owner, c.state = Parked, none, none
	special := false
	at := addr
	for i := range maxSupers {
		p, err := word(r.mem, at+r.l.klassName)
		if err != nil {
			v.err = err
			return c
		}
		name, err := r.symbol(p)
		if err != nil {
			v.err = err
			return c
		}
		if i == 0 {
			c.text = ClassName(name)
		}
		if s, ok := parkSorts[name]; ok {
			c.sort, special = s, true
		}
		switch name {
		case "java/util/concurrent/locks/ReentrantReadWriteLock$Sync":
			c.readers = true
		case "java/util/concurrent/locks/AbstractQueuedSynchronizer":
			c.state = v.field(at, "state", "I")
		case "java/util/concurrent/locks/AbstractQueuedLongSynchronizer":
			c.state, c.long = v.field(at, "state", "J"), true
		case "java/util/concurrent/locks/AbstractOwnableSynchronizer":
			c.owner = v.field(at, "exclusiveOwnerThread", "Ljava/lang/Thread;")
			if !special {
				c.sort = Synchronizer
			}
		case "java/util/concurrent/locks/StampedLock":
			c.sort, c.stamped, c.state = Synchronizer, true, v.field(at, "state", "J")
		case "java/lang/VirtualThread":
			c.virtual, c.carrier = true, v.field(at, "carrierThread", "Ljava/lang/Thread;")
		}
		if at, err = word(r.mem, at+v.o.super); err != nil {
			v.err = err
			return c
		}
		if at == 0 {
			break
		}
	}
	if v.err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.classes) >= maxKept {
			clear(r.classes)
		}
		r.classes[addr] = c
	}
	return c
}

// maxLooks bounds the retries after a collector has interfered.
const maxLooks = 4

// parked returns the object that a thread without a monitor waits for, or Sleeping. os is the
// address of its OSThread. ok is false if the thread is neither parked nor asleep.
func (r *Runtime) parked(thread, os uint64) (m Monitor, ok bool) {
	l := r.l
	if l.osState == none || l.condWait == 0 {
		return m, false
	}
	if os == 0 {
		return m, false
	}
	if s, err := half(r.mem, os+l.osState); err != nil || s != l.condWait {
		return m, false
	}
	unknown := Monitor{Sort: Parked, Unknown: true}
	for range maxLooks {
		v, err := r.look()
		if err != nil || v.ep.active != 0 {
			return unknown, true
		}
		m, ok := v.park(thread)
		if v.err == nil && !ok {
			return m, false
		}
		if errors.Is(v.err, errMoved) || !v.steady() {
			continue
		}
		switch {
		case v.err != nil:
			return unknown, true
		case v.stale:
			m.Unknown, m.Locked, m.Owner, m.Readers = true, false, 0, 0
		case m.Addr != 0:
			m.Addr = r.parks.identify(r, m.Addr, m.class)
		}
		return m, true
	}
	return unknown, true
}

// park reads the object that the thread is parked for. ok is false if it is not parked.
func (v *look) park(thread uint64) (m Monitor, ok bool) {
	l := v.r.l
	spans := []stack.Span{{Addr: thread + l.threadObj, Len: 8}}
	if l.vthread != none {
		spans = append(spans, stack.Span{Addr: thread + l.vthread, Len: 8})
	}
	v.ahead(spans)
	obj := v.handle(thread + l.threadObj)
	if v.err == nil && obj == 0 {
		return m, false
	}
	f := v.threadFields(obj)
	at := obj
	if f.holder != none {
		at = v.ref(obj + f.holder)
	}
	status := v.half(at + f.status)
	switch {
	case v.err != nil:
		return m, false
	case status&statusSleeping != 0:
		return Monitor{Sort: Sleeping}, true
	case status&statusParked == 0:
		return m, false
	}
	m.Sort = Parked
	// A virtual thread that is pinned to its carrier parks the carrier.
	if l.vthread != none {
		if t := v.handle(thread + l.vthread); t != 0 && v.place(t) != v.place(obj) {
			if c := v.classAt(v.class(t)); c.virtual {
				obj = t
			}
		}
	}
	blocker := v.ref(obj + f.blocker)
	if blocker == 0 {
		return m, true
	}
	kl := v.class(blocker)
	c := v.classAt(kl)
	m.Addr, m.Class, m.Sort, m.class = v.place(blocker), c.text, c.sort, kl
	// Check that the thread still parks for the same object.
	blocks := link{cell: obj + f.blocker, to: blocker}
	switch {
	case c.stamped:
		v.stamped(&m, &c, blocker)
		v.again(blocks)
	case c.sort == Synchronizer && c.owner != none:
		v.owner(&m, &c, blocker, blocks)
	default:
		v.again(blocks)
	}
	again := v.ref(obj + f.blocker)
	if v.err == nil && again == 0 {
		return m, false
	}
	if v.err == nil && (v.place(again) != m.Addr || v.class(again) != kl) {
		v.err = errMoved // or it parks for another object by now
	}
	return m, true
}

// Bits of StampedLock's state: WBIT, and RBITS, which counts up to 126 readers
// (src/java.base/share/classes/java/util/concurrent/locks/StampedLock.java of 17, 21 and 25).
const (
	stampedWriter  = 1 << 7
	stampedReaders = 1<<7 - 1
)

// stamped reads the state of the StampedLock at addr. Such a lock belongs to the holder of a stamp and
// records no thread. Its state says whether a writer or readers have it.
func (v *look) stamped(m *Monitor, c *class, addr uint64) {
	state := v.word(addr + c.state)
	if v.err != nil {
		return
	}
	switch readers := state & stampedReaders; {
	case state&stampedWriter != 0:
		m.Locked, m.Why = true, "held by a writer; a StampedLock does not record which thread it is"
	case readers != 0:
		m.Locked, m.Readers = true, int(readers)
	}
}

// owner reads the owner of the lock at addr. The tracer may lose the CPU during the read, and the
// lock may change hands. In that case owner reads again, and checks blocks in the same read.
func (v *look) owner(m *Monitor, c *class, addr uint64, blocks link) {
	links, followed := len(v.links), len(v.followed)
	for range maxLooks {
		if v.ownerOnce(m, c, addr, blocks) || v.err != nil {
			return
		}
		v.links, v.followed = v.links[:links], v.followed[:followed]
	}
	m.Locked, m.Why = true, "it changed hands while it was read"
}

// ownerOnce reports whether nothing changed during the read.
func (v *look) ownerOnce(m *Monitor, c *class, addr uint64, blocks link) (same bool) {
	owns := link{cell: addr + c.owner}
	o := v.ref(owns.cell)
	owns.to = o
	var state, readers uint64
	switch {
	case c.state == none:
	case c.long:
		state = v.word(addr + c.state)
		readers = state >> 32
	default:
		state = uint64(v.half(addr + c.state))
		readers = state >> 16
	}
	switch {
	case v.err != nil:
	case o != 0:
		tid, why := v.threadOf(o)
		v.again(owns, blocks)
		if again := v.ref(owns.cell); v.err != nil || again == 0 || v.place(again) != v.place(o) {
			return false
		}
		m.Locked, m.Owner, m.Why = true, tid, why
		return true
	case c.readers && readers != 0:
		m.Locked, m.Readers = true, int(min(readers, math.MaxInt32))
	case state != 0:
		v.anew()
		return false // the new owner is not recorded yet
	}
	v.again(blocks)
	return true
}

// threadOf returns the TID of a java.lang.Thread. If it is 0, why gives the reason.
func (v *look) threadOf(obj uint64) (tid int32, why string) {
	f := v.threadFields(obj)
	var who string
	if v.r.Major >= 21 {
		if c := v.classAt(v.class(obj)); c.virtual {
			who = v.virtualName(obj)
			if obj = v.ref(obj + c.carrier); v.err == nil && obj == 0 {
				return 0, who + " has it, which no thread runs now"
			}
		}
	}
	addr := v.word(obj + f.eetop)
	if v.err != nil {
		return 0, "its owner cannot be read"
	}
	if o, ok := v.r.threadAt(addr); ok {
		return o.tid, who
	}
	return 0, "its owner has ended"
}

// Mounted returns the name of the virtual thread that a Java thread carries, or "" if it carries
// none or the name cannot be read.
func (r *Runtime) Mounted(thread uint64) string {
	if r.l.vthread == none {
		return ""
	}
	v, err := r.look()
	if err != nil {
		return ""
	}
	obj, t := v.handle(thread+r.l.threadObj), v.handle(thread+r.l.vthread)
	if v.err != nil || t == 0 || v.place(t) == v.place(obj) {
		return ""
	}
	v.threadFields(obj)
	if c := v.classAt(v.class(t)); !c.virtual {
		return ""
	}
	if name := v.virtualName(t); v.err == nil {
		return name
	}
	return ""
}

// virtualName returns the number and name of a virtual thread as text.
func (v *look) virtualName(obj uint64) string {
	f := v.threadFields(obj)
	s := fmt.Sprintf("virtual thread #%d", v.word(obj+f.id))
	if name := v.ref(obj + f.name); name != 0 {
		if t := v.text(name); t != "" {
			s += fmt.Sprintf(" %q", t)
		}
	}
	return s
}

// maxMoved bounds the locks that are tracked across moves.
const maxMoved = 256

// places gives objects that threads park for a constant address, although a collector moves them:
// the first known one.
type places struct {
	list []moved // by last use, the newest last
}

type moved struct{ first, now, class uint64 }

// identify returns the constant address of the object of a class at addr. An unknown address is the
// new place of a known object if the object's old place forwards to it.
func (p *places) identify(r *Runtime, addr, class uint64) uint64 {
	r.mu.Lock()
	list := append([]moved(nil), p.list...)
	r.mu.Unlock()
	found := moved{addr, addr, class}
	for i := len(list) - 1; i >= 0; i-- {
		if x := list[i]; x.now == addr && x.class == class {
			found = x
			break
		} else if x.class == class && i >= len(list)-16 {
			if m, err := word(r.mem, x.now); err == nil && m&3 == 3 && m&^3 == addr {
				found = moved{x.first, addr, class}
				break
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := p.list[:0]
	for _, x := range p.list {
		if x.first != found.first || x.class != found.class {
			out = append(out, x)
		}
	}
	if len(out) >= maxMoved {
		out = out[1:]
	}
	p.list = append(out, found)
	return found.first
}
