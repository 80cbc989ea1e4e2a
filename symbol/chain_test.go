package symbol

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// format prints frames as FUNC FILE:LINE, an inlined one in parentheses.
func format(frames []Frame) string {
	var b strings.Builder
	for _, f := range frames {
		s := fmt.Sprintf("%s %s:%d", f.Func, filepath.Base(f.File), f.Line)
		if f.Inlined {
			s = "(" + s + ")"
		}
		fmt.Fprintf(&b, "%s; ", s)
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// TestKnownChain: every format in which toolchains and distributions store DWARF must
// give the same three frames.
func TestKnownChain(t *testing.T) {
	const build = "gcc -O2 -g "
	for _, c := range []struct {
		name, script string
		needs        string
		finder       func(dir string) Finder
		debug        string // base name of the expected debug file
	}{
		{name: "O0", script: "gcc -O0 -g chain.c -o a; cp a full"},
		{name: "O2", script: build + "chain.c -o a; cp a full"},
		{name: "dwarf2", script: build + "-gdwarf-2 chain.c -o a; cp a full"},
		{name: "dwarf3", script: build + "-gdwarf-3 chain.c -o a; cp a full"},
		{name: "dwarf4", script: build + "-gdwarf-4 chain.c -o a; cp a full"},
		{name: "dwarf5", script: build + "-gdwarf-5 chain.c -o a; cp a full"},
		{name: "dwarf64", script: build + "-gdwarf-5 -gdwarf64 chain.c -o a; cp a full"},
		{name: "types", script: build + "-fdebug-types-section chain.c -o a; cp a full"},
		{name: "static", script: build + "-static chain.c -o a; cp a full"},
		{name: "static-pie", script: build + "-static-pie -fPIE chain.c -o a; cp a full"},
		{name: "sections", script: build + "-ffunction-sections -fdata-sections -Wl,--gc-sections chain.c -o a; cp a full"},
		{name: "lto", script: build + "-flto chain.c -o a; cp a full"},
		{name: "zlib", script: build + "-gz=zlib chain.c -o a; cp a full"},
		{name: "zdebug", script: build + "-gz=zlib-gnu chain.c -o a; cp a full"},
		{name: "zstd", script: build + "chain.c -o full; objcopy --compress-debug-sections=zstd full a", needs: "zstd"},
		{name: "arm64", script: "aarch64-linux-gnu-gcc -O2 -g chain.c -o a; cp a full", needs: "arm64-gcc"},
		{name: "debuglink", script: build + "-Wl,--build-id=none chain.c -o full; objcopy --only-keep-debug full b.debug; " +
			"strip -o a full; objcopy --add-gnu-debuglink=b.debug a", debug: "b.debug"},
		{name: "debuglink-folder", script: build + "-Wl,--build-id=none chain.c -o full; objcopy --only-keep-debug full b.debug; " +
			"strip -o a full; objcopy --add-gnu-debuglink=b.debug a; mkdir .debug; mv b.debug .debug", debug: "b.debug"},
		{name: "build-id", script: build + "-Wl,--build-id=0x0123456789abcdef chain.c -o full; strip -o a full; " +
			"mkdir -p d/.build-id/01; objcopy --only-keep-debug full d/.build-id/01/23456789abcdef.debug",
			finder: func(dir string) Finder { return Dirs{Extra: []string{dir + "/d"}} }, debug: "23456789abcdef.debug"},
		{name: "debuginfod-cache", script: build + "-Wl,--build-id=0x0123456789abcdef chain.c -o full; strip -o a full; " +
			"mkdir -p d/0123456789abcdef; objcopy --only-keep-debug full d/0123456789abcdef/debuginfo",
			finder: func(dir string) Finder { return Dirs{Extra: []string{dir + "/d"}} }, debug: "debuginfo"},
		{name: "root", script: build + "-Wl,--build-id=0x0123456789abcdef chain.c -o full; strip -o a full; " +
			"mkdir -p r/usr/lib/debug/.build-id/01; objcopy --only-keep-debug full r/usr/lib/debug/.build-id/01/23456789abcdef.debug",
			finder: func(dir string) Finder { return Dirs{Root: dir + "/r"} }, debug: "23456789abcdef.debug"},
		{name: "whole-copy", script: build + "-Wl,--build-id=0x0123456789abcdef chain.c -o full; strip -o a full; " +
			"mkdir d; cp full d/a",
			finder: func(dir string) Finder { return Dirs{Extra: []string{dir + "/d"}} }, debug: "a"},
		{name: "split", script: build + "-gdwarf-5 -gsplit-dwarf chain.c -o a; cp a full"},
		{name: "split4", script: build + "-gdwarf-4 -gsplit-dwarf chain.c -o a; cp a full"},
		{name: "split-debug-dir", script: build + "-gsplit-dwarf chain.c -o a; cp a full; mkdir d; mv *.dwo d",
			finder: func(dir string) Finder { return Dirs{Extra: []string{dir + "/d"}} }},
		{name: "dwp4", script: build + "-gdwarf-4 -gsplit-dwarf chain.c -o a; cp a full; dwp -e a -o a.dwp; rm *.dwo", needs: "dwp"},
		{name: "dwz", script: build + "chain.c -o a; dwz a; cp a full", needs: "dwz"},
		{name: "dwz-common", script: build + "chain.c -o a; " + build + "twin.c -o b; dwz -m common.debug a b; cp a full", needs: "dwz"},
		{name: "dwz-common5", script: build + "chain.c -o a; " + build + "twin.c -o b; dwz -5 -m common.debug a b; cp a full", needs: "dwz"},
		{name: "dwz-debuglink", script: build + "chain.c -o full; " + build + "twin.c -o b; objcopy --only-keep-debug full a.debug; " +
			"dwz -m common.debug a.debug b; strip -o a full; objcopy --add-gnu-debuglink=a.debug a", needs: "dwz", debug: "a.debug"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testprog.Need(t, "gcc", "objcopy")
			switch c.needs {
			case "", "zstd":
			case "dwz", "arm64-gcc":
				testprog.Need(t, c.needs)
			default:
				tool(t, c.needs)
			}
			dir := fixture(t, c.script)
			var finder Finder = Dirs{}
			if c.finder != nil {
				finder = c.finder(dir)
			}
			f := open(t, filepath.Join(dir, "a"), Options{Finder: finder})
			probe := symbolValue(t, filepath.Join(dir, "full"), "probe")
			got := f.Frames(probe, nil)
			m := marks(t, "chain.c")
			want := fmt.Sprintf("(leaf chain.c:%d); (middle chain.c:%d); outer chain.c:%d", m["leaf"], m["middle"], m["outer"])
			if s := format(got); s != want {
				t.Fatalf("at %#x\n got %s\nwant %s\nproblems %v", probe, s, want, f.Problems())
			}
			last := got[len(got)-1]
			if outer := symbolValue(t, filepath.Join(dir, "full"), "outer"); last.Start != outer || got[0].Start != outer {
				t.Errorf("starts are %#x and %#x, want %#x", got[0].Start, last.Start, outer)
			}
			if last.StartLine != m["start"] || filepath.Base(last.StartFile) != "chain.c" {
				t.Errorf("declared at %s:%d, want chain.c:%d", last.StartFile, last.StartLine, m["start"])
			}
			if got := filepath.Base(f.DebugFile()); c.debug != "" && got != c.debug {
				t.Errorf("debug file %q, want %q", f.DebugFile(), c.debug)
			}
			if p := f.Problems(); len(p) > 0 {
				t.Errorf("problems: %v", p)
			}
		})
	}
}

// TestNamesWithoutDwarf: without DWARF only the function is known.
func TestNamesWithoutDwarf(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"symtab", "gcc -O2 chain.c -o a; cp a full", "outer"},
		{"dynsym", "gcc -O2 -rdynamic chain.c -o full; strip -o a full", "outer"},
		{"debugdata", "gcc -O2 chain.c -o full; objcopy -S --keep-symbol=outer full mini; xz -q mini; strip -o a full; " +
			"objcopy --add-section .gnu_debugdata=mini.xz a", "outer"},
		{"debuglink-symtab", "gcc -O2 chain.c -o full; objcopy --only-keep-debug full a.debug; strip -o a full; " +
			"objcopy --add-gnu-debuglink=a.debug a", "outer"},
		{"stripped", "gcc -O2 chain.c -o full; strip -o a full", ""},
		{"arm64-dynsym", "aarch64-linux-gnu-gcc -O2 -rdynamic chain.c -o full; aarch64-linux-gnu-strip -o a full", "outer"},
		// Without section headers only the dynamic segment remains.
		{"no-sections", `gcc -O2 -rdynamic chain.c -o full; strip -o a full; cp full s; printf '\000\000\000\000\000\000\000\000' | ` +
			`dd of=a bs=1 seek=40 conv=notrunc 2>/dev/null; printf '\000\000\000\000' | dd of=a bs=1 seek=60 conv=notrunc 2>/dev/null`, "outer"},
		{"no-sections-sysv", `gcc -O2 -rdynamic -Wl,--hash-style=sysv chain.c -o full; strip -o a full; printf '\000\000\000\000\000\000\000\000' | ` +
			`dd of=a bs=1 seek=40 conv=notrunc 2>/dev/null; printf '\000\000\000\000' | dd of=a bs=1 seek=60 conv=notrunc 2>/dev/null`, "outer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testprog.Need(t, "gcc", "objcopy", "xz")
			if strings.HasPrefix(c.name, "arm64") {
				testprog.Need(t, "arm64-gcc")
			}
			dir := fixture(t, c.script)
			f := open(t, filepath.Join(dir, "a"), Options{Finder: Dirs{}})
			outer := symbolValue(t, filepath.Join(dir, "full"), "outer")
			got := f.Frames(outer+1, nil)
			switch {
			case c.want == "":
				if len(got) != 0 {
					t.Errorf("frames %+v of a stripped file", got)
				}
			case len(got) != 1 || got[0].Func != c.want || got[0].Start != outer:
				t.Errorf("frames %+v, want %s at %#x; problems %v", got, c.want, outer, f.Problems())
			}
			if p := f.Problems(); len(p) > 0 {
				t.Errorf("problems: %v", p)
			}
		})
	}
}

