package gopcln

import (
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// toolchains lists the versions with known offsets and numbers.
var toolchains = map[int]string{16: "go1.16.15", 17: "go1.17.13", 18: "go1.18.10", 20: "go1.20.14", 21: "go1.21.13",
	22: "go1.22.12", 23: "go1.23.12", 24: "go1.24.13", 25: "go1.25.5", 26: ""}

func versionBuild(v int, args ...string) target {
	b := target{prog: "prog", args: args}
	if s := toolchains[v]; s != "" {
		b.env = "GOTOOLCHAIN=" + s
	}
	return b
}

// TestVersions compares the numbers for a version with a program that it built: offsets with DWARF,
// kinds by number with names, and the frames of the PIE with those of the plain program.
func TestVersions(t *testing.T) {
	for v := range toolchains {
		name := toolchains[v]
		if name == "" {
			name = "this"
		}
		t.Run(name, func(t *testing.T) {
			tab, f := load(t, build(t, versionBuild(v, "-ldflags=-compressdwarf=false")))
			if tab.version != v {
				t.Fatalf("version %d, want %d", tab.version, v)
			}
			checkLayout(t, v, layoutOf(v), f)
			checkKinds(t, tab)
			if v >= 18 { // before, relocations set the addresses of functions in a PIE
				pie, _ := load(t, build(t, versionBuild(v, "-buildmode=pie", "-ldflags=-s -w")))
				checkKinds(t, pie)
				if pie.nfunc+100 < tab.nfunc || pie.gofunc == 0 {
					t.Errorf("stripped PIE has %d functions, plain %d; gofunc %#x", pie.nfunc, tab.nfunc, pie.gofunc)
				}
			}
		})
	}
}

// checkKinds classifies every function by number and by name.
func checkKinds(t *testing.T, tab *Table) {
	found := map[kind]bool{}
	for i := uint64(0); i < tab.nfunc; i++ {
		var f fn
		if err := tab.load(i, &f); err != nil {
			t.Fatal(err)
		}
		name, err := tab.nameOf(&f)
		if err != nil {
			t.Fatal(err)
		}
		id, _ := byID(tab.version, f.id)
		want := byName(name)
		if want != injected && (f.flag&flagAsm == 0 && tab.magic != magic116 || f.id != 0 && id == plain) {
			want = plain // the wrapper of an assembly function, or a Go one
		}
		if id != plain {
			found[id] = true
			if id != want {
				t.Errorf("%s has number %d: kind %d, by name %d", name, f.id, id, want)
			}
		}
		k, err := tab.kindOf(&f)
		if err != nil || want != plain && k != want && f.entry != f.end {
			t.Errorf("%s: kind %d, %v; by name %d", name, k, err, want)
		}
	}
	for _, k := range []kind{end, systemstack, mcall, morestack, asmcgocall, gogo, injected} {
		if !found[k] {
			t.Errorf("no function has the number of kind %d", k)
		}
	}
}

// checkLayout compares l with the structs in DWARF.
func checkLayout(t *testing.T, version int, l layout, f *elf.File) {
	d, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	offsets := map[string]int64{}
	structs := map[string]bool{"runtime.g": true, "runtime.m": true, "runtime.gobuf": true, "runtime.stack": true}
	in := ""
	for r := d.Reader(); ; {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		switch {
		case e.Tag == dwarf.TagStructType && structs[name]:
			in = name
		case e.Tag == dwarf.TagMember && in != "":
			off, _ := e.Val(dwarf.AttrDataMemberLoc).(int64)
			offsets[in+"."+name] = off
		case e.Tag == 0:
			in = ""
		}
	}
	x := fieldsOf(version, &l)
	if x.parent != 0 {
		if got := offsets["runtime.g.parentGoid"]; uint64(got) != x.parent {
			t.Errorf("runtime.g.parentGoid at %d, want %d", got, x.parent)
		}
	}
	for name, want := range map[string]uint64{
		"runtime.g.atomicstatus": x.status, "runtime.g.waitsince": x.since, "runtime.g.waitreason": x.reason, "runtime.g.gopc": x.gopc,
		"runtime.g.startpc": x.startpc, "runtime.g.syscallsp": x.sysSP, "runtime.g.syscallpc": x.sysPC,
		"runtime.stack.lo": gStackLo, "runtime.stack.hi": gStackHi, "runtime.g.stack": 0, "runtime.g.m": gM,
		"runtime.g.sched": gSched, "runtime.gobuf.sp": bufSP - gSched, "runtime.gobuf.pc": bufPC - gSched,
		"runtime.gobuf.lr": l.bufLR - gSched, "runtime.gobuf.bp": l.bufBP - gSched, "runtime.g.goid": l.goid,
		"runtime.g.lockedm": l.lockedm,
		"runtime.m.g0":      mG0, "runtime.m.procid": l.procid, "runtime.m.gsignal": l.gsignal, "runtime.m.curg": l.curg,
	} {
		if got, ok := offsets[name]; !ok || uint64(got) != want {
			t.Errorf("%s at %d (%v), want %d", name, got, ok, want)
		}
	}
}

// TestConcurrent uses one table from several goroutines. Its page cache is smaller than the pages
// that they read.
func TestConcurrent(t *testing.T) {
	tab, _ := load(t, build(t, plainBuild))
	lo, hi := tab.Bounds()
	var all sync.WaitGroup
	for n := range uint64(4) {
		all.Go(func() {
			var r rule.Rule
			for pc := lo + n; pc < hi; pc += 211 {
				if err := tab.Rule(pc, &r); err != nil && !errors.Is(err, rule.ErrNoRule) {
					t.Errorf("%#x: %v", pc, err)
				}
				tab.Inlines(pc, nil)
			}
		})
	}
	all.Wait()
}

// arbitrary is memory with arbitrary or missing content.
type arbitrary []byte

func (a arbitrary) Word(addr uint64) (uint64, bool) {
	if len(a) < 8 {
		return 0, false
	}
	o := addr % uint64(len(a)-7)
	w := binary.LittleEndian.Uint64(a[o:])
	if addr%13 == 0 { // looks like a pointer
		w = minPointer + w%(1<<30)&^7
	}
	return w, addr%17 != 0
}

// FuzzCross crosses stacks with arbitrary memory.
func FuzzCross(f *testing.F) {
	tabs := map[bool]*Table{}
	for arm, b := range map[bool]target{false: builds["stripped"], true: builds["arm64 stripped pie"]} {
		tabs[arm], _ = load(f, build(f, b))
	}
	f.Add(false, uint64(0x7f0000001000), uint8(1), []byte("0123456789abcdef"))
	f.Add(true, uint64(0), uint8(4), []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0})
	f.Add(false, uint64(1<<63), uint8(9), []byte{})
	f.Add(false, uint64(0x7f0000001000), uint8(16+3), []byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, arm bool, sp uint64, k uint8, mem []byte) {
		tab := tabs[arm]
		rt := NewRuntime(tab, 0)
		th := rt.Thread(0)
		th.m, th.g0, th.gsignal = minPointer, minPointer+64, minPointer+128 // as if validated
		var regs stack.Regs
		for i := range 32 {
			regs.Set(i, sp+uint64(i)*8)
		}
		regs.TLS = sp
		const samples = 3
		for range samples {
			if k&16 != 0 {
				th.Peek(arbitrary(mem))
			}
			th.Plan(&regs, nil)
			if more := th.More(&regs, arbitrary(mem), nil); len(more) > 8 {
				t.Fatalf("%d spans", len(more))
			}
			th.Begin(&regs, arbitrary(mem))
			r := rule.Rule{Func: uint64(k), Special: kind(k % 16).special(tab.arch), CFAReg: uint8(tab.arch.SP())}
			tab.kinds.put(r.Func, kind(k%16))
			for _, exact := range []bool{false, true} {
				if s := th.Cross(&r, &regs, exact, arbitrary(mem)); s > Lost {
					t.Fatal(s)
				}
			}
			th.Goroutine(arbitrary(mem))
			th.Peek(arbitrary(mem))
			for _, s := range th.Plan(&regs, nil) {
				if s.Len < 0 || s.Len > maxStackSpan+stackSlack+8 {
					t.Fatalf("span of %d bytes", s.Len)
				}
			}
		}
	})
}

