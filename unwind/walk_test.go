package unwind

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// need skips a test whose requirement is missing on this machine. It fails the test instead if
// SLIVER_REQUIRE lists the requirement.
func need(t testing.TB, word string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for w := range strings.SplitSeq(os.Getenv("SLIVER_REQUIRE"), ",") {
		if w == word || w == "all" {
			t.Fatalf("SLIVER_REQUIRE=%s: %v", word, err)
		}
	}
	t.Skipf("needs %s: %v", word, err)
}

// A dump is the output of testdata/dump.h.
type dump struct {
	maps []stack.Mapping
	regs stack.Regs
	mem  Copy
	code Copy
}

// ReadAt reads code without a file. It makes a dump a Memory.
func (d *dump) ReadAt(p []byte, addr int64) (int, error) {
	for _, b := range d.code.Blocks {
		if o := uint64(addr) - b.Addr; o < uint64(len(b.Data)) {
			if n := copy(p, b.Data[o:]); n < len(p) {
				return n, io.EOF
			}
			return len(p), nil
		}
	}
	return 0, errors.New("not dumped")
}

func parseDump(r io.Reader, arch rule.Arch) (*dump, error) {
	d := &dump{}
	b := bufio.NewReader(r)
	inodes := map[string]uint64{}
	for {
		line, err := b.ReadString('\n')
		if err != nil {
			return nil, err
		}
		line = strings.TrimSuffix(line, "\n")
		var i int
		var v, n uint64
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "reg":
			if _, err := fmt.Sscanf(rest, "%d %x", &i, &v); err != nil {
				return nil, err
			}
			d.regs.Set(i, v)
		case "pc":
			if _, err := fmt.Sscanf(rest, "%x", &d.regs.PC); err != nil {
				return nil, err
			}
		case "map":
			var m stack.Mapping
			var perm, dev string
			if _, err := fmt.Sscanf(rest, "%x-%x %s %x %s %d", &m.Start, &m.End, &perm, &m.Off, &dev, &m.Inode); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			if i := strings.IndexAny(rest, "/["); i >= 0 {
				m.Path = rest[i:]
			}
			m.Exec, m.Write = perm[2] == 'x', perm[1] == 'w'
			// An emulator may show files without an inode.
			if strings.HasPrefix(m.Path, "/") {
				if inodes[m.Path] == 0 {
					inodes[m.Path] = uint64(len(inodes) + 1)
				}
				m.Inode = inodes[m.Path]
			}
			d.maps = append(d.maps, m)
		case "stack", "code":
			if _, err := fmt.Sscanf(rest, "%x %x", &v, &n); err != nil || n > 1<<30 {
				return nil, fmt.Errorf("%q: %v", line, err)
			}
			data := make([]byte, n)
			if _, err := io.ReadFull(b, data); err != nil {
				return nil, err
			}
			to := &d.mem
			if word == "code" {
				to = &d.code
			}
			to.Blocks = append(to.Blocks, Block{Addr: v, Data: data})
		case "", "end":
			if word == "end" {
				return d, nil
			}
		default:
			return nil, fmt.Errorf("line %q", line)
		}
	}
}

// hostFiles opens files by their host paths.
type hostFiles struct{ rename map[string]string }

func (h hostFiles) Open(m stack.Mapping) (io.ReaderAt, error) {
	path := m.Path
	if p := h.rename[path]; p != "" {
		path = p
	}
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no file", path))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.NewReader(string(b)), nil
}

// names resolves frames by the symbol tables of the mapped files.
type names struct {
	syms map[string]map[uint64]string
}

func (n *names) of(t testing.TB, s *Space, f *stack.Frame) string {
	t.Helper()
	if f.Kind == stack.KindError {
		return "error: " + stack.Reason(f.PC).String()
	}
	r := s.snap.Load().find(f.PC - 1)
	if r == nil || r.mod == nil {
		return fmt.Sprintf("%#x", f.PC)
	}
	r.mod.load()
	bias, _ := r.mod.bias(r)
	path := r.mod.mapping.Path
	if n.syms[path] == nil {
		m := map[uint64]string{}
		if f, err := elf.Open(path); err == nil {
			a, _ := f.Symbols()
			b, _ := f.DynamicSymbols()
			for _, y := range append(b, a...) {
				if elf.ST_TYPE(y.Info) == elf.STT_FUNC || elf.ST_TYPE(y.Info) == elf.STT_NOTYPE {
					m[y.Value] = y.Name
				}
			}
			f.Close()
		}
		n.syms[path] = m
	}
	if name := n.syms[path][f.Func-bias]; name != "" {
		return name
	}
	return fmt.Sprintf("%s+%#x", filepath.Base(path), f.Func-bias)
}

