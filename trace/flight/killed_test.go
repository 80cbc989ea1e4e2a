package flight

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// The program that is killed is this test itself, started again with these variables.
const (
	victimFile = "SLIVER_TEST_VICTIM"
	victimSeed = "SLIVER_TEST_SEED"
)

const victimThreads = 4

// victimRuns samples artificial threads as fast as it can. It keeps in a mapped file
// how many samples of each thread it has begun: the finished number is one less. It
// never returns.
func victimRuns(path string, seed uint64) error {
	mem, err := ringfile.Create(path, 8<<20)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".count", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := f.Truncate(4096); err != nil {
		return err
	}
	begun, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	r := New(trace.Process{PID: 7, Comm: "victim"}, Options{Keep: victimKeep, Memory: mem})
	r.Maps(trace.Maps{Mappings: []trace.Mapping{{Start: 0x1000, End: 0x10000}}}, []trace.Module{{Path: "/bin/victim"}})
	v := newVictim(seed)
	var sinks []*Sink
	for i := range v.programs {
		sinks = append(sinks, r.Thread(trace.Thread{TID: stack.TID(100 + i), Main: i == 0}))
	}
	extra := &program{rnd: rand.New(rand.NewPCG(seed, 1000))}
	fmt.Println("begun")
	for n := uint64(1); ; n++ {
		for i, s := range sinks {
			x := v.next(i, n)
			binary.LittleEndian.PutUint64(begun[8*i:], n)
			s.Sample(x)
		}
		if n%512 == 0 {
			r.Tidy(v.at(n))
			r.Waits([]trace.Wait{{ID: int(n/512) % 1000, Call: "read"}}) // the log is rewritten from time to time
		}
		if n%4096 == 0 { // threads come and go
			t := r.Thread(trace.Thread{TID: 1})
			t.Sample(extra.sample(v.at(n)))
			t.End(v.at(n), stack.WhyGone)
		}
	}
}

const victimKeep = 20_000 * ms

// victim generates the samples of one seed.
type victim struct {
	programs []*program
	unrun    []*rand.Rand
	last     []*stack.Sample
}

func newVictim(seed uint64) *victim {
	v := &victim{last: make([]*stack.Sample, victimThreads)}
	for i := range victimThreads {
		v.programs = append(v.programs, &program{rnd: rand.New(rand.NewPCG(seed, uint64(i)))})
		v.unrun = append(v.unrun, rand.New(rand.NewPCG(seed, uint64(100+i))))
	}
	return v
}

func (v *victim) at(n uint64) stack.Time { return stack.Time(n) * 10 * ms }

// next returns sample n of thread i; samples are generated in order.
func (v *victim) next(i int, n uint64) *stack.Sample {
	if v.last[i] != nil && v.unrun[i].IntN(3) > 0 {
		x := *v.last[i]
		x.Time, x.Way, x.Stack = v.at(n), stack.WayUnrun, nil
		return &x
	}
	v.last[i] = v.programs[i].sample(v.at(n))
	return v.last[i]
}

// stackAt replays events up to a time: the words of the stack at that time, and the
// last known time.
type stackAt struct{ last stack.Time }

func (s *stackAt) Enter(stack.Time, int, diff.Frame) {}
func (s *stackAt) Exit(stack.Time, int, diff.Frame)  {}
func (s *stackAt) Move(stack.Time, int, diff.Frame)  {}
func (s *stackAt) Other(e event.Event) {
	if e.Kind() == event.Seen {
		s.last = max(s.last, e.Time)
	}
}

// TestKilled: a recorder killed at any instruction loses at most the current sample,
// and its file is readable. SLIVER_LONG=1 repeats it 200 times.
func TestKilled(t *testing.T) {
	if path := os.Getenv(victimFile); path != "" {
		seed, _ := strconv.ParseUint(os.Getenv(victimSeed), 10, 64)
		t.Fatal(victimRuns(path, seed))
	}
	times, steps := 5, 20_000
	if os.Getenv("SLIVER_LONG") != "" {
		times, steps = 200, 60_000
	}
	rnd := rand.New(rand.NewPCG(rand.Uint64(), 1))
	samples, most := uint64(0), uint64(0)
	for k := range times {
		n := killOne(t, filepath.Join(t.TempDir(), "rings"), uint64(k), rnd.IntN(steps))
		samples += n
		most = max(most, n)
	}
	t.Logf("%d kills, after %d samples of each thread in all, %d at most", times, samples, most)
}

