package symbol

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// tool skips the test if a program outside testprog's list is missing, or fails it if
// SLIVER_REQUIRE names the program.
func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	required := strings.Split(os.Getenv(testprog.RequireVar), ",")
	if slices.Contains(required, name) || slices.Contains(required, "all") {
		t.Fatalf("%s is required by %s: %v", name, testprog.RequireVar, err)
	}
	t.Skipf("needs %s: %v", name, err)
	return ""
}

// fixture runs a shell script in a folder with copies of testdata's sources and returns
// the folder. It is cached while sources, script and compilers stay the same.
func fixture(t testing.TB, script string) string {
	t.Helper()
	h := sha256.New()
	fmt.Fprintln(h, script)
	src, err := filepath.Glob("testdata/*.*")
	if err != nil || len(src) == 0 {
		t.Fatal("no sources", err)
	}
	for _, s := range src {
		b, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s %x\n", s, sha256.Sum256(b))
	}
	for _, w := range strings.Fields("gcc g++ rustc go objcopy dwz dwp aarch64-linux-gnu-gcc") {
		if strings.Contains(script, w+" ") {
			arg := "--version"
			if w == "go" {
				arg = "version"
			}
			out, _ := exec.Command(w, arg).Output()
			h.Write(out)
		}
	}
	base := filepath.Join(testprog.CacheDir(t), "symbol")
	dir := filepath.Join(base, hex.EncodeToString(h.Sum(nil)[:10]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(base, "building-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	for _, s := range src {
		b, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, filepath.Base(s)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Some versions of these tools never end on foreign input.
	cmd := exec.Command("timeout", "300", "sh", "-ec", script)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GO111MODULE=off", "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	if err := os.Rename(work, dir); err != nil {
		if _, e := os.Stat(dir); e != nil { // no other test was faster
			t.Fatal(err)
		}
	}
	return dir
}

// open opens a file with its name sources; it is closed with the test.
func open(t testing.TB, path string, o Options) *File {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	o.Path = path
	f, err := Open(r, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); r.Close() })
	return f
}

// elfSymbols returns the symbols of a file that is not stripped.
func elfSymbols(t testing.TB, path string) []elf.Symbol {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.Symbols()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return s
}

// symbolValue returns the vaddr of a symbol.
func symbolValue(t testing.TB, path, name string) uint64 {
	t.Helper()
	for _, s := range elfSymbols(t, path) {
		if s.Name == name && s.Section != elf.SHN_UNDEF {
			return s.Value
		}
	}
	t.Fatalf("%s: no symbol %s", path, name)
	return 0
}

// sample returns n addresses, sorted and without duplicates, inside functions that have
// a symbol with a size. It excludes the padding between functions.
func sample(t testing.TB, path string, n int) []uint64 {
	t.Helper()
	var fns []elf.Symbol
	total := uint64(0)
	for _, s := range elfSymbols(t, path) {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Section != elf.SHN_UNDEF {
			fns = append(fns, s)
			total += s.Size
		}
	}
	if total == 0 {
		t.Fatalf("%s: no functions", path)
	}
	rnd := rand.New(rand.NewSource(1))
	var out []uint64
	for range n {
		x := uint64(rnd.Int63n(int64(total)))
		for _, s := range fns {
			if x < s.Size {
				out = append(out, s.Value+x)
				break
			}
			x -= s.Size
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// marks returns the lines of a source in testdata that end in "mark:NAME".
func marks(t testing.TB, source string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", source))
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string]int)
	for i, l := range strings.Split(string(b), "\n") {
		if _, name, ok := strings.Cut(l, "mark:"); ok {
			m[name] = i + 1
		}
	}
	return m
}
