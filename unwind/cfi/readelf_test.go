package cfi

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

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

var registerNames = map[rule.Arch][]string{
	rule.AMD64: {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip"},
	rule.ARM64: {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
		"x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp"},
}

// shown formats a rule like readelf's columns: the CFA, and each register.
func shown(arch rule.Arch, r *rule.Rule) (cfa string, cols map[string]string) {
	names := registerNames[arch]
	cfa = "exp"
	if !r.CFAIsExpr {
		cfa = fmt.Sprintf("%s%+d", names[r.CFAReg], r.CFAOff)
	}
	col := func(l rule.Loc) string {
		switch l.Kind {
		case rule.Offset:
			return fmt.Sprintf("c%+d", l.Off)
		case rule.ValOff:
			return fmt.Sprintf("v%+d", l.Off)
		case rule.Register:
			return names[l.Off]
		case rule.Expr:
			return "exp"
		case rule.ValExpr:
			return "vexp"
		}
		return "u"
	}
	cols = map[string]string{}
	for _, l := range r.Saved[:r.NSaved] {
		cols[names[l.Reg]] = col(l)
	}
	cols["ra"] = col(r.RA)
	if arch == rule.ARM64 {
		if cols["ra"] == "x30" { // "unchanged": readelf prints u
			cols["ra"] = "u"
		}
		delete(cols, "x30")
	}
	return cfa, cols
}

// compareReadelf runs readelf on a file's section and compares every row of each stride-th FDE. It
// returns the number of rows compared.
func compareReadelf(t *testing.T, readelf, path string, arch rule.Arch, section string, stride int, rule_ func(uint64, *rule.Rule) error) int {
	t.Helper()
	cmd := exec.Command(readelf, "--debug-dump=frames-interp", path)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	names := map[string]bool{}
	for _, n := range registerNames[arch] {
		names[n] = true
	}
	var (
		header   []string
		in       bool // in the wanted section
		inFDE    bool
		hi       uint64
		fdes     int
		rows     int
		last     uint64
		out      rule.Rule
		failures int
		pending  []string // row waiting for the next one: of rows at one address the last holds
	)
	check := func(f []string, next uint64) {
		loc, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil || loc == next {
			return
		}
		if err := rule_(loc, &out); err != nil {
			t.Errorf("%s: %#x: %v", path, loc, err)
			failures++
			return
		}
		rows++
		cfa, cols := shown(arch, &out)
		bad := cfa != f[1]
		for i, name := range header[2:] {
			want := f[i+2]
			if name != "ra" && !names[name] {
				continue
			}
			if want == "s" || want == "n" {
				want = "u"
			}
			got := cols[name]
			if got == "" {
				got = "u"
			}
			bad = bad || got != want
		}
		if out.Lo > loc || out.Hi <= loc || (next != 0 && out.Hi > next) {
			bad = true
		}
		if bad {
			t.Errorf("%s: at %#x..%#x: got [%#x,%#x) %s %v, want %v of %v", path, loc, next, out.Lo, out.Hi, cfa, cols, f, header)
			failures++
		}
	}
	sc := bufio.NewScanner(pipe)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() && failures < 10 {
		line := sc.Text()
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Contents of the "):
			in = f[3] == section
			inFDE = false
		case !in:
		case len(f) == 0:
			if inFDE && pending != nil {
				check(pending, hi)
			}
			inFDE, pending, header = false, nil, nil
		case len(f) >= 6 && strings.Contains(line, " FDE cie="):
			fdes++
			inFDE = fdes%stride == 0
			pending, header = nil, nil
			i := strings.Index(line, "pc=")
			a, b, _ := strings.Cut(strings.Fields(line[i+3:])[0], "..")
			lo, _ := strconv.ParseUint(a, 16, 64)
			hi, err = strconv.ParseUint(b, 16, 64)
			if err != nil {
				t.Fatalf("readelf line %q: %v", line, err)
			}
			if lo >= hi {
				inFDE = false
			}
			last = lo
		case strings.Contains(line, " CIE "):
			inFDE = false
		case !inFDE:
		case f[0] == "LOC":
			header = f
		case header != nil && len(f) == len(header):
			loc, err := strconv.ParseUint(f[0], 16, 64)
			if err != nil {
				continue
			}
			if pending != nil {
				check(pending, loc)
			}
			if loc < last || loc >= hi {
				pending = nil
				continue
			}
			last, pending = loc, f
		}
	}
	if failures == 0 && sc.Err() != nil {
		t.Fatal(sc.Err())
	}
	return rows
}

