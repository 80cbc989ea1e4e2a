package jfr

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// traced returns the recording of testdata/README.
func traced(t testing.TB) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "traced.jfr.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// row is an event as traced.txt has it.
type row struct {
	start, duration, tid, virtual, id int64
	thread, class, method, signature  string
}

func rows(t testing.TB, c *Chunk) (out []row) {
	t.Helper()
	err := c.Events("jdk.MethodTrace", []string{"startTime", "duration", "eventThread", "method", "stackTrace", "no such field"}, func(v []Value) error {
		if st := c.Constant(v[4]); st.Kind != Null || v[5].Kind != Null {
			return fmt.Errorf("stack %+v, missing field %+v", st, v[5])
		}
		r := row{start: c.Time(v[0].Int), duration: c.Nanos(v[1].Int), tid: c.Path(v[2], "osThreadId").Int, virtual: c.Path(v[2], "virtual").Int,
			id: c.Path(v[2], "javaThreadId").Int, thread: c.Path(v[2], "javaName").Text, class: c.Path(v[3], "type", "name", "string").Text,
			method: c.Path(v[3], "name", "string").Text, signature: c.Path(v[3], "descriptor", "string").Text}
		if r.thread == "" {
			r.thread = "-"
		}
		out = append(out, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sorted(all []row) []row {
	slices.SortFunc(all, func(a, b row) int {
		if a.start != b.start {
			return int(a.start - b.start)
		}
		return int(a.duration - b.duration)
	})
	return all
}

// TestEqualsJFRPrint: the events of a recording of Java 25 are those that its own reader finds.
func TestEqualsJFRPrint(t *testing.T) {
	c, err := Parse(traced(t))
	if err != nil {
		t.Fatal(err)
	}
	got := rows(t, c)
	var want []row
	text, err := os.ReadFile(filepath.Join("testdata", "traced.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r row
		if _, err := fmt.Sscan(line, &r.start, &r.duration, &r.tid, &r.virtual, &r.id, &r.thread, &r.class, &r.method, &r.signature); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		want = append(want, r)
	}
	if len(got) != len(want) || len(want) < 200 {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	// The JDK computes in floating point, so events at almost the same time may be in another order.
	for _, r := range sorted(got) {
		i := slices.IndexFunc(want, func(w row) bool {
			near := max(r.start-w.start, w.start-r.start) <= 2 && max(r.duration-w.duration, w.duration-r.duration) <= 1
			w.start, w.duration = r.start, r.duration
			return near && r == w
		})
		if i < 0 {
			t.Fatalf("%+v is not in the JDK's list", r)
		}
		want = slices.Delete(want, i, i+1)
	}
	if c.Final || c.Minor != 1 || c.Type("jdk.MethodTrace") == nil || c.Type("no.Type") != nil {
		t.Errorf("%+v", c.Header)
	}
	if err := c.Events("no.Event", nil, func([]Value) error { return errors.New("an event") }); err != nil {
		t.Error(err)
	}
}

// TestEachChunk: a file has several chunks, of which some are passed over.
func TestEachChunk(t *testing.T) {
	one := traced(t)
	file := bytes.Repeat(one, 3)
	read, asked := 0, 0
	err := Each(bytes.NewReader(file), int64(len(file)), func(*Header) bool { asked++; return asked != 2 }, func(c *Chunk) error {
		read += len(rows(t, c))
		return nil
	})
	c, _ := Parse(one)
	if n := len(rows(t, c)); err != nil || asked != 3 || read != 2*n {
		t.Errorf("%v: %d chunks, %d events, want twice %d", err, asked, read, n)
	}
	for _, cut := range []int{1, headerSize, len(one) / 2, len(one) - 1} {
		seen := 0
		err := Each(bytes.NewReader(file[:len(one)+cut]), int64(len(one)+cut), nil, func(*Chunk) error { seen++; return nil })
		if err == nil || seen != 1 || !strings.Contains(err.Error(), fmt.Sprintf("JFR chunk at %d: ", len(one))) {
			t.Errorf("cut after %d bytes of the second chunk: %d chunks, %v", cut, seen, err)
		}
	}
	stop := errors.New("stop")
	if err := Each(bytes.NewReader(file), int64(len(file)), nil, func(*Chunk) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// TestDamagedHeader: each damage has one clear error.
func TestDamagedHeader(t *testing.T) {
	for _, c := range []struct {
		damage func(b []byte)
		want   string
	}{
		{func(b []byte) { b[0] = 'f' }, "not a JFR chunk"},
		{func(b []byte) { b[5] = 3 }, "only version 2 is known"},
		{func(b []byte) { b[64] = 1 }, "still being written"},
		{func(b []byte) { binary.BigEndian.PutUint64(b[8:], 1<<40) }, "are allowed"},
		{func(b []byte) { binary.BigEndian.PutUint64(b[8:], uint64(len(b))+1) }, "of which"},
		{func(b []byte) { binary.BigEndian.PutUint64(b[16:], 1<<50) }, "constants at offset"},
		{func(b []byte) { binary.BigEndian.PutUint64(b[24:], 3) }, "metadata at offset"},
		{func(b []byte) { copy(b[24:32], b[16:24]) }, "in place of the metadata"},
		{func(b []byte) { binary.BigEndian.PutUint64(b[56:], 0) }, "clock of 0 ticks"},
	} {
		b := traced(t)
		c.damage(b)
		if _, err := Parse(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	b := traced(t)
	copy(b[16:24], b[24:32])
	c, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Events("jdk.MethodTrace", nil, func([]Value) error { return nil }); err == nil || !strings.Contains(err.Error(), "in place of constants") {
		t.Error(err)
	}
}

// TestTimes: ticks that cannot be converted are at the ends of the range.
func TestTimes(t *testing.T) {
	h := Header{Start: 1000, StartTicks: 500, TicksPerSec: 2_000_000_000}
	for ticks, want := range map[int64]int64{500: 1000, 700: 1100, 300: 900, 1<<63 - 1: 1000 + (1<<63-1-500)/2} {
		if got := h.Time(ticks); got != want {
			t.Errorf("%d ticks are %d, want %d", ticks, got, want)
		}
	}
	h.TicksPerSec = 1
	if h.Time(1<<63-1) != 1<<63-1 || h.Nanos(-5) != 0 {
		t.Errorf("%d, %d", h.Time(1<<63-1), h.Nanos(-5))
	}
}

// writer writes values for a chunk with integers of fixed size.
type writer struct{ bytes.Buffer }

func (w *writer) put(v ...any) {
	for _, x := range v {
		switch x := x.(type) {
		case string:
			w.WriteByte(stringLatin1)
			w.put(int32(len(x)))
			w.WriteString(x)
		default:
			_ = binary.Write(w, binary.BigEndian, x)
		}
	}
}

func event(id int64, body func(w *writer)) []byte {
	var w writer
	w.put(int32(0), id)
	body(&w)
	b := w.Bytes()
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// element writes one of the metadata: name and attributes by number of their strings, then what it contains.
func (w *writer) element(strings []string, name string, attributes []string, in ...func()) {
	no := func(s string) int32 { return int32(slices.Index(strings, s)) }
	w.put(no(name), int32(len(attributes)/2))
	for _, a := range attributes {
		w.put(no(a))
	}
	w.put(int32(len(in)))
	for _, f := range in {
		f()
	}
}

// plainChunk is a chunk with all basic types, an array and a constant of a structure.
func plainChunk() []byte {
	names := []string{"root", "metadata", "class", "field", "id", "name", "constantPool", "true", "dimension", "1",
		"boolean", "char", "short", "int", "long", "float", "double", "java.lang.String", "Pair", "Event", "a", "b",
		"10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "byte", "20"}
	ids := map[string]string{"boolean": "10", "char": "11", "short": "12", "int": "13", "long": "14", "float": "15", "double": "16",
		"java.lang.String": "17", "Pair": "18", "Event": "19", "byte": "20"}
	meta := event(typeMetadata, func(w *writer) {
		w.put(int64(0), int64(0), int64(1), int32(len(names)))
		for _, s := range names {
			w.put(s)
		}
		field := func(name, of string, more ...string) func() {
			return func() { w.element(names, "field", append([]string{"name", name, "class", ids[of]}, more...)) }
		}
		class := func(name string, fields ...func()) func() {
			return func() { w.element(names, "class", []string{"name", name, "id", ids[name]}, fields...) }
		}
		all := []func(){class("Pair", field("a", "int"), field("b", "java.lang.String"))}
		var fields []func()
		for _, n := range []string{"boolean", "byte", "char", "short", "int", "long", "float", "double", "java.lang.String"} {
			all = append(all, class(n))
			fields = append(fields, field(n, n))
		}
		fields = append(fields, field("a", "Pair", "constantPool", "true"), field("b", "Pair", "dimension", "1"))
		all = append(all, class("Event", fields...))
		w.element(names, "root", nil, func() { w.element(names, "metadata", nil, all...) })
	})
	pools := event(typeCheckpoint, func(w *writer) {
		w.put(int64(0), int64(0), int64(0), int8(0), int32(2))
		w.put(int64(18), int32(1), int64(77), int32(5), int8(stringConstant), int64(3))
		w.put(int64(17), int32(1), int64(3), "five")
	})
	one := event(19, func(w *writer) {
		w.put(int8(1), int8(-2), uint16('c'), int16(-3), int32(-4), int64(-5), float32(1.5), 2.5, int8(stringChars), int32(2), uint16('h'), uint16('i'))
		w.put(int64(77), int32(2), int32(8), int8(stringNull), int32(9), int8(stringUTF8), int32(3), int8('a'), int8(-1), int8('b'))
	})
	b := make([]byte, headerSize)
	copy(b, magic)
	b[5] = 2
	put := func(off int, v int) { binary.BigEndian.PutUint64(b[off:], uint64(v)) }
	put(16, headerSize+len(one))
	put(24, headerSize+len(one)+len(pools))
	put(56, 1e9)
	put(8, headerSize+len(one)+len(pools)+len(meta))
	return slices.Concat(b, one, pools, meta)
}

// TestPlainIntegers reads a chunk whose integers are not compressed, with each kind of value.
func TestPlainIntegers(t *testing.T) {
	c, err := Parse(plainChunk())
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"boolean", "byte", "char", "short", "int", "long", "float", "double", "java.lang.String", "a", "b"}
	n := 0
	err = c.Events("Event", names, func(v []Value) error {
		n++
		for i, want := range []int64{1, -2, 'c', -3, -4, -5} {
			if v[i].Kind != Int || v[i].Int != want {
				t.Errorf("%s: %+v, want %d", names[i], v[i], want)
			}
		}
		if v[6].Float != 1.5 || v[7].Float != 2.5 || v[8].Text != "hi" {
			t.Errorf("%+v", v[6:9])
		}
		if a := c.Path(v[9], "a"); a.Int != 5 {
			t.Errorf("a.a: %+v", a)
		}
		if b := c.Path(v[9], "b"); b.Text != "five" {
			t.Errorf("a.b: %+v", b)
		}
		if b := v[10]; b.Kind != Array || len(b.Elems) != 2 || c.Path(b.Elems[0], "b").Kind != Null || c.Path(b.Elems[1], "b").Text != "a\ufffdb" || c.Path(b.Elems[1], "a").Int != 9 {
			t.Errorf("b: %+v", b)
		}
		if x := c.Path(v[9], "a", "a"); x.Kind != Null {
			t.Errorf("a field of an integer: %+v", x)
		}
		return nil
	})
	if err != nil || n != 1 {
		t.Errorf("%d events, %v", n, err)
	}
}

func FuzzChunk(f *testing.F) {
	f.Add(traced(f))
	f.Add(plainChunk())
	f.Fuzz(func(t *testing.T, b []byte) {
		err := Each(bytes.NewReader(b), int64(len(b)), nil, func(c *Chunk) error {
			for _, name := range []string{"jdk.MethodTrace", "Event"} {
				err := c.Events(name, []string{"startTime", "duration", "eventThread", "method", "a", "b"}, func(v []Value) error {
					for i := range v {
						c.Path(v[i], "type", "name", "string")
					}
					c.Time(v[0].Int)
					return nil
				})
				if c.seen > seenShare*len(c.data)+1 || c.kept > maxKept+maxDepth {
					t.Fatalf("%d values decoded, %d kept, of %d bytes", c.seen, c.kept, len(c.data))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q has several lines", err)
		}
	})
}
