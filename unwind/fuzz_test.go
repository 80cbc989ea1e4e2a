package unwind_test

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/sliverprof/sliver/lang/golang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/rule"
)

// fuzzSpace maps a C library, which has many kinds of rules, and code without a file.
func fuzzSpace(t testing.TB, arch rule.Arch, mem unwind.Memory) (*unwind.Space, []stack.Mapping) {
	t.Helper()
	path := map[rule.Arch]string{rule.AMD64: "/lib/x86_64-linux-gnu/libc.so.6", rule.ARM64: "/usr/aarch64-linux-gnu/lib/libc.so.6"}[arch]
	_, err := os.Stat(path)
	unwind.Need(t, "libc-"+arch.String(), err)
	const base = 0x10000
	maps := []stack.Mapping{
		{Start: base, End: base + 4<<20, Inode: 1, Exec: true, Path: path},
		{Start: 0x1000000, End: 0x1100000, Exec: true},
		{Start: 0x7ff000, End: 0x900000, Path: "[stack]"},
	}
	s := unwind.NewSpace(arch, unwind.HostFiles{}, mem)
	s.Update(maps)
	if arch == rule.AMD64 { // whose goroutines' data is the noise
		exe, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer exe.Close()
		table, err := gopcln.Load(exe, arch)
		if err != nil {
			t.Fatal(err)
		}
		found := *golang.Stacks
		found.Find = func(s *unwind.Space, _ *managed.Table) (unwind.Stepper, error) { return found.Adopt(s, table, 0), nil }
		if st, err := s.Follow(&found, nil); st == nil || err != nil {
			t.Fatal(st, err)
		}
	}
	return s, maps
}

// FuzzWalk walks over random memory and registers. The walk must end within the depth limit and
// give a reason.
func FuzzWalk(f *testing.F) {
	f.Add(uint64(1), []byte("abc"), false)
	f.Add(uint64(2), []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), true)
	spaces := map[bool]*unwind.Walker{}
	f.Fuzz(func(t *testing.T, seed uint64, data []byte, arm bool) {
		arch := rule.AMD64
		if arm {
			arch = rule.ARM64
		}
		w := spaces[arm]
		if w == nil {
			s, _ := fuzzSpace(t, arch, noise{})
			w = unwind.NewWalker(s)
			spaces[arm] = w
		}
		rnd := rand.New(rand.NewPCG(seed, uint64(len(data))))
		walkRandom(t, w, arch, rnd, data)
	})
}

// TestWalkRandom runs FuzzWalk over many seeds.
func TestWalkRandom(t *testing.T) {
	for _, arch := range []rule.Arch{rule.AMD64, rule.ARM64} {
		t.Run(arch.String(), func(t *testing.T) {
			s, _ := fuzzSpace(t, arch, noise{})
			w := unwind.NewWalker(s)
			seen := map[stack.Reason]int{}
			deep := 0
			for i := range uint64(3000) {
				reason, n := walkRandom(t, w, arch, rand.New(rand.NewPCG(i, 7)), nil)
				seen[reason]++
				deep = max(deep, n)
			}
			t.Logf("ends: %v, deepest %d", seen, deep)
			if len(seen) < 4 || deep < 3 {
				t.Errorf("random walks end in too few ways: %v, deepest %d", seen, deep)
			}
		})
	}
}

// noise is memory that repeats the same bytes everywhere.
type noise struct{}

func (noise) ReadAt(p []byte, addr int64) (int, error) {
	if addr%3 == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	for i := range p {
		p[i] = byte(addr>>4 + int64(i)*31)
	}
	return len(p), nil
}

func walkRandom(t *testing.T, w *unwind.Walker, arch rule.Arch, rnd *rand.Rand, data []byte) (stack.Reason, int) {
	t.Helper()
	const lo, size = 0x800000, 8192
	word := func() uint64 {
		switch rnd.IntN(8) {
		case 0:
			return rnd.Uint64()
		case 1, 2:
			return lo + uint64(rnd.IntN(size)) // the stack
		case 3:
			return 0x1000000 + uint64(rnd.IntN(1<<20)) // code without a file
		case 4:
			return uint64(rnd.IntN(16))
		}
		return 0x10000 + uint64(rnd.IntN(2<<20)) // code
	}
	mem := make([]byte, size)
	for i := 0; i+8 <= size; i += 8 {
		binary.LittleEndian.PutUint64(mem[i:], word())
	}
	copy(mem[rnd.IntN(size):], data)
	regs := stack.Regs{PC: word(), Known: rnd.Uint64() | rnd.Uint64() | 1<<arch.SP(), TLS: word() &^ 7}
	for i := range regs.R {
		regs.R[i] = word()
	}
	regs.R[arch.SP()] = lo + uint64(rnd.IntN(size/2))&^7
	th := unwind.Thread{TID: stack.TID(rnd.IntN(4))}
	w.Plan(&th)
	mem = mem[:rnd.IntN(size)]
	c := unwind.Copy{Blocks: []unwind.Block{{Addr: lo, Data: mem}}}
	frames, reason := w.Walk(&th, &regs, &c)
	if bytes, reads := w.Spent(); bytes > meter.Budget || reads > meter.Budget/meter.LeastRead {
		t.Fatalf("%d bytes of memory in %d reads", bytes, reads)
	}
	if len(frames) > unwind.MaxDepth+1 {
		t.Fatalf("%d frames", len(frames))
	}
	if len(frames) == 0 {
		t.Fatal("no frames")
	}
	last := frames[len(frames)-1]
	if (last.Kind == stack.KindError) != (reason != stack.ReasonNone) || reason != stack.ReasonNone && stack.Reason(last.PC) != reason {
		t.Fatalf("ends with %+v, reason %v", last, reason)
	}
	for i := range frames[:len(frames)-1] {
		if frames[i].Kind == stack.KindError {
			t.Fatalf("error frame %d of %d", i, len(frames))
		}
	}
	span := w.StackSpan(&th, regs.R[arch.SP()])
	if span.Len < 0 || span.Len > unwind.MaxStack+unwind.RedZone {
		t.Fatalf("next copy of %d bytes", span.Len)
	}
	if _, _, n := w.StackPlan(&th); n <= 0 || n > unwind.MaxStack {
		t.Fatalf("next copy of %d bytes", n)
	}
	return reason, len(frames)
}
