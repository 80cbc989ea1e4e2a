package wire

import (
	"math"
	"reflect"
	"testing"
)

func sample() *Frame {
	return &Frame{Type: TypeMore, ID: 7, Now: 5e9, Bin: 1024, Threads: []Thread{
		{Seq: 3, Lost: 2, Last: 4e9, Seen: 3e9, Rows: []Row{
			{Depth: 0, Items: []Item{{1, 2, 1, 5, 1}, {2, math.Inf(1), 0, 6, 1}}},
			{Depth: 0xffff, Items: []Item{{-4, 9, 8, 0x102, 44}}},
		}},
		{Seq: 4, Last: 1, Seen: 1},
		{Seq: 5, Rows: []Row{{Depth: 2, Items: []Item{{1, 2, .5, 9, 2}}}}},
	}}
}

func TestRoundTrip(t *testing.T) {
	for _, prefix := range []string{"", "abc"} {
		b := Append([]byte(prefix), sample())[len(prefix):]
		if len(b)%8 != 0 {
			t.Errorf("%d bytes are no multiple of 8", len(b))
		}
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, sample()) {
			t.Fatalf("decoded as %+v, %v", got, err)
		}
	}
}

func TestDecodeBad(t *testing.T) {
	b := Append(nil, sample())
	for n := range b {
		if _, err := Decode(b[:n]); err == nil && n < len(b)-8 {
			t.Errorf("the first %d bytes of %d were taken for a whole frame", n, len(b))
		}
	}
	b[4] = 9
	if _, err := Decode(b); err == nil {
		t.Error("a frame of an unknown type was taken")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Append(nil, sample()))
	f.Add([]byte("SLV1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(Append(nil, fr))
		if err != nil || len(again.Threads) != len(fr.Threads) {
			t.Fatalf("re-encoded frame does not read back: %v", err)
		}
	})
}
