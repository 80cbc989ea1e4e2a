package target

import "testing"

// TestSpins: after several spins without success, only some stops are awaited by a spin; after a
// successful one, all are.
func TestSpins(t *testing.T) {
	var p spins
	spun := func(after int64, inTime bool) bool {
		ns := p.next(DefaultSpin)
		p.note(after, inTime)
		return ns == DefaultSpin
	}
	for i := range spinMisses {
		if !spun(0, false) {
			t.Fatalf("no spin after %d stops that were late", i)
		}
	}
	for i := range 3 * spinAgain {
		if got, want := spun(DefaultSpin+1, true), i%spinAgain == spinAgain-1; got != want {
			t.Fatalf("stop %d: spun for %v, not %v", i, got, want)
		}
	}
	for i := range 3 * spinAgain { // short if awaited by sleeping: both are on one CPU
		ns := p.next(DefaultSpin)
		after := int64(DefaultSpin + 1)
		if ns < DefaultSpin {
			after = DefaultSpin / 3
		}
		p.note(after, true)
		if got, want := ns == DefaultSpin, i%spinAgain == spinAgain-1; got != want {
			t.Fatalf("stop %d on the stopper's CPU: spun for %v, not %v", i, got, want)
		}
	}
	for p.next(DefaultSpin) < DefaultSpin {
	}
	p.note(DefaultSpin, true)
	for range 2 {
		if !spun(DefaultSpin, true) {
			t.Fatal("no spin where it is worth while")
		}
	}
}
