package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// ram is a target's memory.
type ram []Block

func (r ram) ReadAt(p []byte, addr int64) (int, error) {
	for _, b := range r {
		if o := uint64(addr) - b.Addr; o < uint64(len(b.Data)) {
			if n := copy(p, b.Data[o:]); n < len(p) {
				return n, io.EOF
			}
			return len(p), nil
		}
	}
	return 0, errors.New("unmapped")
}

func words(addr uint64, v ...uint64) Block {
	b := Block{Addr: addr}
	for _, w := range v {
		b.Data = binary.LittleEndian.AppendUint64(b.Data, w)
	}
	return b
}

const (
	jitAt   = 0x100000
	stackAt = 0x800000
)

// jit walks code without a file. The code is at jitAt+0x10, and pc is an offset into it.
func jit(t *testing.T, arch rule.Arch, code []byte, pc uint64, regs map[int]uint64, stk ...uint64) ([]stack.Frame, stack.Reason) {
	t.Helper()
	image := make([]byte, 0x1000)
	copy(image[0x10:], code)
	s := NewSpace(arch, hostFiles{}, ram{{Addr: jitAt, Data: image}})
	s.Update([]stack.Mapping{{Start: jitAt, End: jitAt + 0x1000, Exec: true}, {Start: stackAt, End: stackAt + 0x10000, Write: true}})
	r := stack.Regs{PC: jitAt + 0x10 + pc}
	r.Set(arch.SP(), stackAt)
	for i, v := range regs {
		r.Set(i, v)
	}
	var th Thread
	frames, reason := NewWalker(s).Walk(&th, &r, &Copy{Blocks: []Block{words(stackAt, stk...)}})
	return slices.Clone(frames), reason
}

func pcs(frames []stack.Frame) (p []uint64) {
	for _, f := range frames[1:] {
		if f.Kind != stack.KindError {
			p = append(p, f.PC-jitAt)
		}
	}
	return p
}

