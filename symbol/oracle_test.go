package symbol

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
)

// place is a frame as an oracle prints it.
type place struct {
	name, file string
	line       int
}

var (
	discriminator = regexp.MustCompile(` \(discriminator \d+\)$`)
	inlinedAt     = regexp.MustCompile(` inlined at .*$`)
	column        = regexp.MustCompile(`^(.*:\d+):\d+$`)
)

// addr2line runs the tool of binutils or elfutils, with raw names and inlined calls.
func addr2line(t testing.TB, name, file string, addrs []uint64) map[uint64][]place {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command(tool(t, name), "-fia", "-e", file)
	cmd.Stdin = &in
	cmd.Dir = filepath.Dir(file)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got := make(map[uint64][]place)
	var at uint64
	lines := strings.Split(string(out), "\n")
	for i := 0; i+1 < len(lines); i++ {
		if a, err := strconv.ParseUint(lines[i], 0, 64); err == nil && strings.HasPrefix(lines[i], "0x") {
			at = a
			got[at] = []place{}
			continue
		}
		loc := discriminator.ReplaceAllString(lines[i+1], "")
		if name == "eu-addr2line" {
			loc = column.ReplaceAllString(loc, "$1")
		}
		p := place{name: inlinedAt.ReplaceAllString(lines[i], "")}
		if j := strings.LastIndexByte(loc, ':'); j >= 0 {
			p.file = loc[:j]
			p.line, _ = strconv.Atoi(loc[j+1:])
		}
		if p.file == "??" || p.line == 0 { // without a line, the file comes from the symbol table
			p.file = ""
		} else {
			p.file = path.Clean(p.file)
		}
		got[at] = append(got[at], p)
		i++
	}
	return got
}

// same reports whether our frames equal the oracle's. aliases are all names of a start
// address.
func same(ours []Frame, theirs []place, aliases map[uint64][]string) bool {
	if len(ours) != len(theirs) {
		return false
	}
	for i, f := range ours {
		o := theirs[i]
		if f.Line != o.line || f.Line != 0 && f.File != o.file || !sameName(&f, o.name, aliases) {
			return false
		}
	}
	return true
}

func sameName(f *Frame, name string, aliases map[uint64][]string) bool {
	raw := f.Linkage
	if raw == "" {
		raw = f.Func
	}
	// Parts and clones of a function (main.cold) are shown as the function.
	if raw == name || f.Func == name || unclone(raw) == unclone(name) {
		return true
	}
	// Without a linkage name, we add the scopes before the name.
	if strings.HasSuffix(f.Func, "::"+name) {
		return true
	}
	// elfutils demangles some C names even if not requested.
	if Demangle(raw, false) == name {
		return true
	}
	ours, others := false, false
	for _, a := range aliases[f.Start] {
		ours = ours || a == raw || a == f.Func
		others = others || a == name
	}
	return !f.Inlined && ours && others
}

func aliasesOf(t testing.TB, path string) map[uint64][]string {
	m := make(map[uint64][]string)
	for _, s := range elfSymbols(t, path) {
		if elf.ST_TYPE(s.Info) != elf.STT_SECTION {
			name, _, _ := strings.Cut(s.Name, "@")
			m[s.Value] = append(m[s.Value], name)
		}
	}
	return m
}

// TestAgainstAddr2line: names, lines and inlined calls must match binutils and
// elfutils, for C, C++ and Rust. Known differences:
//
//   - If two inlined calls have the same ranges, or one has none, the three
//     tools choose different ones. We use the deepest, as binutils does.
//   - binutils 2.40 mixes up files of DWARF 5 line tables that name one file
//     twice; elfutils 0.188 reads neither Rust's nor Go's inlined calls and
//     prints the abstract scopes of constructors as calls. So an address is
//     right if one of the two agrees in all frames.
func TestAgainstAddr2line(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a table")
	for _, c := range []struct {
		name, script string
		eu           bool
	}{
		{"cc-O0", "g++ -std=c++17 -O0 -g app.cc -o a", false},
		{"cc-O2-dwarf2", "g++ -std=c++17 -O2 -g -gdwarf-2 app.cc -o a", false},
		{"cc-O2-dwarf3", "g++ -std=c++17 -O2 -g -gdwarf-3 app.cc -o a", false},
		{"cc-O2-dwarf4", "g++ -std=c++17 -O2 -g -gdwarf-4 app.cc -o a", false},
		{"cc-O2-dwarf5", "g++ -std=c++17 -O2 -g app.cc -o a", false},
		{"cc-O3", "g++ -std=c++17 -O3 -g app.cc -o a", false},
		{"cc-zlib", "g++ -std=c++17 -O2 -g -gz=zlib app.cc -o a", false},
		{"rust-legacy", "RUSTC_BOOTSTRAP=1 rustc -g -O -Z unstable-options -C symbol-mangling-version=legacy app.rs -o a", false},
		{"rust-v0-O0", "rustc -g -C symbol-mangling-version=v0 app.rs -o a", false},
		{"rust-v0-O3", "rustc -g -C opt-level=3 -C symbol-mangling-version=v0 app.rs -o a", false},
		{"dwz", "g++ -std=c++17 -O2 -g app.cc -o a; dwz a", false},
		{"arm64", "aarch64-linux-gnu-gcc -O2 -g chain.c -o a", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			switch {
			case strings.HasPrefix(c.name, "rust"):
				testprog.Need(t, "rustc")
			case c.name == "dwz":
				testprog.Need(t, "g++", "dwz")
			case c.name == "arm64":
				testprog.Need(t, "arm64-gcc")
			default:
				testprog.Need(t, "g++")
			}
			file := filepath.Join(fixture(t, c.script), "a")
			compare(t, file, file, 3000, c.eu)
		})
	}
}

