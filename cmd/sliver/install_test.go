package main

import (
	"archive/zip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestGoInstall: "go install …/cmd/sliver@VERSION", as the README says, builds a program that knows its
// version and records, from what a module proxy has of this module: the files of the present commit without
// those of nested modules.
func TestGoInstall(t *testing.T) {
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("long: set SLIVER_LONG=1")
	}
	testprog.Need(t, "ptrace", "git")
	root := testprog.Root(t)
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("these sources are not a clone")
	}
	const module, version = "github.com/sliverprof/sliver", "v0.1.99"
	proxy := t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := tracked(t, root)
	var nested []string
	for _, f := range files {
		if strings.HasSuffix(f, "/go.mod") {
			nested = append(nested, strings.TrimSuffix(f, "go.mod"))
		}
	}
	if len(nested) == 0 {
		t.Fatal("no nested modules: are these all files?")
	}
	packed, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(packed)
	for _, f := range files {
		inside := false
		for _, n := range nested {
			inside = inside || strings.HasPrefix(f, n)
		}
		if st, err := os.Lstat(filepath.Join(root, f)); inside || err != nil || !st.Mode().IsRegular() {
			continue
		}
		copyInto(t, z, module+"@"+version+"/"+f, filepath.Join(root, f))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{version + ".mod": mod, "list": []byte(version + "\n"),
		version + ".info": []byte(`{"Version":"` + version + `","Time":"2026-01-01T00:00:00Z"}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", module+"/cmd/sliver@"+version)
	cmd.Dir = bin
	// The module is kept out of the machine's cache of modules, whose files serve the others.
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "mod")
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+own, "GOSUMDB=off", "CGO_ENABLED=0", "GOFLAGS=-modcacherw",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, out)
	}
	program := filepath.Join(bin, "sliver")
	if out, err := exec.CommandContext(t.Context(), program, "version").Output(); err != nil || !strings.HasPrefix(string(out), "sliver "+version+"\ncommit that of the version's tag; the module is h1:") {
		t.Errorf("version: %v %q", err, out)
	}
	recorded := filepath.Join(bin, "x.sliver")
	if out, err := exec.CommandContext(t.Context(), program, "record", "-p", pidOf(spin(t)), "-d", "1s", "-o", recorded).CombinedOutput(); err != nil {
		t.Fatalf("record: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), program, "report", recorded).Output(); err != nil || !strings.Contains(string(out), "On the CPUs, by function") {
		t.Errorf("report: %v\n%s", err, out)
	}
}

// tracked returns the files of the present commit, relative to root.
func tracked(t *testing.T, root string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testprog.Tool(t, "git"), "-c", "safe.directory=*", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// copyInto adds a file to z.
func copyInto(t *testing.T, z *zip.Writer, name, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := z.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, f); err != nil {
		t.Fatal(err)
	}
}
