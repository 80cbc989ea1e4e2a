package trace

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
)

func someCalls(n int) []calls.Call {
	r := rand.New(rand.NewPCG(1, 2))
	var out []calls.Call
	for i := range n {
		at := stack.Time(1e12) + stack.Time(i)*1000 - stack.Time(r.IntN(5000))
		c := calls.Call{Fn: r.IntN(2), TID: stack.TID(100 + r.IntN(3)), Enter: at, Exit: at + stack.Time(r.IntN(1e6)), CFA: 0x7ffff0000000 + uint64(r.IntN(4096))*8,
			Ret: 0x400000 + uint64(r.IntN(1<<20)), How: calls.How(r.IntN(4)), Before: r.IntN(9) == 0, Unsure: r.IntN(9) == 0}
		if r.IntN(3) == 0 {
			c.Task = 0xc000000000 + uint64(r.IntN(1<<20))
		}
		out = append(out, c)
	}
	return out
}

func callRecording(t testing.TB, cs []calls.Call, tr *Traced) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Process(Process{PID: 1}), w.Thread(Thread{TID: 100, Born: 1}), w.Thread(Thread{TID: 101, Seq: 1, Born: 1}),
		w.Thread(Thread{TID: 101, Seq: 2, Born: 1e12 + 500_000}), w.Traced(tr), w.Calls(slices.Clone(cs)), w.End(End{At: 2e12, Reason: "duration"})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

var twoFunctions = &Traced{At: 5, Began: 3, Engine: "cpu", Functions: []TracedFunction{{Name: "f", Addr: 16, Ranges: [][2]uint64{{16, 32}}, Calls: 7}, {Name: "g", Hot: 3, HotAt: 9}}, Lost: 2}

func readCalls(t *testing.T, b []byte) (*Recording, []calls.Call, error) {
	t.Helper()
	rec, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var got []calls.Call
	var bad error
	for c, err := range rec.Calls() {
		if err != nil {
			bad = err
			continue
		}
		got = append(got, c)
	}
	return rec, got, bad
}

func TestCallsRoundTrip(t *testing.T) {
	want := someCalls(50_000)
	b := callRecording(t, want, twoFunctions)
	rec, got, err := readCalls(t, b)
	if err != nil || len(rec.Problems) > 0 {
		t.Fatal(err, rec.Problems)
	}
	slices.SortStableFunc(want, func(a, b calls.Call) int { return int(a.TID) - int(b.TID) })
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(rec.Traced, twoFunctions) {
		t.Fatalf("%d calls of %d; %+v", len(got), len(want), rec.Traced)
	}
	if n := float64(len(b)) / float64(len(want)); n > 20 {
		t.Errorf("%.1f bytes a call", n)
	}
}

func TestCallsOfACut(t *testing.T) {
	all := someCalls(3000)
	rec, _, _ := readCalls(t, callRecording(t, all, twoFunctions))
	from, to := stack.Time(1e12+1_000_000), stack.Time(1e12+1_500_000)
	var b bytes.Buffer
	if err := Cut(&b, rec, Part{From: from, To: to, Threads: []int{0, 2}}); err != nil {
		t.Fatal(err)
	}
	part, got, err := readCalls(t, b.Bytes())
	if err != nil || part.Traced == nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range all {
		in := c.Exit >= from && c.Enter <= to
		// Number 101 was another thread's in the beginning.
		if in && (c.TID == 100 || c.TID == 101 && c.Exit >= 1e12+500_000) {
			n++
		}
	}
	if n == 0 || len(got) != n {
		t.Errorf("%d calls, want %d", len(got), n)
	}
}

func TestDamagedCalls(t *testing.T) {
	b := callRecording(t, someCalls(20), twoFunctions)
	i := bytes.LastIndex(b, []byte(chunkCalls)) + chunkHead + 4
	b[i] ^= 0x55
	rec, got, err := readCalls(t, b)
	if err == nil || rec.End == nil || len(got) >= 20 {
		t.Errorf("%v, %d calls", err, len(got))
	}
}

func FuzzCalls(f *testing.F) {
	one := someCalls(1)
	f.Add(callRecords.append(nil, one))
	f.Add(binary.AppendUvarint(nil, 1<<40))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got []calls.Call
		more, err := callRecords.decode(b, func(c calls.Call) bool { got = append(got, c); return true })
		if more != (err == nil) {
			t.Fatal(more, err)
		}
		for _, c := range got {
			if c.Exit < c.Enter || c.Enter < 0 || c.Fn < 0 || c.Fn >= maxTraced || !c.How.Valid() {
				t.Fatalf("%+v", c)
			}
		}
		if err != nil || len(got) == 0 {
			return
		}
		var again []calls.Call
		if _, err := callRecords.decode(callRecords.append(nil, got), func(c calls.Call) bool { again = append(again, c); return true }); err != nil || !reflect.DeepEqual(got, again) {
			t.Fatalf("%v: %+v, then %+v", err, got, again)
		}
	})
}