// TestAgainstAddr2lineOnSystemLibraries: programs as built by distributions, with their
// debug files if installed.
func TestAgainstAddr2lineOnSystemLibraries(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a table")
	for _, file := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libm.so.6"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if _, err := os.Stat(file); err != nil {
				t.Skip("no " + file)
			}
			f := open(t, file, Options{Finder: Dirs{}})
			f.search()
			if f.DebugFile() == "" {
				tool(t, "libc6-dbg") // a package, not a program: skips or fails
			}
			compare(t, file, f.DebugFile(), 5000, true)
		})
	}
}

func compare(t *testing.T, file, debug string, n int, eu bool) {
	addrs := sample(t, debug, n)
	f := open(t, file, Options{Finder: Dirs{}, FullNames: true})
	aliases := aliasesOf(t, debug)
	bin := addr2line(t, "addr2line", debug, addrs)
	var elfutils map[uint64][]place
	if eu {
		elfutils = addr2line(t, "eu-addr2line", debug, addrs)
	}
	inlined, right, withBin := 0, 0, 0
	var wrong []string
	ResolveModule(f, addrs, func(v uint64, fr []Frame) {
		if len(fr) > 1 {
			inlined++
		}
		isBin := same(fr, bin[v], aliases)
		if isBin {
			withBin++
		}
		if isBin || same(fr, elfutils[v], aliases) {
			right++
		} else {
			wrong = append(wrong, fmt.Sprintf("at %#x\n   ours %v\n   binutils %v\n   elfutils %v", v, fr, bin[v], elfutils[v]))
		}
	})
	t.Logf("%d addresses, %d with inlined calls: %d agree with binutils, %d with one of the two", len(addrs), inlined, withBin, right)
	if float64(right) < 0.999*float64(len(addrs)) {
		t.Errorf("%d of %d addresses differ", len(wrong), len(addrs))
		for _, w := range wrong[:min(len(wrong), 5)] {
			t.Log(w)
		}
	}
	if p := f.Problems(); len(p) > 0 {
		t.Errorf("problems: %v", p)
	}
}

// TestSplitIsTheSame: moving DWARF to .dwo and .dwp files must change no result.
func TestSplitIsTheSame(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a table")
	for _, c := range []struct{ name, whole, split, need string }{
		{"gcc-5", "g++ -std=c++17 -O2 -g app.cc -o a", "g++ -std=c++17 -O2 -g -gsplit-dwarf app.cc -o a", "g++"},
		{"gcc-4", "g++ -std=c++17 -O2 -g -gdwarf-4 app.cc -o a", "g++ -std=c++17 -O2 -g -gdwarf-4 -gsplit-dwarf app.cc -o a", "g++"},
		{"rust-4-dwo", "rustc -g -O -C dwarf-version=4 app.rs -o a", "rustc -g -O -C dwarf-version=4 -C split-debuginfo=unpacked app.rs -o a", "rustc"},
		{"rust-5-dwo", "rustc -g -O -C dwarf-version=5 app.rs -o a", "rustc -g -O -C dwarf-version=5 -C split-debuginfo=unpacked app.rs -o a", "rustc"},
		{"rust-4-dwp", "rustc -g -O -C dwarf-version=4 app.rs -o a", "rustc -g -O -C dwarf-version=4 -C split-debuginfo=packed app.rs -o a; rm -f *.dwo", "rustc"},
		{"rust-5-dwp", "rustc -g -O -C dwarf-version=5 app.rs -o a", "rustc -g -O -C dwarf-version=5 -C split-debuginfo=packed app.rs -o a; rm -f *.dwo", "rustc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testprog.Need(t, c.need)
			whole, split := filepath.Join(fixture(t, c.whole), "a"), filepath.Join(fixture(t, c.split), "a")
			a, b := open(t, whole, Options{Finder: Dirs{}}), open(t, split, Options{Finder: Dirs{}})
			ta, err1 := a.main.bytes(".text")
			tb, err2 := b.main.bytes(".text")
			if err1 != nil || err2 != nil || len(ta) != len(tb) {
				t.Fatalf("the two programs differ: %d and %d bytes of code, %v %v", len(ta), len(tb), err1, err2)
			}
			n, deep := 0, 0
			for _, v := range sample(t, whole, 2000) {
				n++
				x, y := a.Frames(v, nil), b.Frames(v, nil)
				if len(x) > 1 {
					deep++
				}
				for i := range x { // folder names contain the fixture's name
					x[i].File, x[i].StartFile = path.Base(x[i].File), path.Base(x[i].StartFile)
				}
				for i := range y {
					y[i].File, y[i].StartFile = path.Base(y[i].File), path.Base(y[i].StartFile)
				}
				if fmt.Sprint(x) != fmt.Sprint(y) {
					t.Fatalf("at %#x\nwhole %v\nsplit %v\nproblems %v", v, x, y, b.Problems())
				}
			}
			if deep == 0 {
				t.Errorf("none of %d addresses has inlined calls", n)
			}
			if p := b.Problems(); len(p) > 0 {
				t.Errorf("problems: %v", p)
			}
		})
	}
}

