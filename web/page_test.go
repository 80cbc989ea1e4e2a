package web_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// need returns the path of the first of the programs that exists. If none does, it skips
// the test, or fails it if SLIVER_REQUIRE contains the word (or all).
func need(t testing.TB, word string, programs ...string) string {
	t.Helper()
	for _, p := range programs {
		if path, err := exec.LookPath(p); err == nil {
			return path
		}
	}
	missing(t, word, "no "+programs[0]+" on this machine")
	return ""
}

func missing(t testing.TB, word, what string) {
	t.Helper()
	required := strings.Split(os.Getenv("SLIVER_REQUIRE"), ",")
	if slices.Contains(required, word) || slices.Contains(required, "all") {
		t.Fatalf("%s is required by SLIVER_REQUIRE: %s", word, what)
	}
	t.Skipf("needs %s: %s", word, what)
}

// modules returns the folder of the page with its packages installed by npm ci.
func modules(t testing.TB, pkg string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join("page", "node_modules", pkg)); err != nil {
		missing(t, "npm", "no "+pkg+" in page/node_modules; run npm ci in web/page")
	}
	return "page"
}

// synthserve builds the server of the page's tests.
func synthserve(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "synthserve")
	if out, err := exec.CommandContext(t.Context(), need(t, "go", "go"), "build", "-o", program, "./internal/synthserve").CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	return program
}

// TestPage drives the page in Chromium, in the light colour scheme and, with
// SLIVER_LONG=1, also in the dark one and on a phone's screen: see page/test/page.mjs.
// Its cases mostly wait for the screen, so they run in two parallel parts, each with its
// own browser and servers. SLIVER_PICTURES names a folder for screenshots.
func TestPage(t *testing.T) {
	testprog.Unraced(t, "it runs a browser, node and a server of its own")
	node := need(t, "node", "node")
	chromium := need(t, "chromium", "chromium", "chromium-browser", "google-chrome")
	dir := modules(t, "playwright-core")
	program := synthserve(t)
	pictures := os.Getenv("SLIVER_PICTURES")
	if pictures == "" {
		pictures = "-"
	}
	forms := []string{"SLIVER_SCHEME=light"}
	if os.Getenv("SLIVER_LONG") != "" {
		forms = append(forms, "SLIVER_SCHEME=dark", "SLIVER_SCREEN=phone")
	}
	const parts = 2
	for _, form := range forms {
		var held, all [parts]int
		t.Run(form, func(t *testing.T) {
			for part := range parts {
				t.Run(fmt.Sprint(part), func(t *testing.T) {
					t.Parallel()
					cmd := exec.CommandContext(t.Context(), node, filepath.Join("test", "page.mjs"), program, chromium, pictures)
					cmd.Dir = dir
					cmd.Env = append(os.Environ(), form, fmt.Sprintf("SLIVER_PART=%d/%d", part, parts))
					if testing.Short() {
						cmd.Env = append(cmd.Env, "SLIVER_SHORT=1")
					}
					out, err := cmd.CombinedOutput()
					t.Logf("%s", out)
					if err != nil {
						t.Fatalf("the page's tests with %v: %v", form, err)
					}
					said := bytes.TrimSpace(out)
					last := said[bytes.LastIndexByte(said, '\n')+1:]
					if _, err := fmt.Sscanf(string(last), "%d of %d cases hold", &held[part], &all[part]); err != nil {
						t.Fatalf("%q: %v", last, err)
					}
				})
			}
		})
		if !t.Failed() && (held[0] == 0 || held[0]+held[1] != all[0] || all[0] != all[1]) {
			t.Fatalf("with %v the parts ran %v of %v cases", form, held, all)
		}
	}
}

// TestPageHasNoBarriers looks for barriers in the page's views with axe-core: see page/test/axe.mjs.
func TestPageHasNoBarriers(t *testing.T) {
	testprog.Unraced(t, "it runs a browser, node and a server of its own")
	node := need(t, "node", "node")
	chromium := need(t, "chromium", "chromium", "chromium-browser", "google-chrome")
	dir := modules(t, "axe-core")
	program := synthserve(t)
	args := []string{filepath.Join("test", "axe.mjs"), program, chromium, cmp.Or(os.Getenv("SLIVER_PICTURES"), "-")}
	if testing.Short() {
		args = append(args, "light, recording", "phone, call", "live, with control")
	}
	cmd := exec.CommandContext(t.Context(), node, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// TestBundleIsFresh rebuilds the committed bundle and compares.
func TestBundleIsFresh(t *testing.T) {
	testprog.Unraced(t, "it runs a browser, node and a server of its own")
	node := need(t, "node", "node")
	dir := modules(t, "esbuild")
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), node, "build.mjs", out)
	cmd.Dir = dir
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the page: %v\n%s", err, b)
	}
	fresh, committed := tree(t, out), tree(t, "dist")
	if len(fresh) < 10 {
		t.Fatalf("the build made %d files", len(fresh))
	}
	for name, b := range fresh {
		if !bytes.Equal(b, committed[name]) {
			t.Errorf("dist/%s is not what the sources give: run npm run build in web/page", name)
		}
	}
	for name := range committed {
		if fresh[name] == nil && name != "dist.go" {
			t.Errorf("dist/%s is made by no source", name)
		}
	}
}

// tree reads all files below dir, by path.
func tree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[p], err = os.ReadFile(filepath.Join(dir, p))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPageSources runs what npm run check runs: the compiler, the linter and formatter, and the limit of a
// line.
func TestPageSources(t *testing.T) {
	testprog.Unraced(t, "it runs a browser, node and a server of its own")
	node := need(t, "node", "node")
	for _, c := range [][]string{
		{filepath.Join(modules(t, "typescript"), "node_modules", "typescript", "bin", "tsc"), "--noEmit"},
		{filepath.Join(modules(t, "@biomejs/biome"), "node_modules", "@biomejs", "biome", "bin", "biome"), "ci", "--error-on-warnings", "--colors=off"},
		{filepath.Join("page", "lines.mjs")},
	} {
		file, err := filepath.Abs(c[0])
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), node, append([]string{file}, c[1:]...)...)
		cmd.Dir = "page"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c[0], err, out)
		}
	}
}

// TestPageUnits tests the page's pure parts without a browser: see page/test/units.mjs.
func TestPageUnits(t *testing.T) {
	testprog.Unraced(t, "it runs node")
	node := need(t, "node", "node")
	dir := modules(t, "esbuild")
	cmd := exec.CommandContext(t.Context(), node, "--test", filepath.Join("test", "units.mjs"))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("# pass ")) || bytes.Contains(out, []byte("# pass 0")) {
		t.Fatalf("the page's unit tests: %v\n%s", err, out)
	}
}
