package hprof

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"
)

// seeds adds dumps of all kinds to a fuzz target, small ones.
func seeds(f *testing.F, change func([]byte) []byte) {
	f.Helper()
	add := func(b []byte) {
		for i := 0; i+8 < len(b); { // shorter: the bitmaps of sample are large
			if n := bytes.Count(b[i:min(len(b), i+5000)], []byte("pixel")); n == 1000 {
				b = append(b[:i:i], b[i+5000:]...)
				continue
			}
			i += 5
		}
		f.Add(change(b))
	}
	for _, c := range []struct {
		version string
		ids     int
		tag     uint8
	}{{"1.0.3", 4, TagHeapSegment}, {"1.0.2", 8, TagHeapSegment}, {"1.0.1", 4, TagHeapDump}} {
		b := newBuilder(c.version, c.ids)
		b.str(0x10, "constant")
		b.load(1, 0x1000, 0x10)
		b.head(TagFrame, 4*c.ids+8)
		b.Write(make([]byte, 4*c.ids+8))
		b.head(TagTrace, 12+c.ids)
		b.Write([]byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1})
		b.id(0)
		b.begin(c.tag)
		if c.version == version3 {
			b.heap(HeapZygote, 0x10)
			b.array(0x3000, TypeInt, []byte{1, 2, 3, 4})
			b.heap(HeapApp, 0x10)
		}
		b.class(0x1000, 0, 8, Field{0x10, TypeInt}, Field{0x10, TypeObject})
		b.instance(0x2000, 0x1000, append([]byte{0, 0, 0, 5}, b.refs(0x3000)...))
		b.array(0x3100, TypeChar, []byte("\x00a\x00b"))
		b.objects(0x3200, 0x1000, 0x2000, 0, 0x2000)
		b.u1(SubRootJNIMonitor)
		b.id(0x2000)
		b.u4(1)
		b.u4(2)
		b.end()
		b.head(TagHeapDumpEnd, 0)
		add(bytes.Clone(b.Bytes()))
	}
	small := newBuilder("1.0.3", 4)
	small.str(0, mark)
	small.begin(TagHeapSegment)
	add(bytes.Clone(small.Bytes()))
}

// allocated fails if f allocates more than n bytes of input justify.
func allocated(t *testing.T, n int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+100*n); got > limit {
		t.Fatalf("%d bytes of input made it allocate %d", n, got)
	}
}

// known reports whether an error is one that a reader may return for bad input.
func known(err error) bool {
	var damage *Error
	return err == nil || errors.As(err, &damage) || errors.Is(err, ErrPacked) || errors.Is(err, ErrNotCut)
}

func FuzzReader(f *testing.F) {
	seeds(f, func(b []byte) []byte { return b })
	f.Fuzz(func(t *testing.T, dump []byte) {
		allocated(t, len(dump), func() {
			for _, src := range []io.Reader{bytes.NewReader(dump), onlyReader{bytes.NewReader(dump)}} {
				if _, _, err := Check(src, t.TempDir()); !known(err) {
					t.Fatal(err)
				}
			}
			var copied bytes.Buffer
			if err := Copy(&copied, bytes.NewReader(dump)); err == nil && !bytes.Equal(copied.Bytes(), dump) {
				t.Fatal("the copy is not the dump")
			} else if !bytes.HasPrefix(dump, copied.Bytes()) {
				t.Fatal("a partial copy is not the start of the dump")
			}
			s, err := Salvage(bytes.NewReader(dump), int64(len(dump)))
			if err != nil {
				return
			}
			b, err := io.ReadAll(s)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ReadInfo(bytes.NewReader(b)); err != nil {
				t.Fatalf("salvaged from %v: %v", s.Damage, err)
			}
		})
	})
}

