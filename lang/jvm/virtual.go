package jvm

// Carrier locates the current virtual thread of a carrier thread. Own and Mounted are the addresses
// of two references outside of the heap, to the thread's own java.lang.Thread and to the virtual
// thread that it runs. They stay valid as long as the thread. ID is the address of that virtual
// thread's number (25; 0: no known place outside of the heap). Near is where to search for the
// number (0: nowhere): see NumberAt.
type Carrier struct{ Own, Mounted, ID, Near uint64 }

// carrierClass is the class of the threads that run virtual threads (21 and 25).
const carrierClass = "jdk/internal/misc/CarrierThread"

// Carrier returns the Carrier of a JavaThread. carries is false for a thread that runs no virtual
// threads, and if an error says that this is unknown now.
func (r *Runtime) Carrier(thread uint64) (c Carrier, carries bool, err error) {
	if r.l.vthread == none {
		return c, false, nil
	}
	v, err := r.look()
	if err != nil {
		return c, false, err
	}
	c = Carrier{Own: v.word(thread + r.l.threadObj), Mounted: v.word(thread + r.l.vthread)}
	if r.l.ownerID != none { // its monitors are identified by that number
		c.ID = thread + r.l.ownerID
	} else {
		c.Near = thread
	}
	if v.err != nil || c.Own == 0 || c.Mounted == 0 {
		return c, false, v.err
	}
	own := v.decode(v.word(c.Own))
	class := v.class(own)
	if v.err == nil && (v.stale || v.decode(v.word(c.Own)) != own) || !v.steady() {
		return c, false, errMoved
	}
	return c, v.err == nil && r.classNamed(v.o, class, carrierClass) != 0, v.err
}

// Age returns the number of garbage collections so far. Nothing is moved until the next one. ok is
// false for collectors that move objects concurrently.
func (r *Runtime) Age() (age uint32, ok bool) {
	o, err := r.heapOf()
	if err != nil || o.gc.heap == 0 || o.gc.count == none || o.gc.z != zNone || o.gc.forwards {
		return 0, false
	}
	e, err := o.gc.now(r)
	return e.count, err == nil && e.active == 0
}

// Virtual returns the number and name of the virtual thread that mounted, a copy of the word at
// c.Mounted, refers to. id 0 means none: the word was own, the thread itself. pinned says that
// nothing was moved since the copy. An error says that the virtual thread cannot be identified any
// more.
func (r *Runtime) Virtual(c Carrier, own, mounted uint64, pinned bool) (id uint64, name string, err error) {
	v, err := r.look()
	if err != nil {
		return 0, "", err
	}
	o, m := v.decode(own), v.decode(mounted)
	if v.err != nil || m == 0 || o == m {
		return 0, "", v.err
	}
	v.threadFields(o)
	if class := v.classAt(v.class(m)); v.err == nil && !class.virtual {
		return 0, "", errMoved
	}
	f := v.threadFields(m)
	id = v.word(m + f.id)
	if text := v.ref(m + f.name); text != 0 {
		name = v.text(text)
	}
	// The referenced object exists as long as the thread runs it.
	if now := v.word(c.Mounted); v.err == nil && (v.stale || now != mounted && !pinned || v.decode(mounted) != m) || !v.steady() {
		return 0, "", errMoved
	}
	return id, name, v.err
}
