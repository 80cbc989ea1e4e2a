package kernel

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// record makes a record of a form for an operation.
func record(form, op byte, size int) []byte {
	b := make([]byte, size)
	b[recForm], b[recOp] = form, op
	le := binary.NativeEndian
	le.PutUint64(b[recEnd:], 1000)
	le.PutUint64(b[recBusy:], 11)
	le.PutUint64(b[recQueued:], 2)
	le.PutUint32(b[recTID:], 77)
	le.PutUint32(b[recFD:], 5)
	le.PutUint32(b[recGen:], 6)
	le.PutUint32(b[recMode:], 0o100644)
	le.PutUint64(b[recSize:], 4096)
	return b
}

func TestParseIO(t *testing.T) {
	var r IORecord
	deepOne := record(formDeep, byte(iowatch.OpOpen), bytesDeep)
	copy(deepOne[recPath:], "/etc/hosts")
	binary.NativeEndian.PutUint32(deepOne[recPages:], 1<<deep-1)
	binary.NativeEndian.PutUint64(deepOne[recExtras+8:], 0x7000)
	if err := parseIO(deepOne, &r); err != nil || r.Path != "/etc/hosts" || r.Cut || len(r.Memory) != deep*pageBytes || len(r.Extras) != 1 || r.Extras[0].Addr != 0x7000 ||
		r.TID != 77 || r.FD != 5 || r.Gen != 6 || r.End != 1000 || r.Took != 13 || r.Queued != 2 || r.Busy() != 11 || r.Kind != iowatch.KindFile || r.Size != 4096 || len(r.Regs) != regBlock {
		t.Errorf("%+v, %v", r.Event, err)
	}
	sums := record(formSums, byte(iowatch.OpClose), bytesSums)
	binary.NativeEndian.PutUint64(sums[recSums+useOps:], 21)
	if err := parseIO(sums, &r); err != nil || r.Sums == nil || r.Sums.Ops != 21 || r.Memory != nil {
		t.Errorf("%+v, %v", r, err)
	}
	for call, want := range map[string]int32{"openat": 9, "dup3": 9, "fcntl": 9, "socket": -1} {
		op := iowatch.OpMake
		if call == "openat" {
			op = iowatch.OpOpen
		}
		b := record(formPlain, byte(op), recBytes)
		i := slices.IndexFunc(ioCalls, func(c ioCall) bool { return c.name == call })
		binary.NativeEndian.PutUint32(b[recNr:], uint32(ioCalls[i].nr))
		binary.NativeEndian.PutUint32(b[recDir:], 9)
		if err := parseIO(b, &r); err != nil || r.Dir != want || r.Call != call {
			t.Errorf("%s: folder %d, %v", call, r.Dir, err)
		}
	}
	for side, want := range map[iowatch.Op]bool{iowatch.OpRead: true, iowatch.OpWrite: true, iowatch.OpOpen: false} {
		b := record(formSmall, byte(iowatch.OpMark), bytesSmall)
		binary.NativeEndian.PutUint32(b[recNr:], unix.SYS_SENDFILE)
		b[recFD2] = byte(side)
		if err := parseIO(b, &r); (err == nil) != want || want && r.Sort != side {
			t.Errorf("mark of side %v: %v, %v", side, r.Sort, err)
		}
	}
	for name, b := range map[string][]byte{
		"no header":         make([]byte, recBytes-1),
		"no operation":      record(formPlain, 0, recBytes),
		"unknown operation": record(formPlain, byte(iowatch.OpCall)+1, recBytes),
		"unknown form":      record(formListed+1, byte(iowatch.OpOpen), bytesDeep),
		"short path":        record(formPath, byte(iowatch.OpOpen), bytesPath-1),
		"short sums":        record(formSums, byte(iowatch.OpClose), bytesSums-1),
		"short stack":       record(formSmall, byte(iowatch.OpRead), bytesSmall-1),
		"deep in small":     record(formDeep, byte(iowatch.OpRead), bytesSmall),
	} {
		if parseIO(b, &r) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	many := record(formSmall, byte(iowatch.OpRead), bytesSmall)
	binary.NativeEndian.PutUint32(many[recPages:], 1<<shallow)
	if parseIO(many, &r) == nil {
		t.Error("more pages than the record has are accepted")
	}
}

func FuzzParseIO(f *testing.F) {
	f.Add(record(formPlain, byte(iowatch.OpSync), bytesPlain))
	f.Add(record(formPath, byte(iowatch.OpOpen), bytesPath))
	f.Add(record(formSums, byte(iowatch.OpClose), bytesSums))
	f.Add(record(formSmall, byte(iowatch.OpRead), bytesSmall))
	f.Add(record(formMiddle, byte(iowatch.OpRead), bytesMiddle))
	f.Add(listed())
	f.Add(record(formListed, byte(iowatch.OpRead), bytesListed))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r IORecord
		if err := parseIO(b, &r); err != nil {
			return
		}
		if len(r.Memory)%pageBytes != 0 || len(r.Path) >= pathBytes+1 || r.Op > iowatch.OpCall || r.Kind == iowatch.KindUnknown && r.Size != -1 {
			t.Errorf("%+v", r)
		}
	})
}

