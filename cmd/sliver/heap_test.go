package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/dumptest"
	"github.com/sliverprof/sliver/internal/testprog"
)

// leakyDump writes a dump with a class that holds a list of n arrays, and returns its path
// and the ID of the table.
func leakyDump(t *testing.T, dir, name string, n int) (path string, table uint64) {
	t.Helper()
	d := dumptest.New("1.0.2", 8)
	d.Class("java/lang/Object", "", 0, nil)
	d.Class("java/lang/Class", "java/lang/Object", 0, nil)
	d.Class("[Ljava/lang/Object;", "java/lang/Object", 0, nil)
	var all []uint64
	for i := range n {
		b := bytes.Repeat([]byte(fmt.Sprintf("%08d", i)), 250)
		all = append(all, d.Bytes(b))
	}
	table = d.Objects("[Ljava/lang/Object;", all...)
	c := d.Class("app/Cache", "java/lang/Object", 0, []dumptest.Field{{Name: "</script>entries", Type: hprof.TypeObject, Value: table}})
	d.Root(hprof.SubRootSticky, c)
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, d.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, table
}

func TestHeapCommands(t *testing.T) {
	dir := t.TempDir()
	old, _ := leakyDump(t, dir, "old.hprof", 100)
	now, table := leakyDump(t, dir, "new.hprof", 400)
	id := fmt.Sprintf("0x%x", table)
	const field = "app.Cache.</script>entries"
	for _, c := range []struct {
		args []string
		want []string // in the output
	}{
		{[]string{"leaks", now}, []string{"one java.lang.Object[] keeps 808 kB", "static " + field, "level full"}},
		{[]string{"leaks", now, "--level", "paths"}, []string{"one java.lang.Object[] keeps 808 kB", "level paths", "static " + field}},
		{[]string{"leaks", now, "--level", "histogram"}, []string{"level histogram", "byte[]"}},
		{[]string{"histo", now}, []string{"400        806400          806400  byte[]"}},
		{[]string{"diff", old, now}, []string{"+300 objects  class app.Cache → java.lang.Object[] → byte[]", "+605 kB"}},
		{[]string{"show", now, "app.Cache"}, []string{"class app.Cache", "static </script>entries: java.lang.Object[] " + id}},
		{[]string{"show", now, id, "--top", "2"}, []string{"elements (2 of 400)", "dominated by class app.Cache", "referred to by 1 object"}},
		{[]string{"path", now, id}, []string{"root: system class: class app.Cache", "→ static " + field + ": java.lang.Object[] " + id}},
	} {
		r := sliver(t, dir, append([]string{"heap"}, c.args...)...)
		for _, want := range c.want {
			if r.status != 0 || !strings.Contains(r.out, want) {
				t.Errorf("heap %q: status %d, no %q in\n%s%s", c.args, r.status, want, r.out, r.errors)
			}
		}
	}
	for _, args := range [][]string{{"leaks", now, "--json"}, {"leaks", now, "--koom", "1"}, {"leaks", now, "--koom", "2", "--json"}, {"histo", now, "--json"}, {"diff", old, now, "--json"},
		{"show", now, id, "--json"}, {"show", now, "app.Cache", "--json"}, {"path", now, id, "--json"}} {
		r := sliver(t, dir, append([]string{"heap", "-q"}, args...)...)
		var doc any
		if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.status != 0 {
			t.Errorf("heap %q: status %d, %v in\n%s%s", args, r.status, err, r.out, r.errors)
		}
	}
}

// pprof reads the profile, and its sum is the heap size.
func TestHeapProfile(t *testing.T) {
	dir := t.TempDir()
	path, _ := leakyDump(t, dir, "x.hprof", 400)
	for _, name := range []string{"heap.pb.gz", "heap.pprof"} {
		r := sliver(t, dir, "heap", "leaks", path, "--format", "pprof", "-o", name)
		b, err := os.ReadFile(filepath.Join(dir, name))
		if r.status != 0 || err != nil {
			t.Fatalf("status %d, %v\n%s", r.status, err, r.errors)
		}
		p, err := profile.ParseData(b)
		if err != nil {
			t.Fatal(err)
		}
		var objects, space int64
		for _, s := range p.Sample {
			objects += s.Value[0]
			space += s.Value[1]
		}
		if objects != 405 || space < 808_000 || space > 810_000 || p.SampleType[0].Type != "inuse_objects" || p.SampleType[1].Type != "inuse_space" {
			t.Errorf("%s: %d objects, %d bytes, %v", name, objects, space, p.SampleType)
		}
	}
}

// Perfetto's trace_processor reads the profile, with the same sums.
func TestHeapProfileInPerfetto(t *testing.T) {
	tp, node := testprog.Perfetto(t), testprog.Tool(t, "node")
	dir := t.TempDir()
	path, _ := leakyDump(t, dir, "x.hprof", 400)
	if r := sliver(t, dir, "heap", "leaks", path, "--format", "pprof", "-o", "heap.pb.gz"); r.status != 0 {
		t.Fatal(r.errors)
	}
	cmd := exec.Command(node, filepath.Join(testprog.Root(t), "testdata", "verify", "perfetto_query.mjs"), filepath.Join(dir, "heap.pb.gz"),
		"select 'sum of ' || sample_type_type || ' ' || sum(value) s from __intrinsic_aggregate_sample a join __intrinsic_aggregate_profile p on p.id = aggregate_profile_id group by sample_type_type")
	cmd.Env = append(os.Environ(), "TP_DIR="+tp)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("sum of inuse_objects 405")) || !bytes.Contains(out, []byte("sum of inuse_space 80")) {
		t.Errorf("trace_processor: %v\n%s", err, out)
	}
}

