package ruby

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Sort is the kind of a thread's wait.
type Sort uint8

// The kinds of waits.
const (
	Locking   Sort = iota // a Mutex; Monitor uses one too
	Waiting               // a ConditionVariable
	Popping               // an element of a Queue or SizedQueue
	Pushing               // room in a SizedQueue
	Joining               // the end of a thread
	Sleeping              // Kernel#sleep
	Suspended             // Mutex#sleep, which no ConditionVariable called
)

// Wait is what a thread of Ruby waits for, at one moment.
type Wait struct {
	Sort   Sort
	Addr   uint64 // of the object; 0: none
	Class  string // of the object, without subclasses: "Thread::Queue"
	Locked bool   // a Mutex that a Fiber holds, or a thread that has not ended
	Holder int32  // TID of the thread that holds the Mutex or that is waited for; 0: none or unknown
}

// Statuses of a thread: enum rb_thread_status of vm_core.h.
const (
	stopped        = 1
	stoppedForever = 2
	statusMask     = 3
)

// Objects of a data type: struct RTypedData of include/ruby/internal/core/rtypeddata.h.
const (
	typeData     = 0x0c
	dataType     = 16 // rb_data_type_t, whose first field is its name
	dataFlag     = 24 // typed_flag
	dataPtr      = 32
	dataHead     = 40 // followed by the data of an embedded object, from 3.3 on
	dataEmbedded = 2
	maxDataFlag  = 3
	maxTypeName  = 16 // longer than the names in classes
)

// classes maps the names of the data types that threads wait for (thread_sync.c and vm.c) to classes.
var classes = map[string]string{
	"mutex": "Thread::Mutex", "condvar": "Thread::ConditionVariable", "queue": "Thread::Queue",
	"sized_queue": "Thread::SizedQueue", "VM/thread": "Thread",
}

// frameSelf is rb_control_frame_struct.self, and envEntry the method entry of a method in C, below the
// flags to which its ep points (vm_push_frame in vm_insnhelper.c).
const (
	frameSelf = 24
	envEntry  = 16
)

// Wanted returns what the thread s waits for. ok is false if it does not wait in one of Ruby's own calls,
// if the calls changed during the read, or if the thread's tables are not known (3.2).
//
// A thread that waits for a Mutex records it (locking_mutex; do_mutex_lock in thread_sync.c). Other waits
// are known by the innermost method and its receiver.
func (r *Runtime) Wanted(mem io.ReaderAt, s State) (w Wait, ok bool) {
	if r.l.lockingMutex == none {
		return w, false
	}
	mutex, err := word(mem, s.Addr+r.l.lockingMutex)
	if err != nil {
		return w, false
	}
	if pointer(mutex) {
		if name, err := r.dataType(mem, mutex); err != nil || name != "mutex" {
			return w, false
		}
		w = Wait{Sort: Locking, Addr: mutex, Class: classes["mutex"]}
		w.Locked, w.Holder = r.MutexOwner(mem, mutex)
		again, err := word(mem, s.Addr+r.l.lockingMutex)
		return w, err == nil && again == mutex
	}
	var status [1]byte
	if read(mem, status[:], s.Addr+r.l.status) != nil {
		return w, false
	}
	if k := status[0] & statusMask; k != stopped && k != stoppedForever {
		return w, false
	}
	ec, err := word(mem, s.Addr+r.l.threadEC)
	if err != nil {
		return w, false
	}
	frame, err := word(mem, ec+ecFrame)
	if err != nil {
		return w, false
	}
	if w, ok = r.called(mem, frame); !ok {
		return w, false
	}
	again, err := word(mem, ec+ecFrame)
	return w, err == nil && again == frame
}

