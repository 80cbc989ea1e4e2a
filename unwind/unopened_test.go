package unwind

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// lateFile is a file that cannot be opened at first.
type lateFile struct {
	there bool
	opens int
}

func (f *lateFile) Open(stack.Mapping) (io.ReaderAt, error) {
	f.opens++
	if !f.there {
		return nil, errors.New("another file has its name")
	}
	return os.Open("/proc/self/exe")
}

// TestUnopened: the mappings are read again at walks 1, 2, 4 and so on through a file that cannot be
// opened, at least once in maxPause walks, and not any more once it can be.
func TestUnopened(t *testing.T) {
	f := &lateFile{}
	maps := []stack.Mapping{{Start: jitAt, End: jitAt + 0x1000, Exec: true, Inode: 7, Path: "/a.so"},
		{Start: stackAt, End: stackAt + 0x10000, Write: true}}
	s := NewSpace(rule.AMD64, f, ram{{Addr: jitAt, Data: make([]byte, 0x1000)}})
	s.Update(maps)
	w := NewWalker(s)
	r := stack.Regs{PC: jitAt + 0x10}
	r.Set(rule.AMD64.SP(), stackAt)
	var th Thread
	walk := func() (again bool) {
		w.Walk(&th, &r, &Copy{Blocks: []Block{words(stackAt, 0, 0)}})
		if !w.Replaced() {
			return false
		}
		if !s.Unopened(&maps[0]) {
			t.Fatal("the file is not to be tried again")
		}
		s.Update(maps)
		w.Walk(&th, &r, &Copy{Blocks: []Block{words(stackAt, 0, 0)}})
		if w.Replaced() {
			t.Fatal("read again twice for one sample")
		}
		return true
	}
	var at []int
	for i := 1; i <= 5*maxPause; i++ {
		if walk() {
			at = append(at, i)
		}
	}
	if len(at) < 14 || len(at) > 20 || at[0] != 1 || at[1] != 2 || at[2] > 4 {
		t.Errorf("mappings read again at walks %v", at)
	}
	if f.opens != len(at)+1 {
		t.Errorf("%d opens, %d times read again", f.opens, len(at))
	}
	f.there = true
	n := 0
	for ; n <= maxPause && !walk(); n++ {
	}
	if n > maxPause || s.Unopened(&maps[0]) {
		t.Fatalf("not opened after %d walks", n)
	}
	for range 2 * maxPause {
		if walk() {
			t.Fatal("read again although it is open")
		}
	}
}
