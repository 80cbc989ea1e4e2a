package unwind

import (
	"debug/elf"
	"io"
	"os"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// sharing hands the same Image to all Spaces.
type sharing struct {
	opener
	path string
	img  *Image
}

func (s sharing) Image(m stack.Mapping) *Image {
	if m.Path != s.path {
		return nil
	}
	return s.img
}

// readCounter counts the reads of a file.
type readCounter struct {
	io.ReaderAt
	reads int
}

func (c *readCounter) ReadAt(b []byte, off int64) (int, error) {
	c.reads++
	return c.ReaderAt.ReadAt(b, off)
}

// TestSharedImage: two Spaces with the same file at different addresses find the same functions,
// and the second one does not read the file.
func TestSharedImage(t *testing.T) {
	const path = "/lib64/ld-linux-x86-64.so.2"
	file, err := os.Open(path)
	need(t, "gcc", err)
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	syms, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var fn elf.Symbol
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF && s.Size > 32 {
			fn = s
		}
	}
	if fn.Value == 0 {
		t.Fatalf("%s exports no function", path)
	}
	counted := &readCounter{ReaderAt: file}
	files := sharing{path: path, img: NewImage(counted, rule.AMD64)}
	files.img.Share()
	reads := 0
	for i, base := range []uint64{0x10000000, 0x7f0000000000} {
		s := NewSpace(rule.AMD64, files, nil)
		var maps []stack.Mapping
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
				at := base + p.Vaddr&^(smallPage-1)
				maps = append(maps, stack.Mapping{Start: at, End: at + p.Filesz, Off: p.Off &^ (smallPage - 1), Inode: 1, Exec: true, Path: path})
			}
		}
		s.Update(maps)
		if err := s.Preload(); err != nil {
			t.Fatal(err)
		}
		regs := stack.Regs{PC: base + fn.Value + 4}
		regs.Set(rule.AMD64.SP(), stackAt)
		mem := Copy{Blocks: []Block{{Addr: stackAt, Data: make([]byte, 64)}}}
		w := NewWalker(s)
		frames, _ := w.Walk(&Thread{}, &regs, &mem)
		if len(frames) == 0 || frames[0].Func != base+fn.Value {
			t.Errorf("base %#x: %+v, want function %s at %#x", base, frames, fn.Name, base+fn.Value)
		}
		if i == 0 {
			reads = counted.reads
		} else if counted.reads != reads {
			t.Errorf("%d reads for the first Space, %d more for the second", reads, counted.reads-reads)
		}
	}
}

// TestSharedRules: what a caller does with a rule does not change the kept one, and there are at most maxRules.
func TestSharedRules(t *testing.T) {
	r := rules{of: map[uint64]knownRule{}}
	found := rule.Rule{Lo: 1, Hi: 9, CFAOff: 16, Exprs: [][]byte{{1, 2}}}
	r.add(4, true, &found)
	found.Exprs[0], found.CFAOff = []byte{7}, 24
	var out rule.Rule
	for range 2 {
		own, ok := r.find(4, &out)
		if !ok || !own || out.Lo != 1 || out.Hi != 9 || out.CFAOff != 16 || len(out.Exprs) != 1 || string(out.Exprs[0]) != "\x01\x02" {
			t.Fatalf("%v, %v, %+v", own, ok, out)
		}
		out.Exprs[0], out.CFAOff = nil, 0
	}
	if _, ok := r.find(5, &out); ok {
		t.Error("a rule for an address that was not added")
	}
	for i := range uint64(2 * maxRules) {
		r.add(100+i, false, &found)
	}
	if n := len(r.of); n == 0 || n > maxRules {
		t.Errorf("%d rules are kept, at most %d expected", n, maxRules)
	}
}

// TestHereFirst: a walker knows the mappings before its first walk. A thread may come to it with
// frames that another walker has found.
func TestHereFirst(t *testing.T) {
	s := NewSpace(rule.AMD64, opener{}, nil)
	s.Update([]stack.Mapping{{Start: 0x1000, End: 0x2000, Exec: true}})
	era := s.snap.Load().regions[0].era
	w := NewWalker(s)
	if !w.Here(&stack.Frame{PC: 0x1800, Era: era}) || w.Here(&stack.Frame{PC: 0x2800, Era: era}) {
		t.Error("frames in and outside of the mapping are not distinguished")
	}
}