// called returns the wait of a thread whose innermost frame is at addr.
func (r *Runtime) called(mem io.ReaderAt, addr uint64) (w Wait, ok bool) {
	method, self, err := r.method(mem, addr)
	if err != nil {
		return w, false
	}
	name, err := r.dataType(mem, self)
	if err != nil {
		name = "" // no object, or one of another kind: Kernel#sleep has any receiver
	}
	w = Wait{Addr: self, Class: classes[name]}
	switch {
	case method == "sleep" && name == "mutex":
		w.Sort = Suspended
		// ConditionVariable#wait calls it.
		if method, self, err = r.method(mem, addr+r.l.frameSize); err == nil && method == "wait" {
			if name, err = r.dataType(mem, self); err == nil && name == "condvar" {
				return Wait{Sort: Waiting, Addr: self, Class: classes[name]}, true
			}
		}
	case method == "sleep":
		return Wait{Sort: Sleeping}, true
	case (method == "pop" || method == "shift" || method == "deq") && (name == "queue" || name == "sized_queue"):
		w.Sort = Popping
	case (method == "push" || method == "enq" || method == "<<") && name == "sized_queue":
		w.Sort = Pushing
	case (method == "join" || method == "value") && name == "VM/thread":
		w.Sort = Joining
		if th, err := word(mem, self+dataPtr); err == nil {
			if of, err := r.state(mem, th); err == nil {
				w.Locked, w.Holder = true, of.TID
			}
		}
	default:
		return w, false
	}
	return w, true
}

var errNoMethod = errors.New("no frame of a method")

// method returns the name, without its class, and the receiver of the method whose control frame is at
// addr: a method in C, or one in Ruby (that of a builtin, which runs C itself).
func (r *Runtime) method(mem io.ReaderAt, addr uint64) (name string, self uint64, err error) {
	var b [frameEP + 8]byte
	if err := read(mem, b[:], addr); err != nil {
		return "", 0, err
	}
	self = le(b[:], frameSelf)
	if iseq := le(b[:], frameISeq); iseq != 0 {
		_, body, err := r.body(mem, iseq)
		if err != nil {
			return "", 0, err
		}
		if le32(body, bodyType) != iseqMethod {
			return "", 0, errNoMethod
		}
		name, err = r.stringOf(mem, le(body, bodyLabel))
		return name, self, err
	}
	var env [envEntry + 8]byte
	if err := read(mem, env[:], le(b[:], frameEP)-envEntry); err != nil {
		return "", 0, err
	}
	if le(env[:], envEntry)&magicMask != magicCFunc {
		return "", 0, errNoMethod
	}
	f, err := r.cFunc(mem, le(env[:], 0))
	if err != nil {
		return "", 0, err
	}
	return f.Label[strings.LastIndexAny(f.Label, "#.")+1:], self, nil
}

// dataType returns the name of the data type of an object.
func (r *Runtime) dataType(mem io.ReaderAt, v uint64) (string, error) {
	var b [dataHead]byte
	if !pointer(v) {
		return "", fmt.Errorf("no object at %#x", v)
	}
	if err := read(mem, b[:], v); err != nil {
		return "", err
	}
	if flag := le(b[:], dataFlag); le(b[:], 0)&typeMask != typeData || flag == 0 || flag > maxDataFlag {
		return "", fmt.Errorf("the object at %#x has no data type", v)
	}
	at, err := word(mem, le(b[:], dataType))
	if err != nil {
		return "", err
	}
	var name [maxTypeName]byte
	if err := read(mem, name[:], at); err != nil {
		return "", err
	}
	n := bytes.IndexByte(name[:], 0)
	if n < 0 {
		return "", nil // longer than those of classes
	}
	return string(name[:n]), nil
}

// MutexOwner returns the holder of the Mutex at addr: rb_mutex_t (thread_sync.c) begins with the Fiber that
// holds it. tid is 0 if that is not known, for example because it changed during the read.
func (r *Runtime) MutexOwner(mem io.ReaderAt, addr uint64) (locked bool, tid int32) {
	if name, err := r.dataType(mem, addr); err != nil || name != "mutex" {
		return false, 0
	}
	var b [dataHead]byte
	if read(mem, b[:], addr) != nil {
		return false, 0
	}
	at := le(b[:], dataPtr)
	if le(b[:], dataFlag)&dataEmbedded != 0 {
		at = addr + dataHead
	}
	fiber, err := word(mem, at)
	if err != nil || fiber == 0 {
		return false, 0
	}
	th, err := word(mem, fiber+fiberEC+ecThread)
	if err != nil {
		return true, 0
	}
	s, err := r.state(mem, th)
	if again, e := word(mem, at); err != nil || e != nil || again != fiber {
		return true, 0
	}
	return true, s.TID
}
