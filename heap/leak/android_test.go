package leak

//sliver:layer live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/dumptest"
	"github.com/sliverprof/sliver/internal/testprog"
)

// corpus returns the path of a real dump.
func corpus(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("SLIVER_HPROF_CORPUS")
	if folder == "" {
		testprog.Lack(t, "corpus", "SLIVER_HPROF_CORPUS is not set: no real dumps")
	}
	return filepath.Join(folder, name)
}

// Shark finds the same leaks in a real dump, with the same signatures.
func TestAndroidAgainstShark(t *testing.T) {
	testprog.Whole(t, "TestCorpusAgainstShark of package graph reads the same dumps")
	jars := filepath.Join(filepath.Dir(testprog.Tool(t, "shark")), "*")
	java, javac := testprog.Tool(t, "java17"), testprog.Tool(t, "javac")
	classes := t.TempDir()
	if out, err := exec.Command(javac, "-nowarn", "-cp", jars, "-d", classes, "testdata/Shark.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	for _, name := range []string{"hprof-android.bin", "dialer.android-hprof"} {
		t.Run(name, func(t *testing.T) {
			path := corpus(t, name)
			out, err := exec.Command(java, "-cp", jars+":"+classes, "Shark", path).CombinedOutput()
			if err != nil {
				t.Fatalf("Shark: %v\n%s", err, out)
			}
			var want []string
			for _, m := range regexp.MustCompile(`Signature: ([0-9a-f]{40})`).FindAllSubmatch(out, -1) {
				want = append(want, string(m[1]))
			}
			var got []string
			g, r := analyze(t, path, graph.Options{}, 0)
			kinds := map[graph.Kind]int{}
			for o := graph.Object(1); int(o) <= g.Len(); o++ {
				kinds[g.Kind(o)]++
			}
			for kind, name := range map[graph.Kind]string{graph.KindClass: "Class", graph.KindInstance: "Instance",
				graph.KindPrimitiveArray: "Primitive array", graph.KindObjectArray: "Object array"} {
				if want := fmt.Sprintf("%s count: %d\n", name, kinds[kind]); !bytes.Contains(out, []byte(want)) {
					t.Errorf("%d of kind %v, which Shark does not have", kinds[kind], kind)
				}
			}
			for _, f := range r.Findings {
				if f.Kind == KindInspector {
					got = append(got, f.Signature)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if len(want) == 0 && name == "hprof-android.bin" || !slices.Equal(got, want) {
				t.Errorf("signatures %v, Shark has %v\n%s", got, want, out)
			}
		})
	}
}

// KOOM's report of a real dump, both versions.
func TestKOOMOfRealDump(t *testing.T) {
	for version := 1; version <= 2; version++ {
		g, err := graph.Open(t.Context(), corpus(t, "hprof-android.bin"), graph.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		r, err := FindKOOM(t.Context(), g, version)
		if err != nil {
			t.Fatal(err)
		}
		r.filter, r.search = 0, 0 // which differ each time
		var out bytes.Buffer
		if err := r.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		golden, err := os.ReadFile(fmt.Sprintf("testdata/koom%d.json", version))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(golden, &want); err != nil {
			t.Fatal(err)
		}
		if a, b := fmt.Sprint(got), fmt.Sprint(want); a != b {
			t.Errorf("version %d:\n%s\nwant\n%s", version, out.Bytes(), golden)
		}
	}
}

const (
	object  = hprof.TypeObject
	boolean = hprof.TypeBoolean
	integer = hprof.TypeInt
)

func f(name string, t hprof.Type) dumptest.Field { return dumptest.Field{Name: name, Type: t} }

// androidDump returns a dump with the Android classes that detectors use.
func androidDump() *dumptest.Dump {
	d := dumptest.New("1.0.3", 4)
	d.Class("java.lang.Object", "", 0, nil)
	d.Class("java.lang.Class", "java.lang.Object", 0, nil)
	d.Class("java.lang.Object[]", "java.lang.Object", 0, nil)
	d.Class("android.content.Context", "java.lang.Object", 0, nil)
	d.Class("android.content.ContextWrapper", "android.content.Context", 0, nil, f("mBase", object))
	d.Class("android.view.ContextThemeWrapper", "android.content.ContextWrapper", 0, nil)
	d.Class("android.app.Activity", "android.view.ContextThemeWrapper", 0, nil, f("mDestroyed", boolean), f("mFinished", boolean))
	d.Class("app.Main", "android.app.Activity", 0, nil, f("child", object))
	d.Class("android.app.Fragment", "java.lang.Object", 0, nil, f("mFragmentManager", object), f("mCalled", boolean))
	d.Class("app.List", "android.app.Fragment", 0, nil)
	d.Class("android.graphics.Bitmap", "java.lang.Object", 0, nil, f("mWidth", integer), f("mHeight", integer))
	d.Class("android.view.Window", "java.lang.Object", 0, nil, f("mDestroyed", boolean))
	d.Class("libcore.util.NativeAllocationRegistry", "java.lang.Object", 0, nil, f("size", integer))
	return d
}

// hold makes a class of the name hold objects in an array, as a root.
func hold(d *dumptest.Dump, name string, objects ...uint64) {
	array := d.Objects("java.lang.Object[]", objects...)
	c := d.Class(name, "java.lang.Object", 0, []dumptest.Field{{Name: "held", Type: object, Value: array}})
	d.Root(hprof.SubRootSticky, c)
}

func open(t *testing.T, b []byte) *graph.Graph {
	t.Helper()
	g, err := graph.New(t.Context(), bytes.NewReader(b), int64(len(b)), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func koom(t *testing.T, d *dumptest.Dump, version int) *KOOM {
	t.Helper()
	k, err := FindKOOM(t.Context(), open(t, d.Encode()), version)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *KOOM) reasons() (all []string) {
	for _, p := range k.paths {
		all = append(all, fmt.Sprintf("%d %s", p.instances, p.reason))
	}
	slices.Sort(all)
	return all
}

// The detectors' conditions and thresholds, on both sides of each.
func TestKOOMDetectors(t *testing.T) {
	d := androidDump()
	manager := d.Instance("java.lang.Object", nil)
	activity := func(destroyed, finished bool) uint64 {
		return d.Instance("app.Main", map[string]any{"mDestroyed": destroyed, "mFinished": finished})
	}
	fragment := func(m uint64, called bool) uint64 {
		return d.Instance("app.List", map[string]any{"mFragmentManager": m, "mCalled": called})
	}
	bitmap := func(w, h int) uint64 {
		return d.Instance("android.graphics.Bitmap", map[string]any{"mWidth": w, "mHeight": h})
	}
	const edge = 256 * 1024
	hold(d, "app.A", activity(false, false), activity(true, false), activity(false, true))
	hold(d, "app.B", fragment(manager, true), fragment(0, false), fragment(0, true))
	hold(d, "app.C", bitmap(768, 1366), bitmap(768*1366+1, 1), bitmap(767, 1366))
	hold(d, "app.D", d.Bytes(make([]byte, edge-14)), d.Bytes(make([]byte, edge-13)), d.Bytes(make([]byte, edge-1)), d.Bytes(make([]byte, edge)))
	hold(d, "app.E", d.Instance("android.view.Window", nil), d.Instance("libcore.util.NativeAllocationRegistry", nil))
	want1 := []string{"1 Fragment Leak", "1 primitive array size over threshold:262144,256KB", "2 Activity Leak", "2 Bitmap Size"}
	k := koom(t, d, 1)
	if got := k.reasons(); !slices.Equal(got, want1) {
		t.Errorf("version 1: %q, want %q", got, want1)
	}
	wantClasses := "[{android.app.Activity 3 2} {android.app.Fragment 3 1} {android.graphics.Bitmap 3 2} {libcore.util.NativeAllocationRegistry 1 0} {android.view.Window 1 0}]"
	if got := fmt.Sprint(k.classes); got != wantClasses {
		t.Errorf("version 1: classes %s, want %s", got, wantClasses)
	}
	// A record of a byte array has 13 bytes beside the content with identifiers of 4.
	want2 := []string{"1 Bitmap Size Over Threshold, 1049089x1", "1 Fragment Leak", "2 Activity Leak", "3 Primitive Array Size Over Threshold, 262144"}
	k = koom(t, d, 2)
	if got := k.reasons(); !slices.Equal(got, want2) {
		t.Errorf("version 2: %q, want %q", got, want2)
	}
	if len(k.objects) != 4 {
		t.Errorf("version 2: %d large objects, want 4: %v", len(k.objects), k.objects)
	}
}

// Of a class at most 45 paths are wanted; all are counted.
func TestKOOMBoundsPathsOfAClass(t *testing.T) {
	d := androidDump()
	var all []uint64
	for range 60 {
		all = append(all, d.Instance("app.Main", map[string]any{"mDestroyed": true}))
	}
	hold(d, "app.A", all...)
	for version := 1; version <= 2; version++ {
		k := koom(t, d, version)
		if len(k.paths) != 1 || k.paths[0].instances != 45 || k.classes[0].all != 60 || k.classes[0].leaks != 60 {
			t.Errorf("version %d: %d groups, %v; classes %v", version, len(k.paths), k.reasons(), k.classes)
		}
		p := k.paths[0]
		want := "[{app.A.held STATIC_FIELD app.A} {java.lang.Object[] ARRAY_ENTRY java.lang.Object[]} {app.Main instance }]"
		if fmt.Sprint(p.path) != want || p.root != "System class" || p.signature != sha("app.Aheldjava.lang.Object[][x]") {
			t.Errorf("version %d: %v, root %q", version, p.path, p.root)
		}
	}
}

// A leaking object behind another one has no path of its own.
func TestKOOMLeavesOutLeaksBehindLeaks(t *testing.T) {
	d := androidDump()
	inner := d.Instance("android.graphics.Bitmap", map[string]any{"mWidth": 2000, "mHeight": 2000})
	hold(d, "app.A", d.Instance("app.Main", map[string]any{"mDestroyed": true, "child": inner}))
	if got := koom(t, d, 1).reasons(); !slices.Equal(got, []string{"1 Activity Leak"}) {
		t.Errorf("%q", got)
	}
}

// A path through a known Android leak is used only if no other exists, and is marked.
func TestKnownLeaks(t *testing.T) {
	d := androidDump()
	d.Class("android.os.Build$VERSION", "java.lang.Object", 0, []dumptest.Field{{Name: "SDK_INT", Type: integer, Value: 22}})
	leak := d.Instance("app.Main", map[string]any{"mDestroyed": true})
	c := d.Class("android.text.TextLine", "java.lang.Object", 0, []dumptest.Field{{Name: "sCached", Type: object, Value: leak}})
	d.Root(hprof.SubRootSticky, c)
	r, err := Find(t.Context(), open(t, d.Encode()), "test", Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Kind == KindInspector })
	if i < 0 || r.Findings[i].Library != "android.text.TextLine.sCached" || r.Findings[i].Signature != sha("static field android.text.TextLine#sCached") {
		t.Errorf("findings %+v", r.Findings)
	}
	hold(d, "zzz.Other", leak)
	r, err = Find(t.Context(), open(t, d.Encode()), "test", Options{})
	if err != nil {
		t.Fatal(err)
	}
	i = slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Kind == KindInspector })
	if i < 0 || r.Findings[i].Library != "" || !strings.Contains(r.Findings[i].Path[0].Class, "zzz.Other") {
		t.Errorf("findings %+v", r.Findings)
	}
}

// Each inspector's condition, on both sides.
func TestInspectors(t *testing.T) {
	d := androidDump()
	d.Class("android.view.View", "java.lang.Object", 0, nil, f("mParent", object), f("mContext", object), f("mAttachInfo", object), f("mWindowAttachCount", integer))
	d.Class("android.view.ViewRootImpl", "java.lang.Object", 0, nil, f("mView", object), f("mContext", object))
	d.Class("android.os.MessageQueue", "java.lang.Object", 0, nil, f("mQuitting", boolean))
	d.Class("android.widget.Toast$TN", "java.lang.Object", 0, nil, f("mWM", object), f("mView", object))
	d.Class("android.widget.Toast", "java.lang.Object", 0, nil, f("mTN", object))
	d.Class("mortar.MortarScope", "java.lang.Object", 0, nil, f("dead", boolean))
	d.Class("app.Wrapper", "android.content.ContextWrapper", 0, nil)
	some := d.Instance("java.lang.Object", nil)
	gone := d.Instance("app.Main", map[string]any{"mDestroyed": true})
	live := d.Instance("app.Main", nil)
	root := d.Instance("android.view.ViewRootImpl", map[string]any{"mView": some, "mContext": live})
	over := map[uint64]bool{gone: true}
	leaks := func(class string, values map[string]any) { over[d.Instance(class, values)] = true }
	lives := func(class string, values map[string]any) { over[d.Instance(class, values)] = false }
	over[live], over[root] = false, false
	leaks("android.view.View", map[string]any{"mContext": gone})
	lives("android.view.View", map[string]any{"mContext": live})
	leaks("android.view.View", map[string]any{"mContext": live, "mParent": root, "mWindowAttachCount": 1})
	lives("android.view.View", map[string]any{"mContext": live, "mParent": root, "mWindowAttachCount": 1, "mAttachInfo": some})
	lives("android.view.View", map[string]any{"mContext": live, "mParent": root})
	leaks("android.view.ViewRootImpl", nil)
	leaks("android.view.ViewRootImpl", map[string]any{"mView": some, "mContext": gone})
	leaks("android.os.MessageQueue", map[string]any{"mQuitting": true})
	lives("android.os.MessageQueue", nil)
	leaks("android.view.Window", map[string]any{"mDestroyed": true})
	lives("android.view.Window", nil)
	leaks("mortar.MortarScope", map[string]any{"dead": true})
	lives("mortar.MortarScope", nil)
	leaks("app.Wrapper", map[string]any{"mBase": gone})
	lives("app.Wrapper", map[string]any{"mBase": live})
	leaks("android.widget.Toast", map[string]any{"mTN": d.Instance("android.widget.Toast$TN", map[string]any{"mWM": some})})
	lives("android.widget.Toast", map[string]any{"mTN": d.Instance("android.widget.Toast$TN", nil)})
	leaks("app.List", map[string]any{"mCalled": true})
	lives("app.List", map[string]any{"mCalled": true, "mFragmentManager": some})
	lives("app.List", nil)
	g := open(t, d.Encode())
	a := &android{g: g}
	for id, want := range over {
		o := g.Find(id)
		got := ""
		for _, i := range inspectors {
			if r := i.over; got == "" && g.Class(o).Is(i.class) {
				got = r(a, o)
			}
		}
		if (got != "") != want {
			t.Errorf("%s %#x: over %q, want %v", g.Class(o).Name, id, got, want)
		}
	}
}
