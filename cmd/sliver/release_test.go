package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// release runs release/build.sh in a clone of the present commit and returns SHA256SUMS and the folder.
func release(t *testing.T, args ...string) (sums, out string) {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	for _, c := range []*exec.Cmd{
		exec.CommandContext(t.Context(), testprog.Tool(t, "git"), "clone", "--quiet", "--no-local", testprog.Root(t), clone),
		exec.CommandContext(t.Context(), filepath.Join(clone, "release", "build.sh"), args...),
	} {
		// The sources may belong to another user.
		c.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
		if msg, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, msg)
		}
	}
	out = filepath.Join(clone, "release", "out")
	b, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b), out
}

// TestRelease: the same commit gives the same files in any folder, and the program of the archive is
// static, knows its version, and records. In the long form the packages, too.
func TestRelease(t *testing.T) {
	testprog.Whole(t, "it builds the release twice")
	testprog.Need(t, "ptrace", "git")
	if _, err := os.Stat(filepath.Join(testprog.Root(t), ".git")); err != nil {
		t.Skip("these sources are not a clone")
	}
	long := os.Getenv("SLIVER_LONG") != ""
	args := []string{"--only", "archive", "--arch", "amd64"}
	if long {
		args = nil
	}
	one, out := release(t, args...)
	if two, _ := release(t, args...); one != two {
		t.Errorf("two builds differ:\n%s%s", one, two)
	}
	archives, err := filepath.Glob(filepath.Join(out, "sliver_*_linux_amd64.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("archives %v %v", archives, err)
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		msg, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, msg)
		}
		return string(msg)
	}
	run("tar", "-xzf", archives[0], "--strip-components=1")
	if said := run("./sliver", "version"); !strings.HasPrefix(said, "sliver v") || strings.Contains(said, "unknown") || !strings.Contains(said, "CGO_ENABLED=0") || !strings.Contains(said, "-trimpath=true") {
		t.Errorf("version:\n%s", said)
	}
	run("./sliver", "record", "-q", "-d", "300ms", "-o", "x.sliver", "--", "sleep", "1")
	if said := run("./sliver", "report", "x.sliver"); !strings.Contains(said, "sleep") {
		t.Errorf("report:\n%s", said)
	}
	for name, least := range map[string]int{"THIRD-PARTY-LICENSES": 50_000, "man/sliver-record.1.gz": 1000, "completion/_sliver": 1000, "systemd/sliver-watch@.service": 500, "LICENSE": 5000} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(b) < least {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "THIRD-PARTY-LICENSES"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"github.com/google/pprof ", "github.com/spf13/cobra ", "go.opentelemetry.io/", "Go go1"} {
		if !bytes.Contains(b, []byte("================ "+module)) {
			t.Errorf("no licence of %s", module)
		}
	}
	if long {
		packages(t, out)
	}
}

// packages installs the .deb in a root with nothing else, and records a process there.
func packages(t *testing.T, out string) {
	debs, err := filepath.Glob(filepath.Join(out, "*_amd64.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("packages %v %v", debs, err)
	}
	root := filepath.Join(t.TempDir(), "root")
	script := `set -e
mkdir -p "$1"/proc "$1"/tmp "$1"/dev "$1"/var/lib/dpkg
touch "$1"/var/lib/dpkg/status
dpkg --root="$1" --force-not-root --force-bad-path --install "$2" >/dev/null
mount -t proc proc "$1"/proc
chroot "$1" /usr/bin/sliver version
chroot "$1" /usr/bin/sliver demo -d 2s -q -o /tmp/demo.sliver
chroot "$1" /usr/bin/sliver report /tmp/demo.sliver
`
	cmd := exec.CommandContext(t.Context(), testprog.Tool(t, "unshare"), "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", root, debs[0])
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "sliver v") {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, name := range []string{"usr/share/man/man1/sliver.1.gz", "usr/share/doc/sliver/copyright", "usr/share/bash-completion/completions/sliver"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	for _, kind := range []string{"rpm", "cdx.json"} {
		if all, _ := filepath.Glob(filepath.Join(out, "*."+kind)); len(all) != 2 {
			t.Errorf("%s files: %v", kind, all)
		}
	}
}