// The page shows the tree map, the suspects and their paths, and its search finds them. No
// name in the dump can end its script.
func TestHeapPage(t *testing.T) {
	chromium := testprog.Tool(t, "chromium")
	dir := t.TempDir()
	path, _ := leakyDump(t, dir, "x.hprof", 400)
	if r := sliver(t, dir, "heap", "leaks", path, "--html", "-o", "x.html"); r.status != 0 {
		t.Fatal(r.errors)
	}
	out, err := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom",
		"--user-data-dir="+t.TempDir(), "file://"+filepath.Join(dir, "x.html")).Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	for _, want := range []string{"one java.lang.Object[] keeps 808 kB", "static app.Cache.&lt;/script&gt;entries", "<button>(all) 80", "byte[]</td>"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %q in the page", want)
		}
	}
	page, _ := os.ReadFile(filepath.Join(dir, "x.html"))
	if n := bytes.Count(page, []byte("</script>")); n != 2 {
		t.Errorf("the page ends %d scripts, has 2", n)
	}
	for _, outside := range []string{"http://", "https://", "src=", "@import"} {
		if bytes.Contains(page, []byte(outside)) {
			t.Errorf("the page refers to the outside: %q", outside)
		}
	}
}

// A stripped dump of Android has the same leaks. A dump cut by KOOM's rule must be filled
// first, and the error says so.
func TestHeapOfStrippedDumps(t *testing.T) {
	folder := os.Getenv("SLIVER_HPROF_CORPUS")
	if folder == "" {
		testprog.Lack(t, "corpus", "SLIVER_HPROF_CORPUS is not set: no real dumps")
	}
	dir := t.TempDir()
	dump := filepath.Join(folder, "hprof-android.bin")
	paths := func(file string) string {
		r := sliver(t, dir, "heap", "leaks", "-q", file, "--koom", "1")
		var doc struct{ GcPaths any }
		if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.status != 0 {
			t.Fatalf("%s: %v %s", file, err, r.errors)
		}
		return fmt.Sprint(doc.GcPaths)
	}
	want := paths(dump)
	if !strings.Contains(want, "com.example.leakcanary.MainActivity") {
		t.Fatalf("no leak of an activity: %s", want)
	}
	for _, rule := range []string{"shark", "matrix", "koom"} {
		if r := sliver(t, dir, "hprof", "strip", dump, "--rule", rule, "-o", rule); r.status != 0 {
			t.Fatal(r.errors)
		}
		file := rule
		if rule == "koom" {
			r := sliver(t, dir, "heap", "leaks", rule)
			if r.status != 1 || !strings.Contains(r.errors, "'sliver hprof fill' first") || strings.Count(r.errors, "\n") != 1 {
				t.Errorf("not filled: status %d: %s", r.status, r.errors)
			}
			if r := sliver(t, dir, "hprof", "fill", rule, "-o", "filled"); r.status != 0 {
				t.Fatal(r.errors)
			}
			file = "filled"
		}
		if got := paths(file); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", rule, got, want)
		}
	}
}

// Wrong usage exits with status 2, an unreadable dump with status 1, each with a one-line
// error.
func TestHeapErrors(t *testing.T) {
	dir := t.TempDir()
	path, _ := leakyDump(t, dir, "x.hprof", 4)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.hprof")
	if err := os.WriteFile(cut, whole[:len(whole)-200], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int
		args   []string
		want   string
	}{
		{2, nil, "say what to do"},
		{2, []string{"leak", path}, "unknown action"},
		{2, []string{"leaks"}, "leaks takes one dump"},
		{2, []string{"diff", path}, "diff takes an old and a new dump"},
		{2, []string{"leaks", path, "--koom", "3"}, "--koom takes 1 or 2"},
		{2, []string{"leaks", path, "--html", "--json"}, "choose one"},
		{2, []string{"leaks", path, "--format", "xml"}, "unknown format"},
		{2, []string{"leaks", path, "--share", "200%"}, "invalid part"},
		{2, []string{"histo", path, "--html"}, "histo has no --html"},
		{2, []string{"histo", path, "--max-memory", "lots"}, "invalid size"},
		{2, []string{"histo", path, "--max-memory", "1MB"}, "at least 128MiB"},
		{2, []string{"histo", path, "--level", "best"}, "unknown level"},
		{2, []string{"path", path, "Cache"}, "is not the ID of an object"},
		{1, []string{"path", path, "0x99"}, "no object 0x99"},
		{1, []string{"show", path, "NoClass"}, `no class "NoClass"`},
		{1, []string{"histo", path, "--dump", "3"}, "not 3"},
		{1, []string{"histo", filepath.Join(dir, "none")}, "no such file"},
		{1, []string{"histo", cut}, "offset"},
		{0, []string{"histo", cut, "--partial"}, "damaged"},
	} {
		r := sliver(t, dir, append([]string{"heap"}, c.args...)...)
		if r.status != c.status || !strings.Contains(r.errors, c.want) || c.status != 0 && strings.Count(r.errors, "\n") != 1 {
			t.Errorf("heap %q: status %d, want %d and %q:\n%s", c.args, r.status, c.status, c.want, r.errors)
		}
	}
}
