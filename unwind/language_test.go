package unwind_test

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
)

// Addresses of a made-up process.
const (
	codeStart  = 0x400000
	stackLow   = 0x7ffc_0000_0000
	stackHigh  = stackLow + 0x10000
	heapStart  = 0x10_0000
	heapLength = 0x1000
	opcode     = heapStart + 0x40 // of the function that runs
)

// process is the memory and the file of the process.
type process struct{ reads int }

func (p *process) Open(stack.Mapping) (io.ReaderAt, error) { return nil, io.EOF }

// ReadAt reads the heap: each word is its address with the highest bit set.
func (p *process) ReadAt(b []byte, addr int64) (int, error) {
	if addr < heapStart || addr+int64(len(b)) > heapStart+heapLength || len(b)%8 != 0 {
		return 0, io.EOF
	}
	p.reads++
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(addr)+uint64(i)|1<<63)
	}
	return len(b), nil
}

// tortoise is a runtime whose functions are frames with frame pointers in code of its own. Each keeps a word
// in the heap, and its name in a table.
type tortoise struct {
	unwind.NoPart
	table *managed.Table
	calls []string // in order
}

// tortoiseThread and tortoiseWalk are what it keeps.
type (
	tortoiseThread struct{ plans, walks int }
	tortoiseWalk   struct{ merged []stack.Frame }
)

var (
	tortoises     unwind.Slot[tortoiseThread]
	tortoiseWalks unwind.Slot[tortoiseWalk]
	images        = unwind.Fact[string]{Read: func(io.ReaderAt) (string, error) { return "never: the file cannot be opened", nil }}
)

func (x *tortoise) Plan(th *unwind.Thread, out []rule.Span) []rule.Span {
	x.calls = append(x.calls, "plan")
	tortoises.Of(th).plans++
	return append(out, rule.Span{Addr: opcode, Len: 8})
}

func (x *tortoise) Begin(_ *unwind.Walker, th *unwind.Thread, _ *stack.Regs) {
	x.calls = append(x.calls, "begin")
	tortoises.Of(th).walks++
}

func (x *tortoise) Covers(pc uint64) bool { return pc>>12 == codeStart>>12 }

func (x *tortoise) Step(w *unwind.Walker, pc uint64, exact bool) unwind.Step {
	x.calls = append(x.calls, "step")
	regs, known := w.Registers()
	fp := regs[w.Arch().FP()]
	next, ok1 := w.Word(fp)
	ra, ok2 := w.Word(fp + 8)
	if !ok1 || !ok2 {
		return unwind.Stop(w.Missing(fp))
	}
	w.SetFrames(append(w.Frames(), stack.Frame{PC: pc, CFA: fp + 16, Trust: stack.TrustTable, Exact: exact}))
	regs[w.Arch().FP()], regs[w.Arch().SP()] = next, fp+16
	*known = 1<<w.Arch().FP() | 1<<w.Arch().SP()
	if next == 0 {
		return unwind.Step{End: true}
	}
	return unwind.Step{PC: ra, Trust: stack.TrustTable}
}

func (x *tortoise) Holds(_ *unwind.Walker, try int) unwind.Verdict {
	x.calls = append(x.calls, "holds")
	if try == 1 {
		return unwind.Again
	}
	return unwind.Valid
}

func (x *tortoise) Settle(_ *unwind.Walker, th *unwind.Thread) {
	x.calls = append(x.calls, "settle")
	th.SetTask(stack.Task{ID: 7, State: stack.TaskRunning}, true)
}

func (x *tortoise) Merge(w *unwind.Walker, th *unwind.Thread, frames []stack.Frame) []stack.Frame {
	x.calls = append(x.calls, "merge")
	m := tortoiseWalks.In(w)
	m.merged = m.merged[:0]
	for i, f := range frames {
		if x.Covers(f.PC) {
			name := managed.Key{Name: "outer", File: "a.t", First: 1, Size: 16}
			if i == 0 {
				name.Name = "inner"
			}
			at, _ := x.table.Add(name, func(func(uint64, int) bool) {})
			f.Func, f.PC, f.Kind = at, at, stack.KindPython
		}
		m.merged = append(m.merged, f)
	}
	return m.merged
}

func (x *tortoise) Report(*unwind.Thread) unwind.Report {
	x.calls = append(x.calls, "report")
	return unwind.Report{Locked: true}
}

