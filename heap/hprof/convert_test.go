package hprof

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func convert(t testing.TB, dump []byte, o ConvertOptions) []byte {
	t.Helper()
	var got, pipe bytes.Buffer
	o.Temp = t.TempDir()
	if err := Convert(&got, bytes.NewReader(dump), o); err != nil {
		t.Fatal(err)
	}
	if err := Convert(&pipe, onlyReader{bytes.NewReader(dump)}, o); err != nil || !bytes.Equal(got.Bytes(), pipe.Bytes()) {
		t.Fatal("from a pipe it is another dump", err)
	}
	return got.Bytes()
}

// From ART's form to HotSpot's, Convert writes what hprof-conv writes.
func TestConvertAsHprofConv(t *testing.T) {
	conv := program(t, "hprof-conv")
	eachDump(t, func(t *testing.T, dump []byte) {
		r, err := NewReader(bytes.NewReader(dump))
		if err != nil {
			t.Fatal(err)
		}
		if r.Header().Version != version3 || strings.HasSuffix(t.Name(), "/own") {
			t.Skip("not of Android")
		}
		dir := t.TempDir()
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		if err := os.WriteFile(in, dump, 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := exec.Command(conv, in, out).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		want, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if got := convert(t, dump, ConvertOptions{}); !bytes.Equal(got, want) {
			t.Fatal(difference(got, want))
		}
	})
}

// objects returns what a dump has, apart from its form.
func contents(t testing.TB, dump []byte) (objects map[uint64]string, classes map[uint64]string) {
	t.Helper()
	objects, classes = map[uint64]string{}, map[uint64]string{}
	names := map[uint64]string{}
	r, err := NewReader(bytes.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	for {
		it, err := r.Next()
		if err == io.EOF {
			return objects, classes
		}
		if err != nil {
			t.Fatal(err)
		}
		body := string(dump[it.BodyOffset() : it.BodyOffset()+it.Body])
		switch {
		case it.Kind == KindRecord && it.Tag == TagString:
			names[it.ID] = body
		case it.Kind == KindRecord && it.Tag == TagLoadClass:
			classes[it.ID] = names[it.Ref]
		case it.Kind == KindSub && it.Tag >= SubClass && it.Tag <= SubPrimitiveArray:
			objects[it.ID] = string(it.Head) + body
		}
	}
}

// To the other form and back, objects and names of classes are the same.
func TestConvertBack(t *testing.T) {
	eachDump(t, func(t *testing.T, dump []byte) {
		if strings.HasSuffix(t.Name(), "/own") {
			t.Skip("of both forms")
		}
		objects, classes := contents(t, dump)
		other := convert(t, dump, ConvertOptions{ClassNames: true})
		form := HotSpot
		if bytes.Contains(dump[:20], []byte(version3)) {
			form = ART
		}
		back := convert(t, other, ConvertOptions{To: form, ClassNames: true})
		if _, findings, err := Check(bytes.NewReader(other), t.TempDir()); err != nil || len(findings) > 0 && !strings.Contains(t.Name(), "agent") {
			t.Fatal(findings, err)
		}
		for _, c := range [][]byte{other, back} {
			o, k := contents(t, c)
			if len(o) != len(objects) || len(k) != len(classes) {
				t.Fatalf("%d objects and %d classes, want %d and %d", len(o), len(k), len(objects), len(classes))
			}
			for id, b := range objects {
				if o[id] != b {
					t.Fatalf("object %#x is another", id)
				}
			}
		}
		_, again := contents(t, back)
		for id, name := range classes {
			if form == HotSpot {
				name = HotSpotName(name) // JDK 6's agent has ART's
			}
			if again[id] != name {
				t.Fatalf("class %s is called %s", name, again[id])
			}
		}
		_, k := contents(t, other)
		dots, slashes := 0, 0
		for _, name := range k {
			if strings.Contains(name, "/") || strings.HasPrefix(name, "[") {
				slashes++
			}
			if strings.Contains(name, ".") || strings.HasSuffix(name, "[]") {
				dots++
			}
		}
		if form == ART && dots > 0 || form == HotSpot && slashes > 1 {
			t.Errorf("%d names with dots, %d with slashes", dots, slashes)
		}
		r, err := NewReader(bytes.NewReader(other))
		if err != nil {
			t.Fatal(err)
		}
		objectsOf := 0
		for it, err := r.Next(); err == nil && form == HotSpot; it, err = r.Next() {
			if it.HasSubs() {
				objectsOf = 0
			}
			if it.Kind == KindSub && it.Tag >= SubClass && it.Tag <= SubPrimitiveArray {
				if objectsOf++; objectsOf > artSegmentObjects || it.Heap != HeapApp {
					t.Fatalf("object %d of the segment at %d is in heap %d", objectsOf, it.Offset, it.Heap)
				}
			}
		}
	})
}

func TestNames(t *testing.T) {
	for art, hotspot := range map[string]string{"java.lang.String": "java/lang/String", "int[]": "[I", "java.lang.String[][]": "[[Ljava/lang/String;", "A$B": "A$B"} {
		if got := ARTName(hotspot); got != art {
			t.Errorf("%s: %s", hotspot, got)
		}
		if got := HotSpotName(art); got != hotspot {
			t.Errorf("%s: %s", art, got)
		}
	}
}