// TestForeignDebugFile: a debug file of another build must be rejected, both by build
// ID and by checksum.
func TestForeignDebugFile(t *testing.T) {
	testprog.Need(t, "gcc", "objcopy")
	for name, flag := range map[string]string{"build-id": "-Wl,--build-id=sha1", "checksum": "-Wl,--build-id=none"} {
		t.Run(name, func(t *testing.T) {
			dir := fixture(t, "gcc -O2 -g "+flag+" chain.c -o full; gcc -O1 -g "+flag+" twin.c -o other; "+
				"objcopy --only-keep-debug full a.debug; strip -o a full; objcopy --add-gnu-debuglink=a.debug a; "+
				"objcopy --only-keep-debug other a.debug")
			f := open(t, filepath.Join(dir, "a"), Options{Finder: Dirs{}})
			if got := f.Frames(symbolValue(t, filepath.Join(dir, "full"), "probe"), nil); len(got) != 0 || f.DebugFile() != "" {
				t.Errorf("frames %v from %q", got, f.DebugFile())
			}
		})
	}
}

// TestPipeInPlaceOfDebugFile: a special file must neither block nor fail.
func TestPipeInPlaceOfDebugFile(t *testing.T) {
	testprog.Need(t, "gcc", "objcopy")
	dir := fixture(t, "gcc -O2 -g chain.c -o full; objcopy --only-keep-debug full a.debug; strip -o a full; "+
		"objcopy --add-gnu-debuglink=a.debug a; rm a.debug; mkfifo a.debug")
	f := open(t, filepath.Join(dir, "a"), Options{Finder: Dirs{}})
	if got := f.Frames(symbolValue(t, filepath.Join(dir, "full"), "probe"), nil); len(got) != 0 {
		t.Errorf("frames %v", got)
	}
	if p := f.Problems(); len(p) > 0 {
		t.Errorf("problems: %v", p)
	}
}

