//go:build !race

package target

import (
	"runtime"
	"testing"
)

// A tracer that sleeps often keeps a place of the scheduler busy. A garbage collection still ends, and the place
// is free again when it sleeps no more.
func TestAnchor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(anchorPlaces))
	runtime.LockOSThread() // whose signals the tracer masks, and unmasks
	defer runtime.UnlockOSThread()
	tr, err := NewTracer()
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; !anchor.held.Load(); n++ {
		if n == 10_000 {
			t.Fatalf("%d sleeps of 100 µs, and no place is kept", n)
		}
		tr.SleepUntil(monotonic() + 100_000)
	}
	for range 20 {
		runtime.GC() // it returns only once it has stopped every place
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	for anchor.held.Load() { // until anchorSpan has gone by twice; the test's time bounds it
		runtime.Gosched()
	}
}