// ReadAt makes arbitrary usable as a process's memory.
func (a arbitrary) ReadAt(p []byte, off int64) (int, error) {
	for i := 0; i < len(p); i += 8 {
		w, ok := a.Word(uint64(off) + uint64(i))
		if !ok {
			return i, errors.New("not mapped")
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], w)
		copy(p[i:], b[:])
	}
	return len(p), nil
}

// FuzzCensus counts goroutines in arbitrary memory.
func FuzzCensus(f *testing.F) {
	tab, _ := load(f, build(f, builds["stripped"]))
	f.Add([]byte("0123456789abcdef"), uint64(minPointer))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9}, uint64(1<<32))
	f.Fuzz(func(t *testing.T, mem []byte, at uint64) {
		if len(mem) > 0 && mem[0] > 1 {
			mem[len(mem)-1] = 0 // lists of billions are refused, those of thousands tried
		}
		c := NewRuntime(tab, 0).NewCensus(arbitrary(mem))
		c.allgs = at
		gs, _, err := c.Read(nil)
		if err == nil && (len(gs) > MaxGoroutines || len(c.ByID(nil)) > len(gs)) {
			t.Fatal(len(gs), len(c.ByID(nil)))
		}
		if some := append(mem, make([]byte, 24)...); mayBeAllgs(some) {
			c.allgsOf(some, []uint64{0, uint64(len(mem))})
		}
		if len(mem) >= reasonsLen && isReasons(mem) {
			c.readReasons(at)
		}
	})
}