// TestPiecewise: sections that are not in memory must give the same results.
func TestPiecewise(t *testing.T) {
	testprog.Need(t, "g++")
	path := filepath.Join(fixture(t, "g++ -std=c++17 -O2 -g app.cc -o a"), "a")
	whole, pieces := open(t, path, Options{}), open(t, path, Options{Budget: 1 << 20})
	pieces.main.whole = 0
	var want []string
	addrs := sample(t, path, 2000)
	ResolveModule(whole, addrs, func(_ uint64, fr []Frame) { want = append(want, fmt.Sprint(fr)) })
	i := 0
	ResolveModule(pieces, addrs, func(v uint64, fr []Frame) {
		if got := fmt.Sprint(fr); got != want[i] {
			t.Errorf("at %#x\n got %s\nwant %s", v, got, want[i])
		}
		i++
	})
	if i != len(addrs) {
		t.Errorf("%d of %d answers", i, len(addrs))
	}
}

func TestBuildID(t *testing.T) {
	testprog.Need(t, "gcc", "objcopy", "go")
	dir := fixture(t, "gcc -O2 -Wl,--build-id=0x0123456789abcdef chain.c -o id; gcc -O2 -Wl,--build-id=none chain.c -o none; "+
		`printf 'package main\nfunc main() {}\n' >m.go; go build -ldflags='-buildid=a/b-c -B none' -o goid m.go; echo text >text; `+
		"cp id nosec; printf '\\000\\000\\000\\000\\000\\000\\000\\000' | dd of=nosec bs=1 seek=40 conv=notrunc 2>/dev/null; "+
		"printf '\\000\\000\\000\\000' | dd of=nosec bs=1 seek=60 conv=notrunc 2>/dev/null")
	for _, c := range []struct{ file, want, err string }{
		{"id", "0123456789abcdef", ""},
		{"nosec", "0123456789abcdef", ""},
		{"goid", "a/b-c", ""},
		{"none", "", "no build ID"},
		{"text", "", "build ID"},
	} {
		r, err := os.Open(filepath.Join(dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := BuildID(r)
		r.Close()
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %q", c.file, got, err, c.want, c.err)
		}
	}
}