// pclntab is the Go runtime's table as a GoTable.
type pclntab struct{ t *gopcln.Table }

func (p pclntab) Frames(vaddr uint64, buf []Frame) []Frame {
	entry, _, ok := p.t.Func(vaddr)
	if !ok {
		return buf
	}
	in := p.t.Inlines(vaddr, nil)
	for i, x := range in {
		buf = append(buf, Frame{Func: x.Func, File: x.File, Line: x.Line, Start: entry, Inlined: i < len(in)-1})
	}
	return buf
}

const goProgram = `cat > m.go <<'END'
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

type pair[K comparable, V any] struct {
	k K
	v V
}

func pairs[K comparable, V any](m map[K]V) (out []pair[K, V]) {
	for k, v := range m {
		out = append(out, pair[K, V]{k, v})
	}
	return
}

func main() {
	m := map[string]int{}
	for _, a := range os.Args {
		m[strings.ToUpper(a)]++
	}
	p := pairs(m)
	slices.SortFunc(p, func(a, b pair[string, int]) int { return strings.Compare(a.k, b.k) })
	b, err := json.Marshal(m)
	fmt.Println(p, string(b), err)
}
END
`

// TestGoAgainstItsOwnTable: Go's DWARF and the runtime's table come from the same
// compiler, so they must agree, and a stripped program must have the same names as one
// with DWARF.
func TestGoAgainstItsOwnTable(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a table")
	testprog.Need(t, "go")
	for _, c := range []struct{ name, env, flags string }{
		{"default", "", ""}, {"plain", "", "-ldflags=-compressdwarf=false"}, {"pie", "", "-buildmode=pie"},
		{"dwarf4", "GOEXPERIMENT=nodwarf5", ""}, {"arm64", "GOARCH=arm64", ""}, {"noopt", "", "'-gcflags=all=-N -l'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			build := "CGO_ENABLED=0 " + c.env + " go build " + c.flags + " "
			dir := fixture(t, goProgram+build+"-o a m.go")
			file := filepath.Join(dir, "a")
			f := open(t, file, Options{})
			r, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			arch, _ := rule.ArchOf(f.main.f.Machine)
			table, err := gopcln.Load(r, arch)
			if err != nil {
				t.Fatal(err)
			}
			stripped := open(t, file, Options{GoTable: func(io.ReaderAt) (GoTable, error) { return pclntab{table}, nil }})
			stripped.haveDwarf = true // as if it had none

			addrs := sample(t, file, 5000)
			n, right, deep := 0, 0, 0
			var wrong []string
			for _, v := range addrs {
				ours := f.Frames(v, nil)
				theirs := stripped.Frames(v, nil)
				if len(ours) == 0 || ours[len(ours)-1].File == "" {
					continue // no DWARF for wrappers and the linker's own functions
				}
				n++
				if len(ours) > 1 {
					deep++
				}
				for i := range ours {
					ours[i].StartLine, ours[i].StartFile, ours[i].Linkage = 0, "", ""
				}
				for i := range theirs {
					theirs[i].Linkage = ""
				}
				if fmt.Sprint(ours) == fmt.Sprint(theirs) {
					right++
				} else {
					wrong = append(wrong, fmt.Sprintf("at %#x\n   DWARF %v\n   table %v", v, ours, theirs))
				}
			}
			t.Logf("%d of %d addresses in DWARF, %d with inlined calls, %d agree", n, len(addrs), deep, right)
			if n < len(addrs)*8/10 || deep == 0 && c.name != "noopt" || float64(right) < 0.999*float64(n) {
				t.Errorf("%d of %d addresses differ", len(wrong), n)
				for _, w := range wrong[:min(len(wrong), 5)] {
					t.Log(w)
				}
			}
			if p := append(f.Problems(), stripped.Problems()...); len(p) > 0 {
				t.Errorf("problems: %v", p)
			}
		})
	}
}