// toolchain is one way to build testdata programs.
type toolchain struct {
	cc    string
	arch  rule.Arch
	flags []string
	run   []string // command that runs the program; empty: run it directly
	bare  bool     // the library has no tables: the CFA of its start code is unknown
}

func compile(t testing.TB, tc toolchain, source string) string {
	t.Helper()
	_, err := exec.LookPath(tc.cc)
	need(t, tc.cc, err)
	if len(tc.run) > 0 {
		_, err := exec.LookPath(tc.run[0])
		need(t, tc.run[0], err)
	}
	out := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-w", "-g"}, tc.flags...)
	cmd := exec.Command(tc.cc, append(args, "-o", out, filepath.Join("testdata", source), "-pthread")...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	return out
}

func runDump(t testing.TB, tc toolchain, program, chain string) *dump {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dump")
	args := append(slices.Clone(tc.run), program, chain, path)
	cmd := exec.Command(args[0], args[1:]...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := parseDump(f, tc.arch)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var chains = map[string][]string{
	"plain":     {"leaf", "plain2", "plain1", "main"},
	"busy":      {"leaf", "plain2", "plain1", "busy", "main"},
	"dynamic":   {"leaf", "plain2", "plain1", "dynamic", "main"},
	"realigned": {"leaf", "plain2", "plain1", "realigned", "main"},
	"deep":      append(append([]string{"leaf"}, slices.Repeat([]string{"deep"}, 10001)...), "main"),
	"signal":    {"leaf", "plain2", "plain1", "on_usr1", "*", "interrupted", "main"},
	"fault":     {"leaf", "plain2", "plain1", "on_segv", "*", "faulting", "fault", "main"},
	"altsignal": {"leaf", "plain2", "plain1", "on_segv", "*", "faulting", "fault", "main"},
	"sorted":    {"leaf", "plain2", "plain1", "compare", "*", "sorted", "main"},
	"thread":    {"leaf", "plain2", "plain1", "started", "*"},
}

// match compares names with a pattern, in which * matches any number of names. After main come the
// library's start functions.
func match(got, want []string) bool {
	if len(want) == 0 {
		return true
	}
	if want[0] == "*" {
		for i := range min(len(got)+1, 12) {
			if match(got[i:], want[1:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && got[0] == want[0] && match(got[1:], want[1:])
}

func checkDump(t *testing.T, tc toolchain, d *dump, files Files, chain string) {
	t.Helper()
	s := NewSpace(tc.arch, files, d)
	s.Update(d.maps)
	w := NewWalker(s)
	var th Thread
	sp := d.regs.R[tc.arch.SP()]
	frames, reason := w.Walk(&th, &d.regs, &d.mem)
	n := &names{syms: map[string]map[uint64]string{}}
	var got []string
	for i := range frames {
		got = append(got, n.of(t, s, &frames[i]))
	}
	show := got
	if len(show) > 40 {
		show = append(append([]string{}, got[:20]...), got[len(got)-20:]...)
	}
	if !match(got, chains[chain]) {
		t.Errorf("%s: got %d frames %v", chain, len(got), show)
	}
	if reason != stack.ReasonNone {
		t.Errorf("%s: ends with %v: %d frames %v", chain, reason, len(got), show)
	}
	if !frames[0].Exact || frames[0].Trust != stack.TrustRegs || frames[0].PC != d.regs.PC {
		t.Errorf("leaf %+v", frames[0])
	}
	turned := chain == "altsignal"
	for i := 1; i < len(frames) && !turned; i++ {
		if tc.bare && i == len(frames)-1 && frames[i].CFA == 0 {
			continue
		}
		if frames[i].CFA <= frames[i-1].CFA && frames[i].Kind != stack.KindError && (tc.arch == rule.AMD64 || i < len(frames)-1) && !frames[i].Exact && !frames[i-1].Exact {
			t.Errorf("%s: frame %d has CFA %#x, its callee %#x", chain, i, frames[i].CFA, frames[i-1].CFA)
		}
	}
	if reason == stack.ReasonNone && !turned {
		// The next copy is exactly what this walk needed.
		span := w.StackSpan(&th, sp)
		last := frames[len(frames)-1].CFA
		if last == 0 && tc.bare {
			last = frames[len(frames)-2].CFA
		}
		if last-span.Addr > MaxStack {
			t.Errorf("%s: a stack of %d bytes", chain, last-span.Addr)
		} else if end := span.Addr + uint64(span.Len); end != last {
			t.Errorf("%s: the next copy ends at %#x, the stack at %#x", chain, end, last)
		}
		b := d.mem.Blocks[len(d.mem.Blocks)-1]
		cut := Copy{Blocks: []Block{{Addr: span.Addr, Data: b.Data[span.Addr-b.Addr:][:span.Len]}}}
		whole := slices.Clone(frames)
		if again, r := w.Walk(&th, &d.regs, &cut); r != reason || !slices.Equal(again, whole) {
			t.Errorf("%s: from the exact copy: %v, %d frames of %d", chain, r, len(again), len(whole))
		}
		// Memory below the stack pointer alone is not enough.
		cut.Blocks[0].Data = cut.Blocks[0].Data[:redZone]
		if again, r := w.Walk(&th, &d.regs, &cut); r == stack.ReasonNone {
			t.Errorf("%s: from next to nothing: %v, %d frames of %d", chain, r, len(again), len(whole))
		}
	}
}

func TestWalk(t *testing.T) {
	qemu := []string{"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"}
	pac := []string{"qemu-aarch64", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu"}
	for name, tc := range map[string]toolchain{
		"O0":              {cc: "gcc", arch: rule.AMD64, flags: []string{"-O0"}},
		"O2":              {cc: "gcc", arch: rule.AMD64, flags: []string{"-O2", "-fomit-frame-pointer"}},
		"O2fp":            {cc: "gcc", arch: rule.AMD64, flags: []string{"-O2", "-fno-omit-frame-pointer"}},
		"O2mavx":          {cc: "gcc", arch: rule.AMD64, flags: []string{"-O2", "-mno-red-zone", "-mpreferred-stack-boundary=6"}},
		"nopie":           {cc: "gcc", arch: rule.AMD64, flags: []string{"-O2", "-no-pie"}},
		"static":          {cc: "gcc", arch: rule.AMD64, flags: []string{"-O2", "-static"}},
		"staticpie":       {cc: "gcc", arch: rule.AMD64, flags: []string{"-O2", "-static-pie"}},
		"debugframe":      {cc: "gcc", arch: rule.AMD64, flags: []string{"-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}},
		"nohdr":           {cc: "gcc", arch: rule.AMD64, flags: []string{"-O2", "-Wl,--no-eh-frame-hdr"}},
		"musl":            {cc: "musl-gcc", arch: rule.AMD64, flags: []string{"-O2", "-static"}, bare: true},
		"muslfp":          {cc: "musl-gcc", arch: rule.AMD64, flags: []string{"-O2", "-fno-omit-frame-pointer"}, bare: true},
		"arm64":           {cc: "aarch64-linux-gnu-gcc", arch: rule.ARM64, flags: []string{"-O2"}, run: qemu},
		"arm64/O0":        {cc: "aarch64-linux-gnu-gcc", arch: rule.ARM64, flags: []string{"-O0"}, run: qemu},
		"arm64/nofp":      {cc: "aarch64-linux-gnu-gcc", arch: rule.ARM64, flags: []string{"-O2", "-fomit-frame-pointer"}, run: qemu},
		"arm64/static":    {cc: "aarch64-linux-gnu-gcc", arch: rule.ARM64, flags: []string{"-O2", "-static"}, run: qemu},
		"arm64/pac":       {cc: "aarch64-linux-gnu-gcc", arch: rule.ARM64, flags: []string{"-O2", "-march=armv8.3-a", "-mbranch-protection=standard"}, run: pac},
		"arm64/staticpac": {cc: "aarch64-linux-gnu-gcc", arch: rule.ARM64, flags: []string{"-O2", "-static", "-mbranch-protection=pac-ret+leaf+b-key", "-march=armv8.3-a"}, run: pac},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && !slices.Contains([]string{"O2", "O2fp", "debugframe", "musl", "arm64", "arm64/pac"}, name) {
				t.Skip("not in the short form: builds that differ most")
			}
			program := compile(t, tc, "chain.c")
			for chain := range chains {
				d := runDump(t, tc, program, chain)
				checkDump(t, tc, d, hostFiles{}, chain)
			}
		})
	}
}
