package kind

// Lock is the sort of object that a thread waits for in a futex or the like.
type Lock string

// Kinds of locks.
const (
	LockNone      Lock = ""      // the wait is for something else
	LockUnknown   Lock = "futex" // not recognised
	LockMutex     Lock = "mutex"
	LockCond      Lock = "condition variable"
	LockSemaphore Lock = "semaphore"
	LockRW        Lock = "rwlock"
	LockBarrier   Lock = "barrier"
	LockJoin      Lock = "join"
	LockOnce      Lock = "once"
	LockPark      Lock = "park"  // a parked thread that waits for another thread to unpark it
	LockEvent     Lock = "event" // a result or a count that other threads complete: C++'s futures and latches
	LockStdio     Lock = "stdio" // the lock of a C stream
	LockLibc      Lock = "libc"  // a lock inside libc
	LockGoRuntime Lock = "go runtime"
	// LockGoScheduler is not a lock: the goroutine that is bound to the thread can go on, once the scheduler hands it over.
	LockGoScheduler Lock = "go scheduler"
	LockChannel     Lock = "channel"    // Go's
	LockSelect      Lock = "select"     // Go's, on several channels
	LockWaitGroup   Lock = "wait group" // Go's
	LockSleep       Lock = "sleep"      // not a lock: for time to pass
	LockPoll        Lock = "poll"       // a goroutine's, for a descriptor
	LockIdle        Lock = "idle"       // not a lock: a runtime's own thread has nothing to do
	LockSafepoint   Lock = "safepoint"  // the Java virtual machine has stopped its threads
	LockGIL         Lock = "GIL"        // an interpreter's global lock
	LockMonitor     Lock = "monitor"    // of a Java object
	// LockSynchronizer is a lock of java.util.concurrent that keeps its owner.
	LockSynchronizer Lock = "synchronizer"
	// LockClassInit is the initialization of a Java class by another thread. The lock's type is the class.
	LockClassInit Lock = "class initialization"
	LockFile      Lock = "file" // flock, fcntl
)

type lockTraits struct {
	wait  Wait  // "": WaitLock
	group Group // "": GroupLock
	waker Waker // WakerCall: WakerOwn
	// shares: it has no holders; see Excludes.
	shares bool
	// inner: see Inner.
	inner bool
	// runtime: a managed runtime knows the holder, which no word of the lock shows.
	runtime bool
	// single: a process has one, whose address says nothing.
	single bool
	// mode: its type is what the thread requests, not a property of the lock.
	mode bool
}

var locks = map[Lock]lockTraits{
	LockNone:         {},
	LockUnknown:      {waker: WakerCounted, inner: true},
	LockMutex:        {inner: true},
	LockCond:         {waker: WakerTold, shares: true},
	LockSemaphore:    {waker: WakerCounted, inner: true},
	LockRW:           {inner: true, mode: true},
	LockBarrier:      {shares: true},
	LockJoin:         {shares: true},
	LockOnce:         {inner: true},
	LockPark:         {waker: WakerTold, shares: true},
	LockEvent:        {shares: true},
	LockStdio:        {},
	LockLibc:         {inner: true},
	LockGoRuntime:    {waker: WakerTold, shares: true},
	LockGoScheduler:  {waker: WakerTold, shares: true, single: true},
	LockChannel:      {shares: true},
	LockSelect:       {shares: true},
	LockWaitGroup:    {shares: true},
	LockSleep:        {wait: WaitSleep, shares: true},
	LockPoll:         {wait: WaitPoll, shares: true},
	LockIdle:         {wait: WaitIdle},
	LockSafepoint:    {shares: true},
	LockGIL:          {group: GroupGIL, single: true},
	LockMonitor:      {runtime: true},
	LockSynchronizer: {runtime: true},
	LockClassInit:    {runtime: true},
	LockFile:         {},
}

// Wait returns the kind of a wait for a lock of the kind: a goroutine does not always wait for a lock.
func (l Lock) Wait() Wait {
	if w := locks[l].wait; w != "" {
		return w
	}
	return WaitLock
}

// Group returns the group of waits for a lock of the kind.
func (l Lock) Group() Group {
	if g := locks[l].group; g != "" {
		return g
	}
	return GroupLock
}

// Waker returns the way in which a wait for the lock ends: WakerCall for LockNone.
func (l Lock) Waker() Waker {
	if w := locks[l].waker; w != WakerCall || l == LockNone {
		return w
	}
	return WakerOwn
}

// Excludes reports whether the lock has holders. Condition variables, barriers, joins and channels, where
// threads wait for a notification, have none. A word that no kind has may be such a lock.
func (l Lock) Excludes() bool { return !locks[l].shares }

// Inner reports whether a thread that holds the lock is still inside the function that acquired it: stacks then
// show the holder.
func (l Lock) Inner() bool { return locks[l].inner }

// Runtime reports whether a managed runtime knows the holder of the lock, which no word of it shows.
func (l Lock) Runtime() bool { return locks[l].runtime }

// Single reports whether a process has one such lock, whose address says nothing.
func (l Lock) Single() bool { return locks[l].single }

// Mode reports whether the type in a description of the lock is what the thread requests, reading or writing,
// and not a property of the lock.
func (l Lock) Mode() bool { return locks[l].mode }
