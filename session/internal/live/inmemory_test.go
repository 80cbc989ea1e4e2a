package live

import (
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind/rule"
)

// vdsoOf returns the vDSO of a process.
func vdsoOf(t *testing.T, p *target.Process) target.File {
	t.Helper()
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Path == "[vdso]" {
			f, err := p.OpenMapping(m)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Skip("this kernel maps no vDSO")
	return nil
}

// TestInMemory: images of the same content are parsed once, others have their own facts, and beyond a few of them each is parsed
// by itself.
func TestInMemory(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	path := testprog.Build(t, "c/spin", "O2")
	s := NewShared()
	defer s.Close()
	a, _ := programOf(t, path)
	b, m := programOf(t, path)
	first, second := vdsoOf(t, a), vdsoOf(t, b)
	segs, id, err := s.HeadOf(first)
	if err != nil || len(segs) == 0 {
		t.Fatalf("%v, %v", segs, err)
	}
	again, same, err := s.HeadOf(second)
	if err != nil || &again[0] != &segs[0] || same != id {
		t.Errorf("%v, %q, %v", again, same, err)
	}
	content := target.InMemory(first)
	if x, y := s.inMemory(content), s.inMemory(target.InMemory(second)); x != y || len(s.memory) != 1 || x.imageFor(rule.AMD64) != y.imageFor(rule.AMD64) {
		t.Errorf("%d images of one content", len(s.memory))
	}
	f, err := b.OpenMapping(m)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if other, otherID, err := s.HeadOf(f); err != nil || len(other) == 0 || otherID == id || target.InMemory(f) != nil {
		t.Errorf("a file: %v, %q, %v", other, otherID, err)
	}
	for i := range byte(10) {
		s.inMemory([]byte{i})
	}
	if len(s.memory) != maxInMemory || s.inMemory([]byte{99}) != nil || s.inMemory(content) == nil {
		t.Errorf("%d images are kept", len(s.memory))
	}
	for _, x := range []*Shared{NewShared(), nil} { // with others of its own, and without
		if x != nil {
			defer x.Close()
			for i := range byte(maxInMemory) {
				x.inMemory([]byte{i})
			}
		}
		if own, ownID, err := x.HeadOf(first); err != nil || len(own) != len(segs) || ownID != id {
			t.Errorf("parsed by itself: %v, %q, %v", own, ownID, err)
		}
	}
}

// TestSharedVDSO: the vDSO of two processes is one image, with code and tables.
func TestSharedVDSO(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	path := testprog.Build(t, "c/spin", "O2")
	s := NewShared()
	defer s.Close()
	for range 2 {
		p, _ := programOf(t, path)
		x, err := s.New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		x.Preload()
		if errs := x.Space().Errors(); len(errs) > 0 {
			t.Errorf("%v", errs)
		}
		defer x.Release()
	}
	if len(s.memory) != 1 || s.memory[0].image.img == nil {
		t.Errorf("%d images without a file for two processes", len(s.memory))
	}
}