// killOne starts a victim, kills it a while after it has begun, and checks its file. It
// returns how many samples of each thread there were.
func killOne(t *testing.T, path string, seed uint64, steps int) uint64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), victimFile+"="+path, victimSeed+"="+strconv.FormatUint(seed, 10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("the victim did not begin")
	}
	// Wait until it has taken enough samples, and then for a moment of random length.
	for {
		b, err := os.ReadFile(path + ".count")
		if err == nil && len(b) >= 8 && binary.LittleEndian.Uint64(b) > uint64(steps) {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	count, err := os.ReadFile(path + ".count")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ringfile.Claim(path, time.Now())
	if err != nil {
		t.Fatalf("the dead victim's file: %v", err)
	}
	defer f.Close()
	im, c := recovered(t, f)
	if len(im.Problems) > 0 {
		t.Errorf("problems: %v", im.Problems)
	}
	var b bytes.Buffer
	if err := c.Write(&b, nil, "recovered"); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Problems) > 0 || rec.Process.Comm != "victim" || len(rec.Modules) != 1 || len(rec.Maps) != 1 {
		t.Errorf("recovered: problems %v, %+v, %d modules, %d maps", rec.Problems, rec.Process, len(rec.Modules), len(rec.Maps))
	}
	begun := uint64(0)
	for i := range victimThreads {
		n := binary.LittleEndian.Uint64(count[8*i:])
		checkVictim(t, rec, seed, i, n)
		begun = max(begun, n)
	}
	return begun
}

// checkVictim compares thread i of a recording with its regenerated samples: the first
// n-1 must be there, the n-th may be.
func checkVictim(t *testing.T, rec *trace.Recording, seed uint64, i int, n uint64) {
	t.Helper()
	seq := slices.IndexFunc(rec.Threads, func(x trace.Thread) bool { return x.TID == stack.TID(100+i) })
	if n < 2 {
		return
	}
	if seq < 0 {
		t.Errorf("thread %d is not there", i)
		return
	}
	v := newVictim(seed)
	var d diff.Differ
	var want diff.Replayer
	h := &stackAt{}
	for k := uint64(1); k < n; k++ {
		for _, e := range d.Step(v.next(i, k), nil) {
			want.Apply(e, h)
		}
	}
	// Events of the recording up to that sample; later ones belong to the incomplete
	// sample.
	var got diff.Replayer
	g := &stackAt{}
	first := stack.Time(0)
	for e := range rec.Events(rec.Threads[seq].Seq) {
		if first == 0 {
			first = e.Time
		}
		if e.Time > v.at(n-1) && (e.Kind() != event.Seen || g.last >= v.at(n-1)) {
			break
		}
		got.Apply(e, g)
	}
	if g.last < v.at(n-1) {
		t.Errorf("thread %d is confirmed up to %d; its last finished sample was at %d", i, g.last, v.at(n-1))
	}
	if got.Odd != 0 {
		t.Errorf("thread %d: %d events make no sense", i, got.Odd)
	}
	if from := v.at(n-1) - victimKeep; first > max(from, v.at(1)) {
		t.Errorf("thread %d begins at %d, want %d", i, first, max(from, v.at(1)))
	}
	if len(got.Stack) != len(want.Stack) {
		t.Errorf("thread %d: %d frames at its last finished sample, want %d", i, len(got.Stack), len(want.Stack))
		return
	}
	for k := range want.Stack {
		if got.Stack[k].Word != want.Stack[k].Word {
			t.Errorf("thread %d: frame %d is %x, want %x", i, k, got.Stack[k].Word, want.Stack[k].Word)
		}
	}
}
