package trace

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

func someOps(n int) []IOOp {
	r := rand.New(rand.NewPCG(3, 4))
	var out []IOOp
	at := stack.Time(1e12)
	for range n {
		at += stack.Time(r.IntN(5000))
		o := IOOp{TID: stack.TID(100 + r.IntN(3)), Op: iowatch.OpRead + iowatch.Op(r.IntN(6)), Begin: at, Took: int64(r.IntN(1e6)), FD: int32(r.IntN(500)),
			File: r.IntN(4) - 1, Call: r.IntN(3) - 1, Want: int64(r.IntN(1 << 20)), Ret: int64(r.IntN(1<<20)) - 1, Stack: -1}
		if r.IntN(9) == 0 {
			o.Stack = r.IntN(2)
		}
		if r.IntN(5) == 0 {
			o.Queued = r.Int64N(o.Took + 1)
		}
		out = append(out, o)
	}
	return out
}

var (
	someNames = IONames{Files: []IOPath{{"/etc/hosts", "file"}, {"socket:[1]", "socket"}}, Calls: []string{"read"}, Frames: []IOFrame{{Func: "f", File: "f.c", Line: 3}, {Module: "/bin/x", Addr: 16}},
		Stacks: []IOStack{{Frames: []int{0, 1}}}}
	moreNames = IONames{First: [4]int{2, 1, 2, 1}, Files: []IOPath{{"/tmp/x", "file"}}, Calls: []string{"write"}, Frames: []IOFrame{{Func: "g"}}, Stacks: []IOStack{{Frames: []int{2, 0}, Hidden: []int{0}, Cut: "unmapped address"}}}
	someIO    = &IO{At: 5, Began: 3, Slow: 13_000_000, Files: []IOFile{{File: 0, Ops: 7, Stack: 1}}, Findings: []IOFinding{{Rule: "leak", At: 1e12 + 1_200_000, TID: 100, Path: "/tmp/x", Stack: 0, Where: -1},
		{Rule: "main-io", At: 1e12 + 90_000_000, TID: 100}}, Calls: []IOCalls{{Call: "read", Calls: 7}}, Skipped: 2, Lost: []string{"3 records"}}
)

func ioRecording(t testing.TB, ops []IOOp) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Process(Process{PID: 1}), w.Thread(Thread{TID: 100, Born: 1}), w.Thread(Thread{TID: 101, Seq: 1, Born: 1}), w.Ops(slices.Clone(ops)),
		w.IONames(&someNames), w.IO(&IO{}), w.IONames(&moreNames), w.IO(someIO), w.End(End{At: 2e12, Reason: "duration"})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func readOps(t *testing.T, b []byte) (*Recording, []IOOp, error) {
	t.Helper()
	rec, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var got []IOOp
	var bad error
	for o, err := range rec.Ops() {
		if err != nil {
			bad = err
			continue
		}
		got = append(got, o)
	}
	return rec, got, bad
}

func TestIORoundTrip(t *testing.T) {
	want := someOps(50_000)
	b := ioRecording(t, want)
	rec, got, err := readOps(t, b)
	if err != nil || len(rec.Problems) > 0 {
		t.Fatal(err, rec.Problems)
	}
	slices.SortStableFunc(want, func(a, b IOOp) int { return int(a.TID) - int(b.TID) })
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(rec.IO, someIO) {
		t.Fatalf("%d operations of %d; %+v", len(got), len(want), rec.IO)
	}
	if frames, cut := rec.IONames.Stack(1, true); len(frames) != 2 || frames[0].Func != "g" || frames[1].Line != 3 || cut != "unmapped address" {
		t.Errorf("%+v, %q", frames, cut)
	}
	if frames, _ := rec.IONames.Stack(1, false); len(frames) != 1 || frames[0].Line != 3 {
		t.Errorf("%+v", frames)
	}
	if rec.IONames.Path(2) != "/tmp/x" || rec.IONames.Path(3) != "" || rec.IONames.Path(-1) != "" || rec.IONames.Call(1) != "write" || rec.IONames.Call(2) != "" {
		t.Errorf("%+v", rec.IONames)
	}
	if frames, _ := rec.IONames.Stack(2, true); frames != nil {
		t.Errorf("unknown stack: %+v", frames)
	}
	if n := float64(len(b)) / float64(len(want)); n > 22 {
		t.Errorf("%.1f bytes an operation", n)
	}
}

