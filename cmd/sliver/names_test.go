package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/symbol"
)

// stack and top name a stripped program with files from --debuginfod. The second time
// they contact no server, and with the name cache they do not even read the file.
func TestNamesFromServer(t *testing.T) {
	testprog.Whole(t, "package symbol has the client's own tests")
	testprog.Need(t, "ptrace", "gcc", "objcopy", "strip")
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	full := testprog.Build(t, "c/spin", "O0")
	script := `objcopy --only-keep-debug "$1" debug && cp "$1" spin && strip -s spin`
	cmd := exec.Command("sh", "-ec", script, "sh", full)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(full)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := symbol.BuildID(f)
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/buildid/"+id+"/debuginfo" {
			http.NotFound(w, r)
			return
		}
		asked.Add(1)
		http.ServeFile(w, r, filepath.Join(dir, "debug"))
	}))
	defer server.Close()
	p := testprog.Start(t, filepath.Join(dir, "spin"), "--seconds", "120", "--wait-go")
	p.Ready()
	p.Go()
	cacheHome := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := slivercmd(t, dir, append(args, fmt.Sprint(p.PID))...)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome, "DEBUGINFOD_URLS="+server.URL)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, errs.String())
		}
		return out.String()
	}
	stack := []string{"stack", "--json"}
	top := []string{"top", "--json", "-d", "500ms", "-i", "5ms"}
	for _, args := range [][]string{stack, top} {
		if out := run(args...); strings.Contains(out, "spin.c") || strings.Contains(out, `"main"`) {
			t.Errorf("%v knows names that are nowhere:\n%s", args, out)
		}
	}
	if asked.Load() != 0 {
		t.Error("the server was asked by who was not to")
	}
	for _, args := range [][]string{stack, top} {
		if out := run(append(args, "--debuginfod")...); !strings.Contains(out, `"main"`) {
			t.Errorf("%v does not know main:\n%s", args, out)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times, want once", n)
	}
	server.Close()
	if err := os.RemoveAll(filepath.Join(cacheHome, "sliver", "debuginfod")); err != nil {
		t.Fatal(err)
	}
	if out := run(stack...); !strings.Contains(out, `"main"`) {
		t.Errorf("the cache lacks main:\n%s", out)
	}
	if out := run(append(stack, "--no-symbol-cache")...); strings.Contains(out, `"main"`) {
		t.Errorf("without the cache, main is known:\n%s", out)
	}
	if out := run(append(stack, "--no-symbol-cache", "--debug-dir", dir)...); strings.Contains(out, `"main"`) {
		t.Errorf("a folder without the debug file knows main:\n%s", out)
	}
	if err := os.Rename(filepath.Join(dir, "debug"), filepath.Join(dir, id+".debug")); err != nil {
		t.Fatal(err)
	}
	if out := run(append(stack, "--no-symbol-cache", "--debug-dir", dir)...); !strings.Contains(out, `"main"`) {
		t.Errorf("--debug-dir is not looked at:\n%s", out)
	}
}

// stack and top have the names and lines of code that a program registers with GDB's JIT
// interface.
func TestNamesOfGDBJIT(t *testing.T) {
	testprog.Need(t, "ptrace", "gcc")
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "made.o")
	cmd := exec.Command("gcc", "-x", "c", "-c", "-O2", "-g", "-fno-omit-frame-pointer", "-fcf-protection=none", "-DNAME=made_here",
		"-o", file, filepath.Join(testprog.Root(t), "testdata/targets/c/jitted.h"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := testprog.Start(t, testprog.Build(t, "c/gdbjit", "O2"), file)
	p.Ready()
	p.Go()
	for _, args := range [][]string{{"stack", "--json"}, {"top", "--json", "-d", "500ms", "-i", "5ms"}} {
		var last result
		waitFor(t, func() bool {
			last = sliver(t, t.TempDir(), append(args, fmt.Sprint(p.PID))...)
			return last.status == 0 && strings.Contains(last.out, `"jitted_middle"`)
		})
		if !strings.Contains(last.out, `"made_here"`) || args[0] == "stack" && !strings.Contains(last.out, "jitted.h") {
			t.Errorf("%v:\n%s%s", args, last.out, last.errors)
		}
	}
}

// A home folder that does not exist is not made for the caches in it.
func TestNoHome(t *testing.T) {
	home, chosen := t.TempDir(), filepath.Join(t.TempDir(), "chosen")
	for _, c := range []struct {
		home, chosen, want string // want "": an error
	}{
		{home, "", filepath.Join(home, ".cache")},
		{filepath.Join(home, "missing"), "", ""},
		{filepath.Join(home, "missing"), chosen, chosen},
		{"", "", ""},
	} {
		t.Setenv("HOME", c.home)
		t.Setenv("XDG_CACHE_HOME", c.chosen)
		if dir, err := userCache(); err != nil && c.want != "" || err == nil && dir != c.want {
			t.Errorf("%+v: %s, %v", c, dir, err)
		}
	}
	t.Setenv("HOME", filepath.Join(home, "missing"))
	t.Setenv("XDG_CACHE_HOME", "")
	if s, err := (&nameFlags{}).sources("report", io.Discard); err != nil || s.cache != nil {
		t.Errorf("%+v, %v, want names without a cache", s, err)
	}
	if _, err := os.Stat(filepath.Join(home, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the home folder was made: %v", err)
	}
}
