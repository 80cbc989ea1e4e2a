package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// unknowns are programs of runtimes whose data is unknown or missing.
var unknowns = []struct {
	name  string
	start func(t *testing.T) *testprog.Proc
	line  string // the only message, a regular expression; "": none
	deep  int    // minimum number of frames of a thread
	shown string // kinds of managed frames that are still shown
}{
	{"native image", nativeImage, `no Java frames: compiler is a native image \(GraalVM CE 24\.[0-9.+]+\): its methods are shown as the machine code that they became`, 8, ""},
	{"OpenJ9", openJ9, `no Java frames: OpenJ9 does not describe itself as HotSpot does: its stacks are shown as machine code`, 10, ""},
	{"Java 99", java99, `no Java frames: HotSpot 99: 17, 21 and 25 are known`, 3, ""},
	{"Python 3.7", func(t *testing.T) *testprog.Proc { return python(t, testprog.Tool(t, "python3.7")) },
		`Python 3\.7 or older is not known: its stacks are shown as C alone; 3\.8 to 3\.14 with the global lock are`, 5, ""},
	{"Python 3.99", python99, `Python 3\.99\.[0-9]+ is not known: its stacks are shown as C alone; 3\.8 to 3\.14 with the global lock are`, 5, ""},
	{"Python without the global lock", pythonThreaded,
		`CPython 3\.13\.[0-9]+: Python 3\.13 without the global lock is not known: its stacks are shown as C alone; 3\.8 to 3\.14 with the global lock are`, 5, ""},
	{"stripped node", strippedNode, ``, 5, "js"},
	{"node without V8's symbols", func(t *testing.T) *testprog.Proc {
		if os.Getenv("SLIVER_LONG") == "" {
			t.Skip("session's TestNodeNames has this program") // copying node takes a second
		}
		return node(t, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\x00v8dbg_"), []byte("\x00x8dbg_")) })
	}, `V8 [0-9.]+: the file lacks the symbol v8dbg_[a-zA-Z_]+; its stacks are shown as machine code, with names where --perf-basic-prof has them`, 5, ""},
	{"node without any", func(t *testing.T) *testprog.Proc {
		return node(t, func(b []byte) []byte {
			b = bytes.ReplaceAll(b, []byte("\x00v8dbg_"), []byte("\x00x8dbg_"))
			return bytes.ReplaceAll(b, []byte("\x00_ZN2v88internal7Version"), []byte("\x00_ZN2x88internal7Version"))
		})
	}, `JavaScript: the program has Node's interface, and does not say where its engine's data is; its stacks are shown as machine code, with names where --perf-basic-prof has them`, 5, ""},
	{"unknown V8", func(t *testing.T) *testprog.Proc { return node(t, newerV8(t)) }, `V8 [0-9.]+ is not known \(Node [0-9, ]+ are\): functions of JavaScript may be missing from its stacks`, 5, "js"},
	{"unknown V8 with other data", func(t *testing.T) *testprog.Proc {
		newer := newerV8(t)
		return node(t, func(b []byte) []byte {
			b = newer(b)
			b[offsetOf(t, b, "v8dbg_class_JSFunction__shared__SharedFunctionInfo")] += 8
			return b
		})
	}, `V8 [0-9]+\.99?\.[0-9]+: its data is not where it is in the versions that are known \(Node 18, 20, 22, 24\); its stacks are shown as machine code, with names where --perf-basic-prof has them`, 5, ""},
}

// TestUnknownRuntimes: an unknown runtime costs one explanatory line and nothing else: stacks show machine
// code, and sliver's status is 0. Offsets of a tested version are not assumed for another one unless they
// were verified.
func TestUnknownRuntimes(t *testing.T) {
	testprog.Whole(t, "many runtimes, each with a patched copy")
	for _, u := range unknowns {
		t.Run(u.name, func(t *testing.T) {
			testprog.Need(t, "ptrace")
			p := u.start(t)
			line := regexp.MustCompile(`^(?:sliver: process \d+: )?` + u.line + `$`)
			said := func(what string, lines []string) {
				t.Helper()
				if u.line == "" && len(lines) > 0 || u.line != "" && (len(lines) != 1 || !line.MatchString(lines[0])) {
					t.Errorf("%s says %q, not once %q", what, lines, u.line)
				}
			}

			var l look
			waitFor(t, func() bool { // a thread may briefly have a shallower stack
				last := sliver(t, t.TempDir(), "stack", "--json", pidOf(p))
				if last.status != 0 {
					t.Fatalf("stack: %+v", last)
				}
				if l = (look{}); json.Unmarshal([]byte(last.out), &l) != nil {
					t.Fatalf("%+v", last)
				}
				said("stack", split(last.errors))
				deepest, managed := 0, 0
				for i := range l.Threads {
					deepest = max(deepest, len(l.Threads[i].Frames))
					for _, f := range l.Threads[i].Frames {
						if f.Kind == "js" || f.Kind == "java" || f.Kind == "python" {
							managed++
						}
					}
				}
				if u.shown == "" && managed > 0 {
					t.Fatalf("%d managed frames", managed)
				}
				return t.Failed() || deepest >= u.deep && (u.shown == "" || managed > 0)
			})

			dir := t.TempDir()
			folded := func(args ...string) []byte {
				t.Helper()
				file := filepath.Join(dir, "x.folded")
				if e := sliver(t, dir, append([]string{"export", "x.sliver", "-o", file}, args...)...); e.status != 0 {
					t.Fatalf("export %v: %+v", args, e)
				}
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			recordUntil(t, dir, 400*time.Millisecond, func(r result) bool {
				var sum struct {
					Samples  int
					Problems []string
				}
				if err := json.Unmarshal([]byte(r.out), &sum); err != nil || r.errors != "" {
					t.Fatalf("record: %v: %+v", err, r)
				}
				said("record", sum.Problems)
				deepest := 0
				for s := range bytes.Lines(folded()) {
					deepest = max(deepest, bytes.Count(s, []byte(";")))
				}
				managed := folded("--kinds", "java,python,js")
				shown := ofFrames.Match(managed)
				if shown && u.shown == "" {
					t.Fatalf("managed frames of the recording:\n%s", managed)
				}
				return t.Failed() || sum.Samples >= 10 && deepest >= u.deep && (shown || u.shown == "")
			}, "-p", pidOf(p), "-q", "-o", "x.sliver")
		})
	}
}

// ofFrames matches a stack that does not consist of gaps.
var ofFrames = regexp.MustCompile(`(?m)^[^;\n]+;(.*;)?[^\[;]`)

// split returns the lines of s that are not empty.
func split(s string) (lines []string) {
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

// nativeImage starts Google's Closure Compiler, built by GraalVM, reading a program.
func nativeImage(t *testing.T) *testprog.Proc {
	p := testprog.Start(t, testprog.Tool(t, "closure"), "--js", "-", "--js_output_file", os.DevNull)
	return p
}

// openJ9 starts a program that looks like OpenJ9 from outside: see the source. The real one is not available
// from the package sources of the tests. In the lists of Debian 12, PyPI and npm, and in the available part
// of Maven Central's, openj9, j9vm, semeru, ibm-jdk, ibm-java and adoptopenjdk match only installers, which
// download it from elsewhere.
func openJ9(t *testing.T) *testprog.Proc {
	gcc, dir := testprog.Tool(t, "gcc"), t.TempDir()
	source := filepath.Join(testprog.Root(t), "testdata", "targets", "java", "openj9", "vm.c")
	for _, args := range [][]string{
		{"-DVM", "-shared", "-fPIC", "-o", "libj9vm29.so"},
		{"-DJVM", "-shared", "-fPIC", "-o", "libjvm.so"},
		{"-o", "java"},
	} {
		cmd := exec.Command(gcc, append(append([]string{"-O1", "-Wall"}, args...), source, "-lpthread", "-ldl")...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	p := testprog.Start(t, filepath.Join(dir, "java"), dir)
	p.Line("running")
	return p
}

// java99 starts a copy of Java 17 whose library reports version 99.
func java99(t *testing.T) *testprog.Proc {
	java := testprog.Tool(t, "java17")
	from, err := filepath.EvalSymlinks(filepath.Dir(filepath.Dir(java)))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	real := map[string]func([]byte) []byte{"bin/java": nil, "lib/libjli.so": nil, "lib/server/libjvm.so": func(b []byte) []byte {
		at := hotspotVersion(t, b)
		if is := binary.LittleEndian.Uint32(b[at:]); is != 17 {
			t.Fatalf("the library's version is %d", is)
		}
		binary.LittleEndian.PutUint32(b[at:], 99)
		return b
	}}
	for _, sub := range []string{"", "bin", "lib", "lib/server"} { // other files stay where they are
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadDir(filepath.Join(from, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			name := filepath.Join(sub, f.Name())
			change, copied := real[name]
			if name == "bin" || name == "lib" || name == "lib/server" {
				continue
			}
			if !copied {
				err = os.Symlink(filepath.Join(from, name), filepath.Join(dir, name))
			} else {
				err = patched(filepath.Join(from, name), filepath.Join(dir, name), change)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := exec.Command(filepath.Join(dir, "bin", "java"), "-Xmx64m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "Park"), "Park")
	cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=")
	p := testprog.StartCmd(t, cmd)
	p.Line("parked")
	return p
}

// patched copies a program and applies change to its bytes, if not nil.
func patched(from, to string, change func([]byte) []byte) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if change != nil {
		b = change(b)
	}
	return os.WriteFile(to, b, 0o755)
}

// hotspotVersion returns the file offset of the version number in libjvm.so's tables: an entry of
// gHotSpotVMStructs (typeName, fieldName, typeString, isStatic, offset, address) is built by relocations.
func hotspotVersion(t *testing.T, b []byte) int {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	name := bytes.Index(b, []byte("\x00_vm_major_version\x00")) + 1
	relocations := f.Section(".rela.dyn")
	if name == 0 || relocations == nil {
		t.Fatal("no name, or no relocations")
	}
	words, err := relocations.Data()
	if err != nil {
		t.Fatal(err)
	}
	addends := map[uint64]uint64{}
	var entry uint64
	for ; len(words) >= 24; words = words[24:] {
		at, addend := binary.LittleEndian.Uint64(words), binary.LittleEndian.Uint64(words[16:])
		if addends[at] = addend; inFile(f, addend) == name {
			entry = at - 8
		}
	}
	at := inFile(f, addends[entry+40])
	if entry == 0 || at < 0 {
		t.Fatal("no entry of the version")
	}
	return at
}

// inFile converts a vaddr to a file offset; -1: not in the file.
func inFile(f *elf.File, vaddr uint64) int {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			return int(vaddr - p.Vaddr + p.Off)
		}
	}
	return -1
}

// offsetOf returns the file offset of an exported symbol's data.
func offsetOf(t *testing.T, b []byte, name string) int {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			if at := inFile(f, s.Value); at >= 0 {
				return at
			}
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

func python(t *testing.T, path string, env ...string) *testprog.Proc {
	cmd := exec.Command(path, filepath.Join(testprog.Root(t), "testdata", "targets", "python", "gil.py"))
	cmd.Env = append(os.Environ(), env...)
	p := testprog.StartCmd(t, cmd)
	p.Line("fighting")
	return p
}

// python99 starts Python 3.12 with a library that reports version 3.99.
func python99(t *testing.T) *testprog.Proc {
	return changedPython(t, "3.12", func(b []byte) []byte {
		b[offsetOf(t, b, "Py_Version")+2] = 99 // 0x030c01f0, little-endian
		return b
	})
}

// pythonThreaded starts Python 3.13 with a library that describes itself as one without the global lock
// (free_threaded of Include/internal/pycore_runtime.h).
func pythonThreaded(t *testing.T) *testprog.Proc {
	return changedPython(t, "3.13", func(b []byte) []byte {
		b[offsetOf(t, b, "_PyRuntime")+16] = 1
		return b
	})
}

// changedPython starts a version of Python whose library, or program, is changed.
func changedPython(t *testing.T, version string, change func([]byte) []byte) *testprog.Proc {
	path, err := filepath.EvalSymlinks(testprog.Tool(t, "python"+version))
	if err != nil {
		t.Fatal(err)
	}
	home, dir := filepath.Dir(filepath.Dir(path)), t.TempDir()
	name := "libpython" + version + ".so.1.0"
	if libs, _ := filepath.Glob(filepath.Join(home, "lib", name)); len(libs) > 0 {
		err = patched(libs[0], filepath.Join(dir, name), change)
	} else {
		file := filepath.Join(dir, "python"+version)
		err = patched(path, file, change)
		path = file
	}
	if err != nil {
		t.Fatal(err)
	}
	return python(t, path, "LD_LIBRARY_PATH="+dir, "PYTHONHOME="+home)
}

// node starts a patched Node that sleeps in JavaScript.
func node(t *testing.T, change func([]byte) []byte) *testprog.Proc {
	path := filepath.Join(t.TempDir(), "node")
	if err := patched(testprog.Tool(t, "node"), path, change); err != nil {
		t.Fatal(err)
	}
	return sleeper(t, path)
}

func sleeper(t *testing.T, path string) *testprog.Proc {
	p := testprog.Start(t, path, "-e", `
		function a1(n) { return n ? a2(n - 1) : sleeper(); }
		function a2(n) { return a3(n) + 1; }
		function a3(n) { return a4(n) + 1; }
		function a4(n) { return a1(n) + 1; }
		function sleeper() { console.log("asleep"); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600000); return 1; }
		a1(3);`)
	p.Line("asleep")
	return p
}

func strippedNode(t *testing.T) *testprog.Proc {
	path := filepath.Join(t.TempDir(), "node")
	if err := patched(testprog.Tool(t, "node"), path, nil); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testprog.Tool(t, "strip"), path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return sleeper(t, path)
}

// newerV8 makes a Node report a nonexistent V8 version, also to its own snapshots, which have the version in
// their first words, preceded by a checksum of everything after it (src/snapshot/snapshot.cc of V8 11.3.244:
// Adler-32 that begins with 0).
func newerV8(t *testing.T) func(b []byte) []byte {
	return func(b []byte) []byte {
		part := func(name string) []byte { return b[offsetOf(t, b, "_ZN2v88internal7Version6"+name+"_E"):][:4] }
		number := binary.LittleEndian.Uint32
		major, minor, build := number(part("major")), number(part("minor")), number(part("build"))
		newer := uint32(9) // the same number of digits
		if minor > 9 {
			newer = 99
		}
		is, says := fmt.Appendf(nil, "%d.%d.%d.", major, minor, build), fmt.Appendf(nil, "%d.%d.%d.", major, newer, build)
		snapshots := 0
		for at := range indices(b, is) {
			if length := summed(b[at:], number(b[at-4:])); length > 0 { // unchanged inside a snapshot's text
				snapshots++
				copy(b[at:], says)
				binary.LittleEndian.PutUint32(b[at-4:], adler(b[at:at+length]))
			}
		}
		if snapshots == 0 {
			t.Fatalf("no snapshot of V8 %s has its sum before its version", is)
		}
		binary.LittleEndian.PutUint32(part("minor"), newer)
		return b
	}
}

// indices yields the positions of what in b.
func indices(b, what []byte) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], what)
			if i < 0 || !yield(at+i) {
				return
			}
			at += i
		}
	}
}

const adlerBase = 65521

func adler(b []byte) uint32 {
	var low, high uint32
	for _, c := range b {
		low = (low + uint32(c)) % adlerBase
		high = (high + low) % adlerBase
	}
	return high<<16 | low
}

// summed returns how many bytes of b have this checksum; 0: none, so b is not a snapshot.
func summed(b []byte, sum uint32) int {
	var low, high uint32
	for i, c := range b[:min(len(b), 8<<20)] {
		low = (low + uint32(c)) % adlerBase
		if high = (high + low) % adlerBase; high<<16|low == sum && i > 4096 {
			return i + 1
		}
	}
	return 0
}

// TestNativeImageBusy: stacks of a busy native image are complete, although the file has almost no data about
// its frames.
func TestNativeImageBusy(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := nativeImage(t)
	var js strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&js, "function f%d(a, b) { var c = a * %d + b; for (var i = 0; i < c; i++) { if (i %% 3 == a) { b += f%d(i, c); } } return [a, b, c]; }\n", i, i, i/2)
	}
	p.Say(js.String())
	p.CloseInput()
	waitFor(t, func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/task", p.PID))
		l, _ := stackUntil(t, func(*look) bool { return true }, pidOf(p))
		for i := range l.Threads {
			if l.Threads[i].State == "running" && len(l.Threads[i].Frames) > 10 {
				return true
			}
		}
		return err != nil
	})
	r := recordEnough(t, t.TempDir(), 30, time.Second, "-p", pidOf(p), "-i", "2ms", "-q", "-o", "x.sliver")
	var sum struct{ Stops, Clocked, Truncated int }
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil || r.status != 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	n := sum.Stops + sum.Clocked
	t.Logf("%d stops and copies, %d of the stacks with gaps", n, sum.Truncated)
	if n < 30 || sum.Truncated*50 > n {
		t.Errorf("%d of %d stacks have gaps", sum.Truncated, n)
	}
}