func FuzzStrip(f *testing.F) {
	seeds(f, func(b []byte) []byte { return b })
	f.Fuzz(func(t *testing.T, dump []byte) {
		allocated(t, len(dump), func() {
			_, sound := ReadInfo(bytes.NewReader(dump))
			for _, o := range []StripOptions{{Rule: Shark}, {Rule: Koom}, {Rule: Matrix}, {Rule: Shark, KeepStrings: true, RedactConstants: true}, {Rule: Koom, KeepStrings: true}} {
				o.Temp = t.TempDir()
				var out, filled bytes.Buffer
				if err := Strip(&out, bytes.NewReader(dump), o); err != nil {
					if !known(err) {
						t.Fatal(err)
					}
					continue
				}
				if sound != nil {
					t.Fatal(o.Rule, "strips what cannot be read:", sound)
				}
				if _, err := ReadInfo(bytes.NewReader(out.Bytes())); err != nil {
					t.Fatal(o.Rule, err)
				}
				if o.Rule == Koom {
					if err := Fill(&filled, bytes.NewReader(out.Bytes())); err != nil {
						t.Fatal(err)
					}
					if _, err := ReadInfo(bytes.NewReader(filled.Bytes())); err != nil {
						t.Fatal("filled:", err)
					}
				}
			}
			for _, to := range []Form{ART, HotSpot} {
				var out bytes.Buffer
				if err := Convert(&out, bytes.NewReader(dump), ConvertOptions{To: to, ClassNames: true, Temp: t.TempDir()}); err == nil {
					if _, err := ReadInfo(bytes.NewReader(out.Bytes())); err != nil {
						t.Fatal(to, err)
					}
				}
			}
		})
	})
}

func FuzzFill(f *testing.F) {
	seeds(f, func(b []byte) []byte {
		var out bytes.Buffer
		if err := Strip(&out, bytes.NewReader(b), StripOptions{Rule: Koom}); err != nil {
			return b
		}
		return out.Bytes()
	})
	f.Fuzz(func(t *testing.T, dump []byte) {
		allocated(t, len(dump), func() {
			if err := Fill(&bounded{}, bytes.NewReader(dump)); !known(err) && !errors.Is(err, errBounded) {
				t.Fatal(err)
			}
		})
	})
}

// bounded fails after 1 MiB of output: a fill may write 16 GB for an array.
type bounded struct{ n int }

var errBounded = errors.New("enough")

func (b *bounded) Write(p []byte) (int, error) {
	if b.n += len(p); b.n > 1<<20 {
		return 0, errBounded
	}
	return len(p), nil
}

func FuzzUnpack(f *testing.F) {
	seeds(f, func(b []byte) []byte {
		var out bytes.Buffer
		if err := Pack(&out, bytes.NewReader(b)); err != nil {
			f.Fatal(err)
		}
		return out.Bytes()
	})
	f.Fuzz(func(t *testing.T, packed []byte) {
		allocated(t, len(packed), func() { _ = Unpack(io.Discard, bytes.NewReader(packed)) })
	})
}

// FuzzModel unpacks blocks whose columns are the input: what zstd and checksums
// would keep from the model otherwise.
func FuzzModel(f *testing.F) {
	f.Add([]byte("\x03\x03\x03"), []byte("\x50\x00\x05"), uint16(30))
	f.Add(bytes.Repeat([]byte{3}, 40), bytes.Repeat([]byte{0x50, 0, 0, 0, 0, 4}, 40), uint16(400))
	f.Fuzz(func(t *testing.T, lengths, data []byte, items uint16) {
		allocated(t, len(data), func() {
			m := newModel(false)
			m.ids = 4
			u := &unpacker{model: m}
			for g := range groups {
				m.data[g], m.lengths[g] = data, lengths
			}
			for range items {
				if u.item(maxBlock) != nil {
					break
				}
			}
		})
	})
}

func FuzzPack(f *testing.F) {
	seeds(f, func(b []byte) []byte { return b })
	f.Fuzz(func(t *testing.T, dump []byte) {
		var out, back bytes.Buffer
		if err := pack(&out, bytes.NewReader(dump), int64(1+len(dump)%200)); err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		if err := Unpack(&back, bytes.NewReader(out.Bytes())); err != nil || !bytes.Equal(back.Bytes(), dump) {
			t.Fatal("another dump came back", err)
		}
	})
}