// FuzzTable mutates the tables of real programs. Reading them must not panic and must end soon.
func FuzzTable(f *testing.F) {
	bases := map[rule.Arch][]byte{}
	for arch, b := range map[rule.Arch]target{rule.AMD64: builds["stripped"], rule.ARM64: builds["arm64 stripped pie"]} {
		bases[arch] = smallImage(f, build(f, b), arch)
	}
	f.Add(false, uint32(0), []byte{})
	f.Add(false, uint32(64), []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(true, uint32(200), []byte{0, 0, 0, 0, 0, 0, 0, 0x80})
	f.Add(false, uint32(5000), []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80})
	f.Add(true, uint32(100000), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, arm bool, at uint32, change []byte) {
		arch := rule.AMD64
		if arm {
			arch = rule.ARM64
		}
		b := append([]byte(nil), bases[arch]...)
		for i, c := range change {
			b[(uint64(at)*uint64(1+i%3)+uint64(i))%uint64(len(b))] ^= c
		}
		tab, err := Load(readerAt(b), arch)
		if err != nil {
			return
		}
		lo, hi := tab.Bounds()
		var r rule.Rule
		var buf []Inline
		const places = 64
		for i := uint64(0); i < places; i++ {
			pc := lo + (hi-lo)/places*i + uint64(at)%97
			if err := tab.Rule(pc, &r); err == nil && (pc < r.Lo || pc >= r.Hi) {
				t.Fatalf("rule [%#x, %#x) for %#x", r.Lo, r.Hi, pc)
			}
			tab.Func(pc)
			tab.Line(pc)
			if buf = tab.Inlines(pc, buf[:0]); len(buf) > maxInlines+1 {
				t.Fatalf("%d frames at %#x", len(buf), pc)
			}
		}
	})
}

// smallImage returns a program that is small enough for the fuzzer to copy for every input.
func smallImage(t testing.TB, path string, arch rule.Arch) []byte {
	tab, f := load(t, path)
	end := uint64(0)
	for _, p := range f.Progs {
		end = max(end, p.Off+p.Filesz)
	}
	end = max(end, f.Sections[len(f.Sections)-1].Offset+4096)
	b := make([]byte, end)
	n, _ := tab.img.r.ReadAt(b, 0)
	return b[:n]
}
