package gopcln

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sliverprof/sliver/unwind/rule"
)

// required reports whether SLIVER_REQUIRE contains word.
func required(word string) bool {
	for _, w := range strings.Split(os.Getenv("SLIVER_REQUIRE"), ",") {
		if w == word || w == "all" {
			return true
		}
	}
	return false
}

// need skips the test with a reason, unless SLIVER_REQUIRE contains word.
func need(t testing.TB, word, why string) {
	t.Helper()
	if required(word) {
		t.Fatalf("SLIVER_REQUIRE has %s: %s", word, why)
	}
	t.Skip(why)
}

// target is one way to build a program in testdata.
type target struct {
	prog string // folder in testdata
	arch string
	env  string // one variable for go build
	args []string
}

var building sync.Mutex

// build builds a target, once per toolchain and source, and returns its path.
func build(t testing.TB, b target) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	dir, err := filepath.Abs(filepath.Join("testdata", b.prog))
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	arch := b.arch
	if arch == "" {
		arch = runtime.GOARCH
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(b, runtime.Version(), string(src)))))
	out := filepath.Join(cache, "sliver-test", "gopcln-"+key[:24])
	if _, err := os.Stat(out); err == nil {
		return out
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		t.Fatal(err)
	}
	cgo := "CGO_ENABLED=0"
	if b.prog == "cgo" {
		if _, err := exec.LookPath("gcc"); err != nil {
			need(t, "gcc", "gcc is not installed")
		}
		cgo = "CGO_ENABLED=1"
	}
	tmp := fmt.Sprintf("%s.%d", out, os.Getpid())
	cmd := exec.Command("go", append(append([]string{"build", "-buildvcs=false", "-o", tmp}, b.args...), ".")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOENV=off", "GOOS=linux", "GOARCH="+arch, cgo)
	if b.env != "" {
		cmd.Env = append(cmd.Env, b.env)
		if !required("gotoolchains") {
			cmd.Env = append(cmd.Env, "GOPROXY=off") // use installed toolchains only
		}
		if strings.HasPrefix(b.env, "GOTOOLCHAIN=go1.1") { // versions before 1.18 lack -buildvcs
			cmd.Args = append(cmd.Args[:2:2], cmd.Args[3:]...)
		}
	}
	if msg, err := cmd.CombinedOutput(); err != nil {
		if strings.HasPrefix(b.env, "GOTOOLCHAIN=") {
			need(t, "gotoolchains", fmt.Sprintf("%s: %v: %s", b.env, err, bytes.TrimSpace(msg)))
		}
		t.Fatalf("%v: %v\n%s", cmd, err, msg)
	}
	if err := os.Rename(tmp, out); err != nil {
		t.Fatal(err)
	}
	return out
}

var (
	plainBuild = target{prog: "prog", args: []string{"-ldflags=-compressdwarf=false"}}
	arm64Build = target{prog: "prog", arch: "arm64", args: []string{"-ldflags=-compressdwarf=false"}}

	builds = map[string]target{
		"plain":              plainBuild,
		"stripped":           {prog: "prog", args: []string{"-ldflags=-s -w"}},
		"pie":                {prog: "prog", args: []string{"-buildmode=pie"}},
		"stripped pie":       {prog: "prog", args: []string{"-buildmode=pie", "-ldflags=-s -w"}},
		"cgo":                {prog: "cgo", args: []string{"-ldflags=-linkmode=internal"}},
		"cgo external":       {prog: "cgo", args: []string{"-ldflags=-linkmode=external"}},
		"cgo stripped":       {prog: "cgo", args: []string{"-ldflags=-linkmode=external -s -w"}},
		"cgo pie":            {prog: "cgo", args: []string{"-buildmode=pie", "-ldflags=-linkmode=external"}},
		"cgo stripped pie":   {prog: "cgo", args: []string{"-buildmode=pie", "-ldflags=-linkmode=external -s -w"}},
		"arm64":              arm64Build,
		"arm64 stripped pie": {prog: "prog", arch: "arm64", args: []string{"-buildmode=pie", "-ldflags=-s -w"}},
	}
)

// load loads a built target.
func load(t testing.TB, path string) (*Table, *elf.File) {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f, err := elf.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	arch, ok := rule.ArchOf(f.Machine)
	if !ok {
		t.Fatal("machine", f.Machine)
	}
	tab, err := Load(r, arch)
	if err != nil {
		t.Fatal(err)
	}
	return tab, f
}
