package export

//sliver:layer unit big unraced

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

func list(t *testing.T, dir string) string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func output(t *testing.T, path, format string) Output {
	t.Helper()
	o, err := ParseOutput(path, format)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestParseOutput(t *testing.T) {
	for _, c := range []struct{ path, format, want string }{
		{"run.pftrace", "", "perfetto"},
		{"a/b.perfetto-trace", "", "perfetto"},
		{"x.pb.gz", "", "pprof"},
		{"x.pprof", "", "pprof"},
		{"run.nanoscope.txt", "", "nanoscope"},
		{"run.sliver", "", "sliver"},
		{"run.sliver", "pprof", "pprof"},
		{"-", "perfetto", "perfetto"},
	} {
		o, err := ParseOutput(c.path, c.format)
		if err != nil || o.Format.Name != c.want || o.Path != c.path {
			t.Errorf("%v: %v, %v", c, o, err)
		}
	}
	for _, c := range [][2]string{{"", ""}, {"-", ""}, {"run", ""}, {"run.txt", ""}, {"run.gz", ""}, {"d.pftrace/run", ""}, {"x.pb.gz", "vhs"}, {"-", "nanoscope"}} {
		if o, err := ParseOutput(c[0], c[1]); err == nil {
			t.Errorf("%q is taken for %v", c, o)
		}
	}
}

// Each extension belongs to one format, and each format writes a file.
func TestFormats(t *testing.T) {
	rec := exporttest.Sample(t)
	seen := map[string]bool{}
	for _, f := range Formats() {
		for _, x := range f.Extensions {
			if seen[x] || x[0] != '.' {
				t.Errorf("extension %s", x)
			}
			seen[x] = true
			dir := t.TempDir()
			o := output(t, filepath.Join(dir, "run"+x), "")
			if o.Format.Name != f.Name || f.Recording() {
				continue
			}
			files, err := Write(o, rec, Options{})
			if err != nil || len(files) == 0 {
				t.Errorf("%s: %v, %v", x, files, err)
			}
			for _, file := range files {
				st, err := os.Stat(file.Path)
				if err != nil || st.Size() != file.Bytes || st.Size() == 0 || file.Format != f.Name {
					t.Errorf("%+v: %v, %v", file, st, err)
				}
			}
			if n := len(strings.Fields(list(t, dir))); n != len(files) {
				t.Errorf("%s: %d files, %d are named", x, n, len(files))
			}
		}
	}
}

// Goroutines that a scan could not read appear in each format that reports losses.
func TestLossesOfLooks(t *testing.T) {
	rec := exporttest.Sample(t)
	rec.Tasks = []trace.Tasks{{At: exporttest.Start, What: "goroutine"}, {At: exporttest.Start + 1, What: "goroutine", Lost: 3}}
	shown := 0
	for _, f := range Formats() {
		if f.Recording() || f.PerThread() {
			continue
		}
		o := output(t, filepath.Join(t.TempDir(), "run"), f.Name)
		if _, err := Write(o, rec, Options{}); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		data, err := os.ReadFile(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			if data, err = io.ReadAll(z); err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
		}
		has := func(s string) bool { return bytes.Contains(data, []byte(s)) }
		if !has("1 stack truncated") {
			continue // the format cannot show losses
		}
		if shown++; !has("3 goroutines missing in 1 of 2 looks at all of them") {
			t.Errorf("%s shows other losses and not this one", f.Name)
		}
	}
	if shown < 6 {
		t.Errorf("%d formats show losses", shown)
	}
}

func TestThreadFiles(t *testing.T) {
	b := exporttest.New(t)
	for _, th := range []struct {
		tid  int
		name string
	}{{1234, "main"}, {1240, "a/../b c\n"}, {1241, "pool"}, {1241, "pool"}, {1242, ""}} {
		b.Thread(th.tid, th.name).Look(exporttest.Look{State: stack.StateRunning, Stack: "main:1"})
	}
	rec := b.Finish(exporttest.Ms)
	for _, c := range []struct {
		name    string
		threads []int
		want    string
	}{
		{"run.nanoscope.txt", nil, "run.a_.._b_c_-1240.nanoscope.txt run.main-1234.nanoscope.txt run.pool-1241-2.nanoscope.txt run.pool-1241.nanoscope.txt run.thread-1242.nanoscope.txt"},
		{"run.nanoscope.txt", []int{0}, "run.nanoscope.txt"},
		{"out", []int{0, 1}, "out.a_.._b_c_-1240 out.main-1234"},
	} {
		dir := t.TempDir()
		if _, err := Write(output(t, filepath.Join(dir, c.name), "nanoscope"), rec, Options{Threads: c.threads}); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, n := range strings.Fields(c.want) {
			want = append(want, n, n+".state")
		}
		sort.Strings(want)
		if got := list(t, dir); got != strings.Join(want, " ") {
			t.Errorf("files\n%s, want\n%s", got, want)
		}
	}
}

// A failed export does not change the existing file.
func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.x")
	if err := os.WriteFile(path, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := outfile.Atomic(path, func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		if got := list(t, dir); !strings.Contains(got, ".partial") {
			t.Errorf("while writing: %s", got)
		}
		return &os.PathError{Op: "write", Path: "/other", Err: syscall.ENOSPC}
	})
	if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), ".partial") || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "before" || list(t, dir) != "run.x" {
		t.Errorf("left: %q, files %s", b, list(t, dir))
	}
}