// TestRowsReadelf compares every row's CFA, return address and registers with binutils'.
// SLIVER_LONG=1 checks every FDE of many large files.
func TestRowsReadelf(t *testing.T) {
	readelf, err := exec.LookPath("readelf")
	need(t, "readelf", err)
	files := []struct {
		glob string
		arch rule.Arch
		long bool
	}{
		{"/lib/x86_64-linux-gnu/libc.so.6", rule.AMD64, false},
		{"/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", rule.AMD64, false},
		{"/usr/lib/x86_64-linux-gnu/libcrypto.so.*", rule.AMD64, true},
		{"/bin/bash", rule.AMD64, false},
		{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", rule.AMD64, true},
		{"/usr/bin/python3", rule.AMD64, true},
		{"/usr/bin/gdb", rule.AMD64, true},
		{"/usr/bin/node", rule.AMD64, true},
		{"/usr/lib/gcc/x86_64-linux-gnu/*/cc1plus", rule.AMD64, true},
		{"/usr/aarch64-linux-gnu/lib/libc.so.6", rule.ARM64, false},
		{"/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1", rule.ARM64, false},
		{"/usr/aarch64-linux-gnu/lib/libstdc++.so.6", rule.ARM64, true},
		{"/lib/aarch64-linux-gnu/libc.so.6", rule.ARM64, false},
	}
	found := 0
	for _, f := range files {
		paths, _ := filepath.Glob(f.glob)
		long := os.Getenv("SLIVER_LONG") != ""
		for _, path := range paths {
			if f.long && !long {
				continue
			}
			t.Run(strings.TrimPrefix(path, "/"), func(t *testing.T) {
				file, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				table, err := Load(file, f.arch)
				if err != nil {
					t.Fatal(err)
				}
				stride := 5
				if long {
					stride = 1
				}
				rows := compareReadelf(t, readelf, path, f.arch, ".eh_frame", stride, table.Rule)
				if rows < 100 {
					t.Errorf("only %d rows compared", rows)
				}
				t.Logf("%d rows agree", rows)
				// The same by scan, without the search table.
				if table.eh.hdr == nil {
					t.Fatal("no search table")
				}
				scan := &Table{arch: f.arch, eh: &frames{eh: true, sec: table.eh.sec, bases: table.eh.bases}}
				if n := compareReadelf(t, readelf, path, f.arch, ".eh_frame", 5*stride, scan.Rule); n < 20 {
					t.Errorf("only %d rows compared by scan", n)
				}
			})
			found++
		}
	}
	if found == 0 {
		need(t, "readelf", errors.New("none of the files to compare is installed"))
	}
}

// build compiles a C source once per test binary run, into the test's
// temporary directory.
func build(t testing.TB, cc, source string, flags ...string) string {
	t.Helper()
	_, err := exec.LookPath(cc)
	need(t, cc, err)
	dir := t.TempDir()
	src, out := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cc, append(flags, "-o", out, src)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	return out
}

const program = `
#include <stdio.h>
#include <string.h>
#include <alloca.h>
typedef int v8 __attribute__((vector_size(32)));
__attribute__((noinline)) int use(void *p, int n) { return printf("%p %d\n", p, n); }
__attribute__((noinline)) int realigned(int n) {
	v8 v; char *p = alloca(n); memset(&v, n, sizeof v); memset(p, n, n);
	return use(&v, v[0]) + use(p, p[n-1]);
}
__attribute__((noinline)) int many(int a, int b, int c, int d, int e, int f) {
	int x = use(&a, b), y = use(&c, d), z = use(&e, f);
	if (x > 3) return y;
	for (int i = 0; i < a; i++) z += use(&z, y*i) * x;
	return x + y + z;
}
int main(int argc, char **argv) { return realigned(argc + 20) + many(argc, 2, 3, 4, 5, 6); }
`

// TestDebugFrame reads programs that have only .debug_frame, plain and compressed, for both
// architectures.
func TestDebugFrame(t *testing.T) {
	for _, m := range []struct {
		cc, readelf string
		arch        rule.Arch
	}{{"gcc", "readelf", rule.AMD64}, {"aarch64-linux-gnu-gcc", "aarch64-linux-gnu-readelf", rule.ARM64}} {
		for _, z := range []string{"none", "zlib", "zlib-gnu"} {
			t.Run(m.arch.String()+"/"+z, func(t *testing.T) {
				flags := []string{"-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"}
				plain := build(t, m.cc, program, flags...)
				packed := plain
				if z != "none" {
					packed = plain + ".z"
					if b, err := exec.Command(strings.TrimSuffix(m.readelf, "readelf")+"objcopy", "--compress-debug-sections="+z, plain, packed).CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, b)
					}
				}
				file, err := os.Open(packed)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				table, err := Load(file, m.arch)
				if err != nil {
					t.Fatal(err)
				}
				if table.debug.sec == nil {
					t.Fatal("no .debug_frame found")
				}
				if n := compareReadelf(t, m.readelf, plain, m.arch, ".debug_frame", 1, table.Rule); n < 8 {
					t.Errorf("only %d rows compared", n)
				}
			})
		}
	}
}

// TestSectionless reads one program with removed section headers and one with damaged ones.
func TestSectionless(t *testing.T) {
	path := build(t, "gcc", program, "-O2")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b []byte){
		"none":    func(b []byte) { copy(b[0x28:], make([]byte, 8)); copy(b[0x3c:], make([]byte, 4)) },
		"damaged": func(b []byte) { copy(b[0x28:], "\xff\xff\xff\xff\xff\xff\xff\x7f") },
	} {
		t.Run(name, func(t *testing.T) {
			b := append([]byte(nil), whole...)
			change(b)
			table, err := Load(strings.NewReader(string(b)), rule.AMD64)
			if err != nil {
				t.Fatal(err)
			}
			if !table.eh.sec.open {
				t.Fatal("found .eh_frame by a section header")
			}
			if n := compareReadelf(t, "readelf", path, rule.AMD64, ".eh_frame", 1, table.Rule); n < 8 {
				t.Errorf("only %d rows compared", n)
			}
		})
	}
}

func TestNoTables(t *testing.T) {
	path := build(t, "gcc", "int main(void){return 0;}", "-O2")
	stripped := path + ".s"
	if b, err := exec.Command("objcopy", "-R", ".eh_frame", "-R", ".eh_frame_hdr", path, stripped).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	b, err := os.ReadFile(stripped)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	// objcopy keeps the program header, with size 0.
	table, err := Load(strings.NewReader(string(b)), rule.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	var r rule.Rule
	if err := table.Rule(f.Entry, &r); !errors.Is(err, rule.ErrNoRule) {
		t.Errorf("got %v, want %v", err, rule.ErrNoRule)
	}
}