// TestLanguageFromOutside registers a language that package unwind does not know, and sees its frames,
// task, lock and copied memory in a walk.
func TestLanguageFromOutside(t *testing.T) {
	table := managed.NewTable(managed.Of(stack.KindPython), nil)
	var part *tortoise
	language := &unwind.Language{
		Name:       "Tortoise",
		Properties: unwind.Beside | unwind.CoversCode,
		Find: func(s *unwind.Space, table *managed.Table) (unwind.Stepper, error) {
			for c := range s.Code() {
				if _, err := images.Of(&c); c.Path == "/usr/bin/tortoise" && c.Own && !c.Again && err == unwind.ErrUnopened {
					part = &tortoise{table: table}
					return part, nil
				}
			}
			return nil, nil
		},
	}
	p := &process{}
	s := unwind.NewSpace(rule.AMD64, p, p, language)
	if x, err := s.Follow(language, table); x != nil || err != nil || s.Managed() {
		t.Fatalf("found %v, %v before it is mapped", x, err)
	}
	maps := []stack.Mapping{
		{Start: codeStart, End: codeStart + 0x1000, Exec: true, Inode: 1, Path: "/usr/bin/tortoise"},
		{Start: stackLow, End: stackHigh, Path: "[stack]"},
	}
	s.Update(maps)
	before := s.Runtimes()
	if x, err := s.Follow(language, table); x == nil || x != s.Followed(language) || err != nil || !s.Managed() || s.Runtimes() == before {
		t.Fatalf("followed %v, %v", x, err)
	}

	// Two frames: inner, called by outer.
	data := make([]byte, 0x100)
	const sp = stackHigh - 0x100
	put := func(at, v uint64) { binary.LittleEndian.PutUint64(data[at-sp:], v) }
	put(sp+0x20, sp+0x60)         // frame pointer of outer
	put(sp+0x28, codeStart+0x124) // return address into outer
	put(sp+0x60, 0)               // outer is the first
	regs := stack.Regs{PC: codeStart + 0x10}
	regs.Set(rule.AMD64.SP(), sp)
	regs.Set(rule.AMD64.FP(), sp+0x20)

	w := unwind.NewWalker(s)
	var th, other unwind.Thread
	walk := func() ([]stack.Frame, stack.Reason) {
		var mem unwind.Copy
		for _, b := range w.Plan(&th) {
			block := unwind.Block{Addr: b.Addr, Data: make([]byte, b.Len)}
			if _, err := p.ReadAt(block.Data, int64(b.Addr)); err != nil {
				t.Fatal(err)
			}
			mem.Blocks = append(mem.Blocks, block)
		}
		if len(mem.Blocks) != 1 || w.StackSuffices(&other) {
			t.Fatalf("planned %v", mem.Blocks)
		}
		mem.Blocks = append(mem.Blocks, unwind.Block{Addr: sp, Data: data})
		return w.Walk(&th, &regs, &mem)
	}
	frames, reason := walk()
	var names []string
	for _, f := range frames {
		if fn := table.Find(f.PC); fn != nil {
			names = append(names, fn.Name)
		}
	}
	if !slices.Equal(names, []string{"inner", "outer"}) || len(frames) != 2 || reason != stack.ReasonNone {
		t.Errorf("frames %v, %v, named %v", frames, reason, names)
	}
	want := []string{"plan", "plan", "begin", "step", "step", "holds", "step", "step", "holds", "settle", "merge", "report"}
	if !slices.Equal(part.calls, want) {
		t.Errorf("calls %v, want %v", part.calls, want)
	}
	if now, _, ok := th.Task(); now.ID != 7 || !ok || !th.HoldsGIL() || th.Gaps() {
		t.Errorf("task %v, %v; lock %v; gaps %v", now, ok, th.HoldsGIL(), th.Gaps())
	}
	if a, b := *tortoises.Of(&th), *tortoises.Of(&other); a.plans != 1 || a.walks != 1 || b.plans != 1 || b.walks != 0 {
		t.Errorf("threads have %v and %v", a, b)
	}
	if n := testing.AllocsPerRun(50, func() {
		part.calls = part.calls[:0]
		w.Walk(&th, &regs, &unwind.Copy{Blocks: []unwind.Block{{Addr: sp, Data: data}}})
	}); n > 2 {
		t.Errorf("%v allocations of a walk, besides the copy", n)
	}

	s.Forget()
	frames, _ = w.Walk(&th, &regs, &unwind.Copy{Blocks: []unwind.Block{{Addr: sp, Data: data}}})
	if slices.ContainsFunc(frames, func(f stack.Frame) bool { return f.Kind.Managed() }) || s.Followed(language) != nil || s.Managed() {
		t.Errorf("after Forget: %v", frames)
	}
}

// TestLanguageOrder: languages take part in the order of NewSpace, whatever the order in which they
// are followed.
func TestLanguageOrder(t *testing.T) {
	var order []string
	made := func(name string) *unwind.Language {
		return &unwind.Language{Name: name, Find: func(*unwind.Space, *managed.Table) (unwind.Stepper, error) {
			return &marker{name: name, order: &order}, nil
		}}
	}
	a, b, c := made("a"), made("b"), made("c")
	p := &process{}
	s := unwind.NewSpace(rule.AMD64, p, p, a, b)
	for _, l := range []*unwind.Language{c, b, a} {
		if x, err := s.Follow(l, nil); x == nil || err != nil {
			t.Fatal(x, err)
		}
	}
	w := unwind.NewWalker(s)
	var th unwind.Thread
	w.Plan(&th)
	s.Forget(b)
	w.Plan(&th)
	if want := []string{"a", "b", "c", "a", "c"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

type marker struct {
	unwind.NoPart
	name  string
	order *[]string
}

func (m *marker) Plan(_ *unwind.Thread, out []rule.Span) []rule.Span {
	*m.order = append(*m.order, m.name)
	return out
}

type herald struct{ unwind.NoPart }

func (herald) Aside(*unwind.Thread) (unwind.Aside, bool) { return unwind.Aside{Pointer: 8}, true }

// TestAside: what a language asks for is copied if it is the only one, since all of them would be needed.
func TestAside(t *testing.T) {
	made := func(name string) *unwind.Language {
		return &unwind.Language{Name: name, Find: func(*unwind.Space, *managed.Table) (unwind.Stepper, error) { return herald{}, nil }}
	}
	p := &process{}
	a, b := made("a"), made("b")
	s := unwind.NewSpace(rule.AMD64, p, p, a, b)
	w := unwind.NewWalker(s)
	var th unwind.Thread
	check := func(want bool) {
		t.Helper()
		if x, ok := w.Aside(&th); ok != want || ok && x.Pointer != 8 {
			t.Errorf("%+v, %v, want %v", x, ok, want)
		}
	}
	check(false)
	for i, l := range []*unwind.Language{a, b} {
		if _, err := s.Follow(l, nil); err != nil {
			t.Fatal(err)
		}
		check(i == 0)
	}
}