func TestReplace(t *testing.T) {
	rec := exporttest.Sample(t)
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.pb.gz"), filepath.Join(dir, "link.pb.gz")
	if err := os.WriteFile(real, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.pb.gz", link); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(output(t, link, ""), rec, Options{}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if b, _ := os.ReadFile(real); len(b) < 10 || b[0] != 0x1f {
		t.Errorf("the file behind the link holds %q", b)
	}
	long := filepath.Join(dir, strings.Repeat("n", 240)+".pb.gz")
	if _, err := Write(output(t, long, ""), rec, Options{}); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := output(t, filepath.Join(dir, "new.pftrace"), "").Check(); err != nil {
		t.Error(err)
	}
	if got := list(t, dir); got != "" {
		t.Errorf("left behind: %s", got)
	}
	for path, want := range map[string]string{
		dir:                             "directory",
		filepath.Join(dir, "no/such/x"): "no such file",
		"/proc/self/x":                  "/proc/self",
	} {
		if err := output(t, path, "pprof").Check(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ".partial") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	null := output(t, "/dev/null", "perfetto")
	if err := null.Check(); err != nil {
		t.Error(err)
	}
	files, err := Write(null, exporttest.Sample(t), Options{})
	if err != nil || len(files) != 1 || files[0].Bytes == 0 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Write(output(t, "/dev/full", "perfetto"), exporttest.Sample(t), Options{}); !errors.Is(err, syscall.ENOSPC) || strings.Count(err.Error(), "/dev/full") != 1 {
		t.Errorf("full: %v", err)
	}
}

// The tests that docs/notes/evidence.md names exist.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/notes/evidence.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	declared := map[string]string{}
	for _, cell := range regexp.MustCompile("`([a-z/]+(?:`, `[a-z/]+)*): (Fuzz[A-Za-z, ]+)`").FindAllStringSubmatch(string(doc), -1) {
		for _, pkg := range strings.Split(cell[1], "`, `") {
			for _, name := range strings.Split(cell[2], ", ") {
				if !regexp.MustCompile("(?m)^" + name + "\\(").MatchString(declares(t, declared, filepath.Join("..", pkg))) {
					t.Errorf("%s has no %s", pkg, name)
				}
				found++
			}
		}
	}
	for _, line := range strings.Split(string(doc), "\n") {
		for _, run := range regexp.MustCompile("`(?:SLIVER_LONG=1 go test )?(\\./[^`]*) -run '?([^`']*)'?`").FindAllStringSubmatch(line, -1) {
			pattern := regexp.MustCompile(`(?m)^Test[A-Za-z0-9]*(` + strings.ReplaceAll(strings.ReplaceAll(run[2], `\|`, "|"), "Test", "") + ")")
			for _, pkg := range strings.Fields(run[1]) {
				if !pattern.MatchString(declares(t, declared, filepath.Join("..", pkg))) {
					t.Errorf("%s has no test %s", pkg, run[2])
				}
				found++
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d tests found", found)
	}
}

// declares returns the lines of dir's tests that begin functions, from their names on. It keeps them in known.
func declares(t *testing.T, known map[string]string, dir string) string {
	if lines, ok := known[dir]; ok {
		return lines
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "func "); ok {
				out.WriteString(name)
			}
		}
	}
	known[dir] = out.String()
	return known[dir]
}

// Files of threads of several processes are named after both.
func TestThreadFilesOfSeveral(t *testing.T) {
	rec := exporttest.Several(t)
	dir := t.TempDir()
	if _, err := Write(output(t, filepath.Join(dir, "run.nanoscope.txt"), ""), rec, Options{}); err != nil {
		t.Fatal(err)
	}
	got := list(t, dir)
	for _, want := range []string{"run.server-1234.nanoscope.txt ", "run.server-1234.worker-1-1240.nanoscope.txt ", "run.worker-900.worker_main-900.nanoscope.txt "} {
		if !strings.Contains(got+" ", want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	var b bytes.Buffer
	f, err := ByName("nanoscope")
	if err == nil {
		err = f.Stream(&b, rec, Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if n := 2 * (len(rec.Threads) + 1); len(z.File) != n {
		t.Errorf("%d files in the archive, want %d", len(z.File), n)
	}
}
