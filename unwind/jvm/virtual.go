package jvm

// Carrier is where a thread that carries virtual threads says whose turn it is: the
// addresses of two references outside of the heap, to its own java.lang.Thread and to
// that of the one that it runs. They stay as long as the thread. ID is that of the
// number of the one that it runs (25; 0: where that is kept outside of the heap is not known), Near where
// that may be found out (0: it may not): see NumberAt.
type Carrier struct{ Own, Mounted, ID, Near uint64 }

// carrierClass is that of the threads that virtual threads are run by (21 and 25).
const carrierClass = "jdk/internal/misc/CarrierThread"

// Carrier tells it of a JavaThread. carries is false for one that runs no virtual
// threads, and where an error says that this cannot be told now.
func (r *Runtime) Carrier(thread uint64) (c Carrier, carries bool, err error) {
	if r.l.vthread == none {
		return c, false, nil
	}
	v, err := r.look()
	if err != nil {
		return c, false, err
	}
	c = Carrier{Own: v.word(thread + r.l.threadObj), Mounted: v.word(thread + r.l.vthread)}
	if r.l.ownerID != none { // it has monitors by that
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

// Age is how often the garbage collector has run. Up to the next time nothing is moved;
// ok is false where that is not so: for collectors that move objects while threads run.
func (r *Runtime) Age() (age uint32, ok bool) {
	o, err := r.heapOf()
	if err != nil || o.gc.heap == 0 || o.gc.count == none || o.gc.z != zNone || o.gc.forwards {
		return 0, false
	}
	e, err := o.gc.now(r)
	return e.count, err == nil && e.active == 0
}

// Virtual is the virtual thread that mounted means, which was copied from c.Mounted: its
// number and name (id 0: it is none, but own, the thread itself). pinned: nothing was
// moved since then. An error says that it cannot be told any more.
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
	// What the reference means is there as long as the thread runs it.
	if now := v.word(c.Mounted); v.err == nil && (v.stale || now != mounted && !pinned || v.decode(mounted) != m) || !v.steady() {
		return 0, "", errMoved
	}
	return id, name, v.err
}
