package sampler

import "testing"

// TestGuestsShareCPUTime: the CPU time of a host is in the accounts of its guests once, and what it worked before the
// first guest and to begin one is in none.
func TestGuestsShareCPUTime(t *testing.T) {
	cpu := int64(1000)
	x := &host{}
	guest := func() *group {
		g := &group{engine: &fakeEngine{thread: &cpu}, hosted: &hosted{}}
		g.hosted.host.Store(x)
		g.exclude()
		return g
	}
	a := guest()
	cpu += 10
	if n := a.worked(); n != 10 {
		t.Errorf("the first guest worked %d", n)
	}
	cpu += 5 // to begin b
	b := guest()
	cpu += 20
	if n := b.worked(); n != 20 {
		t.Errorf("the second guest worked %d", n)
	}
	if n := a.worked(); n != 0 {
		t.Errorf("the first guest worked %d more", n)
	}
	if sum := a.breath.all.Load() + b.breath.all.Load(); sum != 30 {
		t.Errorf("together %d", sum)
	}
	own := &group{engine: &fakeEngine{thread: &cpu}}
	own.exclude()
	cpu += 7
	if n := own.worked(); n != 7 || own.breath.all.Load() != 7 {
		t.Errorf("a group with its own OS thread worked %d", n)
	}
}