// openIO watches this process, or skips the test.
func openIO(t *testing.T, o IOOptions) *IO {
	t.Helper()
	e, err := OpenIO(os.Getpid(), o)
	if err == nil {
		err = e.Start()
	}
	switch {
	case Refused(err):
		testprog.Missing(t, "bpf", err.Error())
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// TestIOSums reads and writes a file in random pieces: the kernel's sums are those that
// iowatch.Sums.Add makes of the same operations, except for times. Threads have sums of their own, or
// share them.
func TestIOSums(t *testing.T) {
	t.Run("apart", func(t *testing.T) { testIOSums(t, false) })
	t.Run("shared", func(t *testing.T) { testIOSums(t, true) })
}

// TestIOShared reads from several threads at once: no operation is missing in the sums.
func TestIOShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	e := openIO(t, IOOptions{Slow: 13 * time.Millisecond, Gap: 8 * time.Millisecond, SmallOps: 20})
	if err := e.Share(true); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const threads, times = 4, 5000
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			runtime.LockOSThread()
			b := make([]byte, 10)
			for range times {
				if _, err := f.ReadAt(b, 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	found := false
	err = e.Sums(func(tid stack.TID, fd int32, gen uint32, _ iowatch.Kind, s *iowatch.Sums) {
		if fd != int32(f.Fd()) || gen != e.Gen(fd) {
			return
		}
		found = true
		n := uint64(0)
		for _, x := range s.Hist {
			n += uint64(x)
		}
		if tid != 0 || s.TID != 0 || s.Ops != threads*times || s.Got != 10*threads*times || s.Want != s.Got || n != s.Ops || s.Time == 0 {
			t.Errorf("thread %d, of %d: %+v", tid, s.TID, *s)
		}
	})
	if err != nil || !found {
		t.Errorf("the file has no sums: %v", err)
	}
}

func testIOSums(t *testing.T, shared bool) {
	path := filepath.Join(t.TempDir(), "data")
	e := openIO(t, IOOptions{Slow: 13 * time.Millisecond, Gap: 8 * time.Millisecond, SmallOps: 20})
	if err := e.Share(shared); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	fd := int32(f.Fd())
	r := rand.New(rand.NewPCG(3, 4))
	var want iowatch.Sums
	add := func(op iowatch.Op, asked, got int) {
		want.Add(&iowatch.Event{Op: op, End: stack.Time(1), Want: int64(asked), Ret: int64(got)}, 1)
	}
	for range 500 {
		b := make([]byte, 1+r.IntN(9000))
		switch r.IntN(3) {
		case 0:
			n, err := f.WriteAt(b, int64(r.IntN(1000)))
			if err != nil {
				t.Fatal(err)
			}
			add(iowatch.OpWrite, len(b), n)
		case 1:
			n, err := f.ReadAt(b[:1], 1<<40) // behind the end: returns 0
			if n != 0 || err != io.EOF {
				t.Fatal(n, err)
			}
			add(iowatch.OpRead, 1, 0)
		default:
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			want.Syncs++
		}
	}
	var open iowatch.Sums // over the threads that this goroutine had
	err = e.Sums(func(tid stack.TID, of int32, gen uint32, kind iowatch.Kind, s *iowatch.Sums) {
		if of != fd || gen != e.Gen(fd) {
			return
		}
		if (tid == 0) != shared {
			t.Errorf("sums of thread %d", tid)
		}
		if kind != iowatch.KindFile {
			t.Errorf("a file has kind %v", kind)
		}
		merge(&open, s)
	})
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, got *iowatch.Sums) {
		t.Helper()
		if got.Ops != want.Ops || got.Writes != want.Writes || got.Syncs != want.Syncs || got.Want != want.Want || got.Got != want.Got || got.Written != want.Written ||
			got.Buffer != want.Buffer || got.Time == 0 || got.SyncTime == 0 || got.Longest > got.Time || got.LongestRun < got.Longest || got.Last == 0 {
			t.Errorf("%s: %+v, want %+v", what, *got, want)
		}
		n := uint64(0)
		for _, x := range got.Hist {
			n += uint64(x)
		}
		if n != want.Ops+want.Syncs {
			t.Errorf("%s: %d operations in the histogram, want %d", what, n, want.Ops+want.Syncs)
		}
	}
	same("while open", &open)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// The records: an open with its path and a stack, one for each sync, and a close with sums.
	var closed iowatch.Sums
	syncs, opens, gen, users := uint64(0), 0, uint32(0), uint32(0)
	e.Read(func(r *IORecord) {
		if r.FD != fd {
			return
		}
		switch {
		case r.Op == iowatch.OpOpen && r.Path == path:
			opens++
			gen = r.Gen
			if len(r.Memory) == 0 || r.Size != 0 || r.Kind != iowatch.KindFile || r.Want&int64(os.O_RDWR) == 0 || r.Call != "openat" {
				t.Errorf("open: %+v", r.Event)
			}
		case r.Gen != gen || opens == 0:
		case r.Op == iowatch.OpSync:
			syncs++
		case r.Op == iowatch.OpClose:
			users = r.Users
			if r.Sums != nil {
				merge(&closed, r.Sums)
				users--
			}
			if r.Size < 1000 {
				t.Errorf("close: the file has %d bytes", r.Size)
			}
		}
	})
	_ = e.Sums(func(_ stack.TID, of int32, g uint32, _ iowatch.Kind, s *iowatch.Sums) {
		if of == fd && g == gen {
			merge(&closed, s)
			users--
		}
	})
	same("after close", &closed)
	if opens != 1 || syncs != want.Syncs || users != 0 {
		t.Errorf("%d opens, %d of %d syncs, %d users are missing", opens, syncs, want.Syncs, users)
	}
	if l := e.Losses(); l != (IOLosses{}) {
		t.Errorf("lost: %+v", l)
	}
}

func merge(to, s *iowatch.Sums) {
	to.Ops += s.Ops
	to.Writes += s.Writes
	to.Syncs += s.Syncs
	to.Want += s.Want
	to.Got += s.Got
	to.Written += s.Written
	to.Time += s.Time
	to.SyncTime += s.SyncTime
	to.Longest = max(to.Longest, s.Longest)
	to.LongestRun = max(to.LongestRun, s.LongestRun)
	to.Last = max(to.Last, s.Last)
	to.Buffer = max(to.Buffer, s.Buffer)
	for i, n := range s.Hist {
		to.Hist[i] += n
	}
}

// TestIOKinds makes a descriptor of each kind.
func TestIOKinds(t *testing.T) {
	e := openIO(t, IOOptions{Slow: time.Second, Gap: time.Millisecond, SmallOps: 20})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	want := map[int32]iowatch.Kind{int32(d.Fd()): iowatch.KindDir, int32(n.Fd()): iowatch.KindChar}
	ends := [2]int32{int32(r.Fd()), int32(w.Fd())}
	found, pairs, gone := 0, 0, 0
	for _, f := range []*os.File{d, n, r, w} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	e.Read(func(r *IORecord) {
		switch {
		case r.Op == iowatch.OpOpen && want[r.FD] == r.Kind && r.Kind != iowatch.KindUnknown:
			found++
		case r.Op == iowatch.OpMake && r.FD == ends[0] && r.FD2 == ends[1] && r.Call == "pipe2" && r.Kind == iowatch.KindFIFO:
			pairs++
		case r.Op == iowatch.OpClose && (want[r.FD] != 0 || r.FD == ends[0] || r.FD == ends[1]):
			gone++
		}
	})
	if found < 2 || pairs != 1 || gone < 4 {
		t.Errorf("%d of 2 opens, %d pipes, %d of 4 closes", found, pairs, gone)
	}
}
