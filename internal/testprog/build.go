// Package testprog provides real programs for tests: it compiles the sources below
// testdata/targets into a cache, starts them, and reads the reports in which they log
// what they did and when. It has the single rule for skipping a test whose tools are
// missing (Need). The comparisons are left to the tests. Only tests import it. All
// functions may be called concurrently, also by several test processes at once.
package testprog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// CacheVar names the environment variable for the folder of compiled programs; the
// default is sliver-test in the user's cache folder.
const CacheVar = "SLIVER_TEST_CACHE"

// staleAfter is the age at which a program of other sources or another compiler is
// removed.
const staleAfter = 14 * 24 * time.Hour

// Build compiles one variant of a program (Programs, Variants), unless the cache has it,
// and returns its path in a separate folder with the files that belong to it
// ("chain.debug"). It skips or fails as Need does if the compiler is missing.
//
// The stripped variants have the code of their twins ("stripped" that of "O2", "release"
// or "default", "X-stripped" that of "X") at the same vaddr, so that the twin provides
// the names (except Go and C linked by Go, whose addresses differ).
func Build(t testing.TB, program, variant string) string {
	t.Helper()
	r, ok := programs[program][variant]
	if !ok {
		t.Fatalf("testprog: no variant %q of %q: there are %v of %v", variant, program, Variants(program), Programs())
	}
	Need(t, r.compiler)
	if r.post != "" {
		Need(t, posts[r.post].needs...)
	}
	if slices.Contains(r.env, "CGO_ENABLED=1") {
		Need(t, "gcc")
	}
	path, err := r.build(CacheDir(t), filepath.Join(Root(t), "testdata", "targets"), program, variant)
	if err != nil {
		t.Fatalf("testprog: build %s %s: %v", program, variant, err)
	}
	return path
}

// Root returns the project's folder: the one with go.mod, at or above the working
// directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("testprog: no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

// CacheDir returns the folder for files that tests create once and reuse.
func CacheDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(CacheVar)
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(user, "sliver-test")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// build returns the program's path in the cache. The folder's name contains a hash of
// everything the program depends on. The folder appears complete, by a rename, and a lock
// prevents several processes from building it at the same time.
func (r recipe) build(cache, sources, program, variant string) (string, error) {
	base := filepath.Base(program)
	if strings.HasSuffix(base, "lib") {
		base += ".so"
	}
	key, err := r.key(sources, program)
	if err != nil {
		return "", err
	}
	stem := strings.ReplaceAll(program, "/", "-") + "-" + variant + "@"
	dir := filepath.Join(cache, stem+key)
	path := filepath.Join(dir, base)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	unlock, err := lockFile(filepath.Join(cache, stem+"lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process made it in the meantime
	}
	removeStale(cache, stem)
	work, err := os.MkdirTemp(cache, "building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil { // other users run the programs too
		return "", err
	}
	args, err := r.command(program, sources, filepath.Join(work, base))
	if err != nil {
		return "", err
	}
	if err := execute(work, r.env, args...); err != nil {
		return "", err
	}
	if r.post != "" {
		if err := execute(work, nil, "sh", "-ec", posts[r.post].script, "sh", base); err != nil {
			return "", err
		}
	}
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, nil
}

// key returns a hash over everything that the program is built from and with.
func (r recipe) key(sources, program string) (string, error) {
	version, err := compilerVersion(tools[r.compiler][0])
	if err != nil {
		return "", err
	}
	args, err := r.command(program, sources, "")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q\n", version, args, r.env, posts[r.post])
	for _, sub := range []string{"include", filepath.Dir(program)} {
		err := filepath.WalkDir(filepath.Join(sources, sub), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprintf(h, "%q\n", path)
			_, err = io.Copy(h, f)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// versions caches the version of each compiler, which does not change while a test
// process runs.
var versions sync.Map

func compilerVersion(compiler string) (string, error) {
	if v, ok := versions.Load(compiler); ok {
		return v.(string), nil
	}
	arg := "--version"
	if compiler == "go" {
		arg = "version"
	}
	out, err := exec.Command(compiler, arg).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", compiler, arg, err)
	}
	versions.Store(compiler, string(out))
	return string(out), nil
}

func execute(dir string, env []string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), append([]string{"GOFLAGS=", "GOWORK=off"}, env...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out.Bytes())
	}
	return nil
}

// lockFile waits for the file's lock and returns a function that releases it.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != syscall.EINTR {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// removeStale removes old programs of other sources. It ignores errors.
func removeStale(cache, stem string) {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), stem) && time.Since(info.ModTime()) > staleAfter {
			os.RemoveAll(filepath.Join(cache, e.Name()))
		}
	}
}
