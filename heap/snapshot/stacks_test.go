package snapshot

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/testprog"
)

// threadStack is a thread of a dump.
type threadStack struct {
	calls  []string // innermost first: class.method signature (file:line)
	locals map[int]map[uint64]bool
}

// stacksOf reads the threads of a dump, by the ID of their objects.
func stacksOf(t testing.TB, path string) map[uint64]*threadStack {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := hprof.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	names, classes := map[uint64]string{}, map[uint32]string{}
	calls, traces := map[uint64]string{}, map[uint32][]string{}
	threads, bySerial := map[uint64]*threadStack{}, map[uint32]*threadStack{}
	type local struct {
		serial, frame uint32
		id            uint64
	}
	var locals []local
	fail := func(err error) {
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	for {
		it, err := r.Next()
		if err == io.EOF {
			break
		}
		fail(err)
		switch {
		case it.Kind == hprof.KindRecord && it.Tag == hprof.TagString:
			b, err := r.Bytes()
			fail(err)
			names[it.ID] = string(b)
		case it.Kind == hprof.KindRecord && it.Tag == hprof.TagLoadClass:
			classes[it.Serial] = names[it.Ref]
		case it.Kind == hprof.KindRecord && it.Tag == hprof.TagFrame:
			c, err := r.Frame()
			fail(err)
			if classes[c.Class] == "" {
				t.Errorf("%s: a frame of %s without its class", path, names[c.Method])
			}
			calls[c.ID] = fmt.Sprintf("%s.%s%s (%s:%d)", classes[c.Class], names[c.Method], names[c.Signature], names[c.Source], c.Line)
		case it.Kind == hprof.KindRecord && it.Tag == hprof.TagTrace:
			var tr hprof.Trace
			fail(r.Trace(&tr))
			for _, id := range tr.Frames {
				if calls[id] == "" {
					t.Errorf("%s: a trace with the unknown frame %d", path, id)
				}
				traces[tr.Serial] = append(traces[tr.Serial], calls[id])
			}
		case it.Kind == hprof.KindSub && it.Tag == hprof.SubRootThread:
			th := &threadStack{calls: traces[it.Trace], locals: map[int]map[uint64]bool{}}
			threads[it.ID], bySerial[it.Serial] = th, th
		case it.Kind == hprof.KindSub && it.Tag == hprof.SubRootJavaFrame:
			locals = append(locals, local{it.Serial, it.Count, it.ID})
		}
	}
	for _, l := range locals {
		th := bySerial[l.serial]
		if th == nil {
			continue
		}
		frame := int(int32(l.frame))
		if frame >= len(th.calls) {
			t.Errorf("%s: a local of frame %d of %d", path, frame, len(th.calls))
		}
		if th.locals[frame] == nil {
			th.locals[frame] = map[uint64]bool{}
		}
		th.locals[frame][l.id] = true
	}
	return threads
}

// The stacks of a program whose threads wait are those of GC.heap_dump, and hold the same objects.
func TestStacksEqualJcmd(t *testing.T) {
	testprog.Whole(t, "TestStacksThroughUpcall has a stack, TestEqualsJcmd the dump")
	for _, version := range []string{"17", "21", "25"} {
		// Compiled at once: calls of code that is replaced right then have their objects as roots of the thread alone,
		// and how many there are would differ.
		compilers := [][]string{{"-Xbatch"}, {"-Xint"}, {"-XX:TieredStopAtLevel=1"}}
		if version != "25" && os.Getenv("SLIVER_LONG") == "" {
			compilers = compilers[:1]
		}
		for _, flags := range compilers {
			t.Run(version+strings.Join(flags, ""), func(t *testing.T) {
				kinds := "virtual"
				if version == "17" {
					kinds = ""
				}
				bin := testprog.Tool(t, "java"+version)
				args := append(append([]string{"-Xmx256m"}, flags...), "-cp", testprog.JavaClasses(t, "HeapThreads"), "HeapThreads", kinds)
				proc := testprog.StartCmd(t, exec.Command(bin, args...))
				proc.Line("READY")
				jcmd(t, proc.PID, "VM.version")
				dir := folder(t)
				ours, theirs := filepath.Join(dir, "ours.hprof"), filepath.Join(dir, "theirs.hprof")
				j := take(t, open(t, proc.PID))
				d := write(t, j, ours)
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				if n, why := d.Untraced(); n > 0 {
					t.Errorf("%d stacks are not complete: %s", n, why)
				}
				jcmd(t, proc.PID, "GC.heap_dump", "-all", theirs)
				all := stacksOf(t, ours)
				compareStacks(t, all, stacksOf(t, theirs), version)
				if flags[0] == "-Xbatch" {
					inVisualVM(t, ours, all)
				}
			})
		}
	}
}

// compareStacks holds that the threads of two dumps have called the same, and that what theirs says that calls
// hold is held by the same thread in ours.
func compareStacks(t *testing.T, ours, theirs map[uint64]*threadStack, version string) {
	t.Helper()
	threads, calls, locals, held, placed, joined := 0, 0, 0, 0, 0, 0
	for id, want := range theirs {
		got := ours[id]
		if got == nil {
			if len(want.calls) > 0 {
				t.Errorf("thread %#x is missing: %q", id, want.calls[:min(3, len(want.calls))])
			}
			continue
		}
		if version == "21" && len(got.calls) < len(want.calls) {
			// HotSpot 21 has what a virtual thread has called above the calls of its carrier.
			got = onCarrier(ours, got, want)
			joined++
		}
		if !slices.Equal(got.calls, want.calls) {
			t.Errorf("thread %#x: %d calls, want %d:\n%s\nwant\n%s", id, len(got.calls), len(want.calls),
				strings.Join(got.calls[:min(30, len(got.calls))], "\n"), strings.Join(want.calls[:min(30, len(want.calls))], "\n"))
			continue
		}
		threads++
		calls += len(want.calls)
		for frame, set := range want.locals {
			for o := range set {
				locals++
				if slices.ContainsFunc(slices.Collect(maps.Values(got.locals)), func(s map[uint64]bool) bool { return s[o] }) {
					held++
				}
				if got.locals[frame][o] {
					placed++
				}
			}
		}
	}
	least := map[string]int{"17": 20, "21": 20, "25": 70}[version]
	if threads < least || calls < 6000 || version == "21" && joined != 1 {
		t.Errorf("only %d threads with %d calls are compared, %d of virtual threads on their carriers", threads, calls, joined)
	}
	if held < locals {
		t.Errorf("%d of %d objects of frames are roots of their thread", held, locals)
	}
	if placed < locals*98/100 {
		t.Errorf("%d of %d objects are roots of the frame that holds them", placed, locals)
	}
	t.Logf("%d threads with %d calls are equal; %d of %d objects that frames hold are held, %d by the same frame", threads, calls, held, locals, placed)
}

// onCarrier joins the stack of a carrier and the one of a virtual thread above it.
func onCarrier(all map[uint64]*threadStack, carrier, want *threadStack) *threadStack {
	n := len(want.calls) - len(carrier.calls) - 1
	for _, th := range all {
		if len(th.calls) != n || !slices.Equal(th.calls, want.calls[:n]) || !strings.HasPrefix(want.calls[n], "jdk/internal/vm/Continuation.enterSpecial") {
			continue
		}
		j := &threadStack{calls: append(append(slices.Clone(th.calls), want.calls[n]), carrier.calls...), locals: maps.Clone(th.locals)}
		for frame, set := range carrier.locals {
			if frame >= 0 {
				frame += n + 1
			}
			j.locals[frame] = set
		}
		return j
	}
	return carrier
}

// The stack of a running thread is whole, also if it goes through C that calls Java back.
func TestStacksThroughUpcall(t *testing.T) {
	// Inlined, the comparator would count for its caller: compiled code has places of inlined calls at safepoints only.
	proc := testprog.StartCmd(t, exec.Command(testprog.Tool(t, "java25"), "-Xmx32m", "--enable-native-access=ALL-UNNAMED",
		"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Upcall::order", "-cp", testprog.JavaClasses(t, "Upcall"), "Upcall"))
	proc.Line("ready")
	p, path := open(t, proc.PID), filepath.Join(folder(t), "x.hprof")
	back, whole, n := 0, 0, 20
	if testing.Short() {
		n = 8 // raced, each takes seconds
	}
	for i := 0; i < n || back == 0 && i < 100*n; i++ {
		j := take(t, p)
		d := write(t, j, path)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		for _, th := range stacksOf(t, path) {
			if k := len(th.calls); k > 0 && strings.HasPrefix(th.calls[k-1], "Upcall.main(") {
				whole++
				if slices.ContainsFunc(th.calls, func(c string) bool { return strings.HasPrefix(c, "Upcall.order(") }) {
					back++
				}
			}
		}
		if cut, why := d.Untraced(); cut > 0 {
			t.Logf("copy %d: %d stacks are not complete: %s", i, cut, why)
		}
	}
	// Copies in the upcall stub itself, where its frame has no anchor yet, are whole too: of 100 copies none was cut.
	if back == 0 || whole < n-1 {
		t.Errorf("of %d copies %d have the whole stack, %d in a call back from C", n, whole, back)
	}
	t.Logf("%d copies: %d have the whole stack, %d in a call back from C", n, whole, back)
}

// inVisualVM holds that VisualVM's library finds the same threads and calls in a dump.
func inVisualVM(t *testing.T, path string, all map[uint64]*threadStack) {
	t.Helper()
	cmd := exec.Command(testprog.Tool(t, "java17"), "-Djava.io.tmpdir="+t.TempDir(), "-cp", testprog.VisualVM(t, "testdata/Stacks.java"), "Stacks", path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("VisualVM's library: %v\n%s", err, out)
	}
	want, got, placed, found := map[string]int{}, map[string]int{}, 0, 0
	for _, th := range all {
		want[fmt.Sprint(len(th.calls))]++
		for frame, set := range th.locals {
			if frame >= 0 {
				placed += len(set)
			}
		}
	}
	for line := range strings.Lines(string(out)) {
		switch f := strings.Fields(line); f[0] {
		case "thread":
			got[f[1]]++
		case "placed":
			_, _ = fmt.Sscan(f[1], &found)
		}
	}
	if !maps.Equal(want, got) || found != placed || placed < 1000 {
		t.Errorf("threads by the number of their calls: %v, VisualVM finds %v; %d objects in frames, it finds %d", want, got, placed, found)
	}
}