// TestFramePointer walks code without tables, at PCs where the frame pointer is the function's own
// and where it is not.
func TestFramePointer(t *testing.T) {
	fp := uint64(stackAt + 0x20)
	chain := []uint64{0, 0, 0, 0, stackAt + 0x40, jitAt + 0x200, 0, 0, 0, 0}
	with := func(i int, v ...uint64) []uint64 {
		c := slices.Clone(chain)
		copy(c[i:], v)
		return c
	}
	le := func(v ...uint32) (b []byte) {
		for _, w := range v {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		return b
	}
	for _, c := range []struct {
		name   string
		arch   rule.Arch
		code   []byte
		pc     uint64
		regs   map[int]uint64
		stack  []uint64
		want   []uint64
		reason stack.Reason
	}{
		{"body", rule.AMD64, []byte{0x90, 0x90, 0x90}, 1, map[int]uint64{6: fp}, chain, []uint64{0x200}, stack.ReasonNone},
		{"entry", rule.AMD64, []byte{0x55, 0x48, 0x89, 0xe5}, 0, map[int]uint64{6: fp}, with(0, jitAt+0x100), []uint64{0x100, 0x200}, stack.ReasonNone},
		{"endbr", rule.AMD64, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5}, 0, map[int]uint64{6: fp}, with(0, jitAt+0x100), []uint64{0x100, 0x200}, stack.ReasonNone},
		{"pushed", rule.AMD64, []byte{0x55, 0x48, 0x89, 0xe5}, 1, map[int]uint64{6: 0x123}, with(0, fp, jitAt+0x100), []uint64{0x100, 0x200}, stack.ReasonNone},
		{"ret", rule.AMD64, []byte{0x5d, 0xc3}, 1, map[int]uint64{6: fp}, with(0, jitAt+0x100), []uint64{0x100, 0x200}, stack.ReasonNone},
		{"unknown", rule.AMD64, []byte{0x90, 0x90}, 1, nil, chain, nil, stack.ReasonRegister},
		{"odd", rule.AMD64, []byte{0x90, 0x90}, 1, map[int]uint64{6: fp + 1}, chain, nil, stack.ReasonNoRule},
		{"below", rule.AMD64, []byte{0x90, 0x90}, 1, map[int]uint64{6: stackAt - 16}, chain, nil, stack.ReasonNoRule},
		{"far", rule.AMD64, []byte{0x90, 0x90}, 1, map[int]uint64{6: stackAt + maxFrame + 8}, chain, nil, stack.ReasonNoRule},
		{"short", rule.AMD64, []byte{0x90, 0x90}, 1, map[int]uint64{6: stackAt + 0x1000}, chain, nil, stack.ReasonShort},
		{"data", rule.AMD64, []byte{0x90, 0x90}, 1, map[int]uint64{6: fp}, with(5, stackAt), nil, stack.ReasonNoRule},
		{"cycle", rule.AMD64, []byte{0x90, 0x90}, 1, map[int]uint64{6: fp}, with(4, fp), []uint64{0x200}, stack.ReasonNoRule},
		// After "call rel32" at 0x10: a return address that the scan finds.
		{"scan", rule.AMD64, []byte{0xe8, 0, 0, 0, 0, 0x90, 0x90}, 6, map[int]uint64{6: 1}, with(0, jitAt+0x15), []uint64{0x15}, stack.ReasonNoRule},
		{"noscan", rule.AMD64, []byte{0x90, 0x90, 0, 0, 0, 0x90, 0x90}, 6, map[int]uint64{6: 1}, with(0, jitAt+0x15), nil, stack.ReasonNoRule},
		{"body", rule.ARM64, le(0xd503201f, 0xd503201f), 4, map[int]uint64{29: fp}, chain, []uint64{0x200}, stack.ReasonNone},
		{"signed", rule.ARM64, le(0xd503201f, 0xd503201f), 4, map[int]uint64{29: fp}, with(5, jitAt+0x200|0x2a<<48), []uint64{0x200}, stack.ReasonNone},
		{"entry", rule.ARM64, le(0xa9be7bfd, 0x910003fd), 0, map[int]uint64{29: fp, 30: jitAt + 0x100}, chain, []uint64{0x100, 0x200}, stack.ReasonNone},
		{"pushed", rule.ARM64, le(0xa9be7bfd, 0x910003fd), 4, map[int]uint64{29: 0x123}, with(0, fp, jitAt+0x100), []uint64{0x100, 0x200}, stack.ReasonNone},
		{"ret", rule.ARM64, le(0xa8c27bfd, 0xd65f03c0), 4, map[int]uint64{29: fp, 30: jitAt + 0x100}, chain, []uint64{0x100, 0x200}, stack.ReasonNone},
		{"link", rule.ARM64, le(0xd503201f, 0xd503201f), 4, map[int]uint64{29: 1, 30: jitAt + 0x100}, chain, []uint64{0x100}, stack.ReasonNoRule},
	} {
		t.Run(c.arch.String()+"/"+c.name, func(t *testing.T) {
			frames, reason := jit(t, c.arch, c.code, c.pc, c.regs, c.stack...)
			// The chain ends in a frame of zeros, which has no code in a file. The walk ends there, or
			// reports that it has no rule.
			if got := pcs(frames); !slices.Equal(got, c.want) || reason != c.reason {
				t.Errorf("got %#x, %v; want %#x, %v", got, reason, c.want, c.reason)
			}
			for _, f := range frames[1:] {
				scan := c.name == "scan" || c.name == "link"
				if f.Kind != stack.KindError && (f.Trust == stack.TrustScan) != scan || f.Trust == stack.TrustCFI {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestNullCall walks a thread that called address 0. No code is mapped there, and the walk must not
// invent frames.
func TestNullCall(t *testing.T) {
	frames, reason := jit(t, rule.AMD64, nil, ^uint64(jitAt+0x10)+1, map[int]uint64{6: stackAt + 0x20}, jitAt+0x100)
	if len(frames) != 2 || reason != stack.ReasonUnmapped || !frames[0].Exact || frames[0].PC != 0 {
		t.Errorf("%v %+v", reason, frames)
	}
}

func TestBias(t *testing.T) {
	m := &module{Image: &Image{progs: []elf.ProgHeader{
		{Off: 0, Vaddr: 0x400000, Filesz: 0x1f80, Flags: elf.PF_R},
		{Off: 0x1f80, Vaddr: 0x402f80, Filesz: 0x3000, Flags: elf.PF_R | elf.PF_X}, // shares a page of the file
		{Off: 0x4f80, Vaddr: 0x406f80, Filesz: 0x1000, Flags: elf.PF_R | elf.PF_W},
	}}}
	for _, c := range []struct {
		name string
		r    region
		want uint64
		ok   bool
	}{
		{"first", region{start: 0x400000, off: 0}, 0, true},
		{"code", region{start: 0x402000, off: 0x1000, exec: true}, 0, true},
		{"code, moved", region{start: 0x7f0000002000, off: 0x1000, exec: true}, 0x7f0000002000 - 0x402000, true},
		{"a part of the code", region{start: 0x7f0000000000, off: 0x3000, exec: true}, 0x7f0000000000 - 0x404000, true},
		{"read-only page before it", region{start: 0x401000, off: 0x1000}, 0, true},
		{"behind the end", region{start: 0x10000, off: 0x9000, exec: true}, 0, false},
	} {
		if got, ok := m.bias(&c.r); got != c.want || ok != c.ok {
			t.Errorf("%s: got %#x, %v; want %#x, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// counting counts calls of Open.
type counting struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counting) Open(m stack.Mapping) (io.ReaderAt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[m.Path]++
	if m.Path == "gone" {
		return nil, errors.New("no such file")
	}
	return hostFiles{}.Open(m)
}

// TestUpdate replaces mappings. Files stay loaded, rules are dropped only where code was replaced,
// and code that was mapped later is walked at the second try.
func TestUpdate(t *testing.T) {
	tc := toolchain{cc: "gcc", arch: rule.AMD64, flags: []string{"-O2"}}
	d := runDump(t, tc, compile(t, tc, "chain.c"), "sorted")
	files := &counting{n: map[string]int{}}
	s := NewSpace(tc.arch, files, d)
	some := slices.DeleteFunc(slices.Clone(d.maps), func(m stack.Mapping) bool { return m.Path == "/usr/lib/x86_64-linux-gnu/libc.so.6" })
	if len(some) == len(d.maps) {
		need(t, "libc-amd64", errors.New("the C library has another name here"))
	}
	s.Update(some)
	w := NewWalker(s)
	var th Thread
	frames, reason := w.Walk(&th, &d.regs, &d.mem)
	if reason != stack.ReasonUnmapped || len(frames) != 5 {
		t.Fatalf("without libc: %v, %d frames", reason, len(frames))
	}
	epoch := s.snap.Load().epoch
	s.Update(d.maps)
	if frames, reason = w.Walk(&th, &d.regs, &d.mem); reason != stack.ReasonNone || len(frames) < 8 {
		t.Fatalf("with libc: %v, %d frames", reason, len(frames))
	}
	if s.snap.Load().epoch != epoch || w.cache.used == 0 {
		t.Error("rules were forgotten because code was added")
	}
	whole := slices.Clone(frames)
	gone := append(slices.Clone(d.maps), stack.Mapping{Start: 1 << 40, End: 1<<40 + 4096, Inode: 99, Exec: true, Path: "gone"})
	s.Update(gone)
	if err := s.Preload(); err == nil || len(s.Errors()) != 1 {
		t.Errorf("Preload: %v, %v", err, s.Errors())
	}
	for path, n := range files.n {
		if n != 1 {
			t.Errorf("%s opened %d times", path, n)
		}
	}
	// Other code at the same place.
	moved := slices.Clone(d.maps)
	for i := range moved {
		if moved[i].Path == "/usr/lib/x86_64-linux-gnu/libc.so.6" {
			moved[i].Off += 4096
		}
	}
	s.Update(moved)
	if s.snap.Load().epoch == epoch {
		t.Error("rules were kept though code was replaced")
	}
	s.Update(d.maps)
	frames, _ = w.Walk(&th, &d.regs, &d.mem)
	changed := false
	for i := range frames { // none of the previous calls
		changed = changed || frames[i].Era != whole[i].Era
		frames[i].Era = whole[i].Era
	}
	if !changed {
		t.Error("code that was replaced looks as if it went on")
	}
	if !slices.Equal(frames, whole) {
		t.Errorf("%d frames, %d before", len(frames), len(whole))
	}
}

// TestConcurrent walks in several goroutines while mappings are replaced.
func TestConcurrent(t *testing.T) {
	tc := toolchain{cc: "gcc", arch: rule.AMD64, flags: []string{"-O2"}}
	d := runDump(t, tc, compile(t, tc, "chain.c"), "sorted")
	s := NewSpace(tc.arch, hostFiles{}, d)
	s.Update(d.maps)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			w := NewWalker(s)
			var th Thread
			for range 200 {
				if frames, reason := w.Walk(&th, &d.regs, &d.mem); reason != stack.ReasonNone {
					t.Errorf("%v, %d frames", reason, len(frames))
					return
				}
			}
		})
	}
	for range 50 {
		s.Update(d.maps)
		s.Errors()
	}
	wg.Wait()
}

// TestNoAllocation: a warm walk allocates nothing.
func TestNoAllocation(t *testing.T) {
	tc := toolchain{cc: "gcc", arch: rule.AMD64, flags: []string{"-O2"}}
	program := compile(t, tc, "chain.c")
	for _, chain := range []string{"busy", "signal", "realigned", "deep"} {
		d := runDump(t, tc, program, chain)
		s := NewSpace(tc.arch, hostFiles{}, d)
		s.Update(d.maps)
		w := NewWalker(s)
		var th Thread
		if n := testing.AllocsPerRun(20, func() {
			w.Plan(&th)
			w.StackPlan(&th)
			w.StackSpan(&th, d.regs.R[7])
			w.More(&th, &d.regs, &d.mem)
			w.Walk(&th, &d.regs, &d.mem)
		}); n != 0 {
			t.Errorf("%s: %v allocations", chain, n)
		}
	}
}

// TestGuess: a stack whose copy falls short is copied whole after a few samples.
func TestGuess(t *testing.T) {
	tc := toolchain{cc: "gcc", arch: rule.AMD64, flags: []string{"-O0"}}
	d := runDump(t, tc, compile(t, tc, "chain.c"), "deep")
	s := NewSpace(tc.arch, hostFiles{}, d)
	s.Update(d.maps)
	w := NewWalker(s)
	var th Thread
	b := d.mem.Blocks[0]
	for i := range 8 {
		_, high, n := w.StackPlan(&th)
		sp := d.regs.R[7]
		if high > sp {
			n = int(high - sp)
		}
		data := b.Data[sp-b.Addr:]
		c := Copy{Blocks: []Block{{Addr: sp, Data: data[:min(n, len(data))]}}}
		frames, reason := w.Walk(&th, &d.regs, &c)
		switch {
		case reason == stack.ReasonNone && len(frames) > 10000:
			if i == 0 {
				t.Error("the first guess was enough for 10,000 frames")
			}
			return
		case reason != stack.ReasonShort:
			t.Fatalf("sample %d: %v", i, reason)
		}
	}
	t.Error("never whole")
}

// TestEntry walks a process that has not executed an instruction yet. It is in the loader's first
// function, which has no table and no caller.
func TestEntry(t *testing.T) {
	const path, base = "/lib64/ld-linux-x86-64.so.2", 0x10000000
	f, err := elf.Open(path)
	need(t, "gcc", err)
	defer f.Close()
	s := NewSpace(rule.AMD64, opener{}, nil)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			at := base + p.Vaddr&^(smallPage-1)
			s.Update([]stack.Mapping{{Start: at, End: at + p.Filesz, Off: p.Off &^ (smallPage - 1), Inode: 1, Exec: true, Path: path}})
		}
	}
	for _, known := range []bool{true, false} { // without a stop, only SP and PC are known
		regs := stack.Regs{PC: base + f.Entry}
		regs.Set(rule.AMD64.SP(), stackAt)
		if known {
			regs.Set(rule.AMD64.FP(), 0)
		}
		mem := Copy{Blocks: []Block{{Addr: stackAt, Data: make([]byte, 64)}}}
		frames, reason := NewWalker(s).Walk(&Thread{}, &regs, &mem)
		if len(frames) != 1 || reason != stack.ReasonNone || frames[0].PC != regs.PC {
			t.Errorf("%v %+v", reason, frames)
		}
	}
}
