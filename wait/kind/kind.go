// Package kind lists the kinds of waits and of locks with their properties. Recordings have their words,
// which never change. The package knows no process: package wait finds out of which kind a wait is, and
// package wait/lock of which a lock.
//
// A new kind is a constant and a row here, and the place that recognizes it.
package kind

// Group is the unit in which waits are summed up: what a thread waits for, in a word.
type Group string

// Groups of waits.
const (
	GroupIdle     Group = "idle"
	GroupLock     Group = "lock"
	GroupGIL      Group = "GIL"
	GroupSleep    Group = "sleep"
	GroupFile     Group = "file"
	GroupPeer     Group = "peer" // the other end of a socket
	GroupPipe     Group = "pipe"
	GroupTerminal Group = "terminal"
	GroupEvent    Group = "event"
	GroupPoll     Group = "descriptors" // any of several descriptors
	GroupChild    Group = "child"
	GroupSignal   Group = "signal"
	GroupIPC      Group = "ipc"
	GroupMemory   Group = "page fault"
	GroupStopped  Group = "stopped"
	GroupCPU      Group = "cpu"
	GroupCall     Group = "call" // another system call
)

// Class is the part of a thread's time that a wait belongs to. Pages get its numbers.
type Class uint8

// Classes of waits.
const (
	ClassNone  Class = iota // on a CPU, waiting for one, or not known
	ClassLock               // a lock, or an interpreter's
	ClassIO                 // a file, a socket, a pipe, a terminal, the disk, memory
	ClassSleep              // time to pass
	ClassOther
	ClassIdle // something to do
)

var classes = map[Group]Class{
	GroupIdle:     ClassIdle,
	GroupLock:     ClassLock,
	GroupGIL:      ClassLock,
	GroupSleep:    ClassSleep,
	GroupFile:     ClassIO,
	GroupPeer:     ClassIO,
	GroupPipe:     ClassIO,
	GroupTerminal: ClassIO,
	GroupEvent:    ClassOther,
	GroupPoll:     ClassIO,
	GroupChild:    ClassOther,
	GroupSignal:   ClassOther,
	GroupIPC:      ClassOther,
	GroupMemory:   ClassIO,
	GroupStopped:  ClassOther,
	GroupCPU:      ClassNone,
	GroupCall:     ClassOther,
}

// Class returns the class of waits of the group. Those without a row are others.
func (g Group) Class() Class {
	if c, ok := classes[g]; ok {
		return c
	}
	return ClassOther
}

// Waker is what ends a wait. It decides when the wait is an idle one.
type Waker uint8

// Wakers.
const (
	WakerCall    Waker = iota // the system call decides
	WakerOwn                  // something specific: such a wait is never idle
	WakerAny                  // something that a program at rest waits for: such a wait is always idle
	WakerTold                 // a notification: a condition variable or the like
	WakerCounted              // a semaphore, or a futex of unknown kind: either may be a lock
	WakerWritten              // a descriptor that another thread writes to
)

// Wait is the sort of a wait.
type Wait string

// Kinds of waits.
const (
	WaitNone     Wait = ""      // the thread does not wait
	WaitLock     Wait = "lock"  // for a lock, whose kind is a Lock
	WaitSleep    Wait = "sleep" // for time to pass
	WaitPoll     Wait = "poll"  // for one of several descriptors
	WaitIdle     Wait = "idle"  // for work: a runtime's own thread
	WaitFile     Wait = "file"
	WaitSocket   Wait = "socket"
	WaitPipe     Wait = "pipe"
	WaitTerminal Wait = "terminal"
	WaitEvent    Wait = "event" // eventfd, timerfd, signalfd, inotify, pidfd
	WaitChild    Wait = "child"
	WaitSignal   Wait = "signal"
	WaitIPC      Wait = "ipc" // System V and POSIX queues and semaphores
	WaitMemory   Wait = "page fault"
	WaitStopped  Wait = "stopped"
	WaitCall     Wait = "call" // another system call
)

type waitTraits struct {
	group Group
	waker Waker
	// file: see File.
	file bool
	// polls: see Polls.
	polls bool
}

var waits = map[Wait]waitTraits{
	WaitNone:     {group: GroupCall, polls: true},
	WaitLock:     {group: GroupLock},
	WaitSleep:    {group: GroupSleep},
	WaitPoll:     {group: GroupPoll, file: true, polls: true},
	WaitIdle:     {group: GroupIdle, waker: WakerAny},
	WaitFile:     {group: GroupFile, file: true},
	WaitSocket:   {group: GroupPeer, file: true, polls: true},
	WaitPipe:     {group: GroupPipe, file: true, polls: true},
	WaitTerminal: {group: GroupTerminal, file: true, polls: true},
	WaitEvent:    {group: GroupEvent, waker: WakerWritten, file: true},
	WaitChild:    {group: GroupChild},
	WaitSignal:   {group: GroupSignal, waker: WakerAny},
	WaitIPC:      {group: GroupIPC},
	WaitMemory:   {group: GroupMemory},
	WaitStopped:  {group: GroupStopped},
	WaitCall:     {group: GroupCall},
}

// Group returns the group that waits of the kind belong to. Words that no kind has are other system calls.
func (w Wait) Group() Group {
	if t, ok := waits[w]; ok {
		return t.group
	}
	return GroupCall
}

// Waker returns what ends a wait of the kind that is for no lock.
func (w Wait) Waker() Waker { return waits[w].waker }

// File reports whether the name of a descriptor, or of its peer, belongs to the wait's description. Otherwise
// the group is enough.
func (w Wait) File() bool { return waits[w].file }

// Polls reports whether a wait in a call for descriptors, such as poll, may be of this kind, and may carry an
// answer to a request.
func (w Wait) Polls() bool { return waits[w].polls }