func TestIOOfACut(t *testing.T) {
	all := someOps(3000)
	rec, _, _ := readOps(t, ioRecording(t, all))
	from, to := stack.Time(1e12+1_000_000), stack.Time(1e12+1_500_000)
	var b bytes.Buffer
	if err := Cut(&b, rec, Part{From: from, To: to, Threads: []int{0}}); err != nil {
		t.Fatal(err)
	}
	part, got, err := readOps(t, b.Bytes())
	if err != nil || part.IO == nil || len(part.IO.Findings) != 1 || part.IO.Findings[0].Rule != "leak" || part.IONames.Path(2) != "/tmp/x" {
		t.Fatalf("%v: %+v", err, part.IO)
	}
	n := 0
	for i := range all {
		if o := &all[i]; o.End() >= from && o.Begin <= to && o.TID == 100 {
			n++
		}
	}
	if n == 0 || len(got) != n {
		t.Errorf("%d operations, want %d", len(got), n)
	}
}

// TestDamagedIO: without a piece of the names, operations lose those names and nothing more.
func TestDamagedIO(t *testing.T) {
	ops := someOps(200)
	b := ioRecording(t, ops)
	i := bytes.Index(b, []byte(chunkOps)) + chunkHead + 4
	b[i] ^= 0x55
	rec, got, err := readOps(t, b)
	if err == nil || rec.End == nil || len(got) >= 200 {
		t.Errorf("%v, %d operations", err, len(got))
	}
	b = ioRecording(t, ops)
	b[bytes.Index(b, []byte("/etc/hosts"))] ^= 0x55
	rec, got, err = readOps(t, b)
	if err != nil || len(got) != 200 || len(rec.IONames.Files) > 0 || !strings.Contains(strings.Join(rec.Problems, "\n"), "names begin at [2 1 2 1], [0 0 0 0] are known") {
		t.Errorf("%v, %d operations, %q, %+v", err, len(got), rec.Problems, rec.IONames)
	}
	for _, o := range got {
		if o.File != -1 || o.Call != -1 || o.Stack != -1 {
			t.Fatalf("%+v refers to names that are not known", o)
		}
	}
}

func TestHostileIONames(t *testing.T) {
	for _, n := range []IONames{{First: [4]int{1}}, {Stacks: []IOStack{{Frames: []int{0}}}}, {Stacks: []IOStack{{Frames: []int{-1}}}}, {Frames: []IOFrame{{}}, Stacks: []IOStack{{Frames: []int{0}, Hidden: []int{1}}}},
		{Frames: []IOFrame{{}}, Stacks: []IOStack{{Frames: make([]int, maxIODepth+1)}}}, {Calls: make([]string, maxIOCalls+1)}} {
		var known IONames
		if err := known.add(&n); err == nil || len(known.Frames) > 0 {
			t.Errorf("accepted %.100v", n)
		}
	}
}

func FuzzOps(f *testing.F) {
	one := someOps(1)
	f.Add(opRecords.append(nil, one))
	f.Add(binary.AppendUvarint(nil, 1<<40))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		var ops []IOOp
		_, err := opRecords.decode(b, func(o IOOp) bool {
			if o.End() < o.Begin || !validOp(o.Op) || o.File < -1 || o.Stack < -1 || o.FD < 0 {
				t.Fatalf("%+v", o)
			}
			ops = append(ops, o)
			n++
			return true
		})
		if n > len(b) {
			t.Fatalf("%d operations in %d bytes", n, len(b))
		}
		if err != nil || n == 0 {
			return
		}
		var again []IOOp
		if _, err := opRecords.decode(opRecords.append(nil, ops), func(o IOOp) bool { again = append(again, o); return true }); err != nil || !reflect.DeepEqual(ops, again) {
			t.Fatalf("%v: %+v became %+v", err, ops, again)
		}
	})
}
