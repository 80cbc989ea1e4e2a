package agree

//sliver:layer live unraced

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// least is the share of frames on which sliver and an oracle must agree. Of few frames, chance may leave out more: up to
// 4.5 standard deviations, which happens in less than 1 of 100,000 runs.
const least = 0.995

// A score sums comparisons with one oracle.
type score struct {
	threads, frames, equal int
	early                  int // threads whose stack the oracle did not follow to its end, and which agree up to there
	known                  int // threads to which excuse applied
	beyond                 int // our frames that were not compared for these two reasons
	moved                  int // threads omitted because they ran while the oracle examined them
	unsure                 int // threads omitted because the oracle differed from us and then from itself
}

func (s *score) add(o score) {
	s.threads += o.threads
	s.frames += o.frames
	s.equal += o.equal
	s.early += o.early
	s.known += o.known
	s.beyond += o.beyond
	s.moved += o.moved
	s.unsure += o.unsure
}

func (s *score) share() float64 { return float64(s.equal) / float64(max(s.frames, 1)) }

// compare aligns two stacks. equal is the length of their longest common subsequence of
// PCs; frames is the length of the longer one. If the oracle reports that it could not
// continue, and its last frame is one of ours, our frames beyond it do not count.
func compare(our, their trace) (frames, equal int, early bool) {
	equal, last := common(our.pcs, their.pcs)
	n := len(our.pcs)
	if their.cut != "" && last >= 0 && last+1 < n {
		n, early = last+1, true
	}
	return max(n, len(their.pcs)), equal, early
}

// excuse handles four kinds of places in Go programs beyond which sliver differs from the
// oracles on purpose. On the first two, Go's own tracebacks do as sliver does:
//
// When Go has switched to the scheduler's stack, the memory below the first frame there
// is zero, so the oracles end silently, or stale. sliver continues on the goroutine's
// stack, or ends if there is none. Frames beyond the switch are not compared.
//
// Go's tables mark runtime.goexit and runtime.mstart as outermost functions, and sliver
// ends there. The oracles continue: above a goroutine's stack into other memory, at a
// thread's start to runtime.clone and into words that are not code. Their frames beyond
// are omitted.
//
// In syscall.rawVforkSyscall, the return address is in R12, because the child process
// overwrites its place on the stack. The oracles read that place: what they find depends on
// how far the child has come.
//
// Go's signal trampoline runtime.sigreturn has no call frame information for a signal frame.
// eu-stack takes it for a function that was called, and omits what the signal interrupted.
// gdb recognizes its instructions.
func excuse(oracle string, our, their trace) (_ trace, known bool) {
	i := differs(our, their)
	if i == 0 || i == len(our.pcs) && i == len(their.pcs) {
		return their, false
	}
	is := func(i int, name string) bool {
		return i < len(their.names) &&
			(strings.HasPrefix(their.names[i], "runtime."+name) || strings.HasPrefix(their.names[i], "syscall."+name))
	}
	switch {
	case is(i-1, "systemstack"), is(i-1, "mcall"), is(i-1, "morestack"):
	case i == 1 && is(0, "rawVforkSyscall"):
	case oracle == "eu-stack" && i < len(our.names) && strings.HasSuffix(our.names[i], interrupted):
	case i == len(our.pcs) && our.cut == "" && (is(i-1, "goexit") || is(i-1, "mstart") && is(i, "clone")):
	default:
		return their, false
	}
	return trace{their.pcs[:i], their.names[:i], "left out: see excuse"}, true
}

// differs returns the position of the first frame that differs, or the length of the shorter trace.
func differs(our, their trace) int {
	i := 0
	for i < len(our.pcs) && i < len(their.pcs) && our.pcs[i] == their.pcs[i] {
		i++
	}
	return i
}

// guessed cuts an oracle's trace that ends outside of all code, if it differs from ours as the caller of a function
// whose frame no table describes: V8's builtin functions, also where they are mapped once more. There the oracle guesses.
func guessed(our, their trace) trace {
	if !strings.HasSuffix(their.cut, noCode) {
		return their
	}
	i := differs(our, their)
	if i == 0 || i >= len(our.names) || !strings.Contains(our.names[i], byFP) && !strings.Contains(our.names[i], byScan) {
		return their
	}
	return trace{their.pcs[:min(i, len(their.pcs))], their.names[:min(i, len(their.names))], their.cut}
}

// How names of our frames say that no table describes the function that was called.
var byFP, byScan = " by " + stack.TrustFP.String(), " by " + stack.TrustScan.String()

func TestGuessed(t *testing.T) {
	our := trace{pcs: []uint64{1, 2, 3}, names: []string{"native by registers", "native by frame pointer", "native by cfi"}}
	names := []string{"", "", ""}
	for _, c := range []struct {
		name  string
		their trace
		left  int
	}{
		{"a guess", trace{[]uint64{1, 9}, names[:2], "0x5 is no code"}, 1},
		{"it goes on", trace{[]uint64{1, 9, 3}, names, ""}, 3},
		{"another reason", trace{[]uint64{1, 9}, names[:2], "no"}, 2},
		{"a table", trace{[]uint64{1, 2, 9}, names, "0x5 is no code"}, 3},
		{"the leaf", trace{[]uint64{9, 2}, names[:2], "0x5 is no code"}, 2},
		{"equal", trace{[]uint64{1, 2, 3}, names, "0x5 is no code"}, 3},
	} {
		if x := guessed(our, c.their); len(x.pcs) != c.left || x.cut != c.their.cut {
			t.Errorf("%s: %+v", c.name, x)
		}
	}
}

func TestExcuse(t *testing.T) {
	names := func(third string) []string {
		return []string{"runtime.a", "runtime." + third, "runtime.clone.abi0", "x"}
	}
	for _, c := range []struct {
		name       string
		our, their trace
		left       int // remaining frames of theirs
		known      bool
	}{
		{"a goroutine's stack", trace{pcs: []uint64{1, 2, 3}}, trace{[]uint64{1, 2}, names("systemstack.abi0")[:2], ""}, 2, true},
		{"leftovers", trace{pcs: []uint64{1, 2}}, trace{[]uint64{1, 2, 9}, names("morestack")[:3], ""}, 2, true},
		{"another frame before it", trace{pcs: []uint64{8, 2}}, trace{[]uint64{1, 2, 9}, names("morestack")[:3], ""}, 3, false},
		{"the same", trace{pcs: []uint64{1, 2}}, trace{[]uint64{1, 2}, names("systemstack")[:2], ""}, 2, false},
		{"a thread's start", trace{pcs: []uint64{1, 2}}, trace{[]uint64{1, 2, 3, 4}, names("mstart.abi0"), ""}, 2, true},
		{"a goroutine's start", trace{pcs: []uint64{1, 2}}, trace{[]uint64{1, 2, 3}, []string{"main.f", "runtime.goexit.abi0", "x"}, ""}, 2, true},
		{"we were cut there", trace{pcs: []uint64{1, 2}, cut: "no"}, trace{[]uint64{1, 2, 3, 4}, names("mstart"), ""}, 4, false},
		{"vfork", trace{pcs: []uint64{1, 2, 3}}, trace{[]uint64{1, 9, 3}, []string{"syscall.rawVforkSyscall.abi0", "x", "x"}, ""}, 1, true},
		{"after vfork", trace{pcs: []uint64{1, 2, 3}}, trace{[]uint64{1, 2, 9}, []string{"syscall.rawVforkSyscall.abi0", "x", "x"}, ""}, 3, false},
		{"a signal", trace{[]uint64{1, 2, 3}, []string{"", "", "go by tables" + interrupted}, ""}, trace{[]uint64{1, 2, 9}, []string{"x", "", "x"}, ""}, 2, true},
		{"after a signal", trace{[]uint64{1, 2, 3, 4}, []string{"", "", interrupted, ""}, ""}, trace{[]uint64{1, 2, 3, 9}, []string{"x", "", "x", "x"}, ""}, 4, false},
		{"another function", trace{pcs: []uint64{1, 2}}, trace{[]uint64{1, 2, 3, 4}, names("main"), ""}, 4, false},
	} {
		if x, known := excuse("eu-stack", c.our, c.their); len(x.pcs) != c.left || known != c.known {
			t.Errorf("%s: %d frames, %v, not %d, %v", c.name, len(x.pcs), known, c.left, c.known)
		}
	}
}

// common returns the length of the longest common subsequence of a and b, and the index
// in a of b's last element if that is part of it, otherwise -1.
func common(a, b []uint64) (n, last int) {
	// l[i][j] is the length for a[:i] and b[:j].
	l := make([][]int32, len(a)+1)
	for i := range l {
		l[i] = make([]int32, len(b)+1)
	}
	for i := range a {
		for j := range b {
			if a[i] == b[j] {
				l[i+1][j+1] = l[i][j] + 1
			} else {
				l[i+1][j+1] = max(l[i][j+1], l[i+1][j])
			}
		}
	}
	n, last = int(l[len(a)][len(b)]), -1
	for i := len(a) - 1; i >= 0 && len(b) > 0; i-- {
		if a[i] == b[len(b)-1] && int(l[i][len(b)-1])+1 == n {
			last = i // the first place where the best alignment can end
		}
	}
	return n, last
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name          string
		our, their    trace
		frames, equal int
		early         bool
	}{
		{"same", trace{pcs: []uint64{1, 2, 3}}, trace{pcs: []uint64{1, 2, 3}}, 3, 3, false},
		{"we lack a frame", trace{pcs: []uint64{1, 3}}, trace{pcs: []uint64{1, 2, 3}}, 3, 2, false},
		{"we made one up", trace{pcs: []uint64{1, 9, 2, 3}}, trace{pcs: []uint64{1, 2, 3}}, 4, 3, false},
		{"another one", trace{pcs: []uint64{1, 9, 3}}, trace{pcs: []uint64{1, 2, 3}}, 3, 2, false},
		{"we end early", trace{pcs: []uint64{1}, cut: "no"}, trace{pcs: []uint64{1, 2, 3}}, 3, 1, false},
		{"it ends early and says so", trace{pcs: []uint64{1, 2, 3}}, trace{pcs: []uint64{1, 2}, cut: "no"}, 2, 2, true},
		{"it ends early and does not", trace{pcs: []uint64{1, 2, 3}}, trace{pcs: []uint64{1, 2}}, 3, 2, false},
		{"it ends early on a frame that is not ours", trace{pcs: []uint64{1, 2, 3}}, trace{pcs: []uint64{1, 9}, cut: "no"}, 3, 1, false},
		{"it ends early after a frame that is not ours", trace{pcs: []uint64{1, 2, 3, 4}}, trace{pcs: []uint64{1, 9, 3}, cut: "no"}, 3, 2, true},
		{"recursion", trace{pcs: []uint64{1, 5, 5, 5, 2}}, trace{pcs: []uint64{1, 5, 5}, cut: "no"}, 3, 3, true},
		{"nothing", trace{}, trace{pcs: []uint64{1}}, 1, 0, false},
	} {
		if f, e, x := compare(c.our, c.their); f != c.frames || e != c.equal || x != c.early {
			t.Errorf("%s: %d frames, %d equal, early %v, not %d, %d, %v", c.name, f, e, x, c.frames, c.equal, c.early)
		}
	}
}

// rounds returns how often each program is examined.
func rounds() int {
	if os.Getenv("SLIVER_LONG") != "" {
		return 40
	}
	return 5
}

var oracles = []struct {
	word string
	ask  func(t testing.TB, pid int) (map[int]trace, error)
}{
	{"eu-stack", euStack},
	{"gdb", gdbFrames},
}

// TestAgree is the comparison of the package comment.
func TestAgree(t *testing.T) {
	testprog.Need(t, "ptrace", "eu-stack", "gdb")
	agreement(t)
	checkBlind(t)
}

// agreement examines all programs.
func agreement(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "%-9s %-9s %8s %8s %8s %8s %6s %6s %7s %6s %6s\n",
		"program", "oracle", "threads", "frames", "equal", "share", "early", "known", "beyond", "moved", "unsure")
	row := func(name, oracle string, s *score) {
		fmt.Fprintf(&table, "%-9s %-9s %8d %8d %8d %7.2f%% %6d %6d %7d %6d %6d\n",
			name, oracle, s.threads, s.frames, s.equal, 100*s.share(), s.early, s.known, s.beyond, s.moved, s.unsure)
	}
	all := make([]score, len(oracles))
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			if p.name == "go build" {
				testprog.Whole(t, "TestDelve has Go's frames")
			}
			testprog.Need(t, p.needs...)
			picks := p.start(t)
			sum := make([]score, len(oracles))
			for range rounds() {
				for _, pick := range picks {
					for i, s := range round(t, pick) {
						sum[i].add(s)
					}
				}
			}
			for i, o := range oracles {
				row(p.name, o.word, &sum[i])
				all[i].add(sum[i])
				if sum[i].threads == 0 {
					t.Errorf("no thread stood still for %s", o.word)
				}
			}
		})
	}
	for i, o := range oracles {
		row("all", o.word, &all[i])
	}
	t.Logf("agreement:\n%s", table.String())
	for i, o := range oracles {
		n := float64(all[i].frames)
		if float64(all[i].frames-all[i].equal) > (1-least)*n+4.5*math.Sqrt(least*(1-least)*n) {
			t.Errorf("%d of %d frames are those of %s: %.2f %%, less than %.2f %%",
				all[i].equal, all[i].frames, o.word, 100*all[i].share(), 100*least)
		}
	}
}

// round lets the program work, stops one of its processes and compares.
func round(t *testing.T, next pick) []score {
	t.Helper()
	for {
		pid, work := 0, rand.Int64N(20_000_000)
		var since int64
		eventually(t, "a process that works", func() bool {
			now, ok := next()
			if !ok {
				return false
			}
			if now != pid {
				pid, since = now, worked(now)
			}
			return worked(pid) >= since+work
		})
		thaw, ok := freeze(t, pid)
		if !ok {
			continue // it ended in the meantime; try another one
		}
		defer thaw()
		return look(t, pid)
	}
}

// look compares the stacks of a stopped process. It reads ours before and after the
// oracle's: if they differ, the thread ran in between.
func look(t *testing.T, pid int) []score {
	t.Helper()
	before, err := ours(pid)
	if err != nil {
		t.Fatalf("read the stacks of process %d: %v", pid, err)
	}
	code, err := codeOf(pid)
	if err != nil {
		t.Fatalf("read the maps of process %d: %v", pid, err)
	}
	scores := make([]score, len(oracles))
	for i, o := range oracles {
		ask := func() map[int]trace {
			theirs, err := o.ask(t, pid)
			if err != nil {
				t.Fatal(err)
			}
			for tid, x := range theirs {
				theirs[tid] = x.within(code)
			}
			return theirs
		}
		theirs := ask()
		var again map[int]trace // asked if the first answer differs from ours
		after, err := ours(pid)
		if err != nil {
			t.Fatalf("read the stacks of process %d after %s: %v", pid, o.word, err)
		}
		s := &scores[i]
		for tid, our := range before {
			if !our.same(after[tid]) {
				s.moved++
				continue
			}
			their, known := excuse(o.word, our, guessed(our, theirs[tid]))
			frames, equal, early := compare(our, their)
			if frames != equal {
				if again == nil {
					again = ask()
				}
				if !again[tid].same(theirs[tid]) {
					s.unsure++
					t.Logf("%s, thread %d, which stood still, has other frames when asked again\n%s", o.word, tid, beside(our, their))
					continue
				}
			}
			s.threads++
			s.frames += frames
			s.equal += equal
			switch {
			case known:
				s.known++
			case early:
				s.early++
			}
			s.beyond += max(len(our.pcs)-frames, 0)
			if frames != equal {
				t.Logf("%s, thread %d: %d of %d frames equal\n%s", o.word, tid, equal, frames, beside(our, their))
			}
		}
		before = after
	}
	return scores
}

// shown is how many frames of a disagreement are printed.
const shown = 40

// beside prints two stacks from the frame before the first difference on.
func beside(our, their trace) string {
	var b strings.Builder
	from := 0
	for from < len(our.pcs) && from < len(their.pcs) && our.pcs[from] == their.pcs[from] {
		from++
	}
	line := func(x trace, i int) string {
		switch {
		case i < len(x.pcs):
			return fmt.Sprintf("%#x %.40s", x.pcs[i], x.names[i])
		case i == len(x.pcs) && x.cut != "":
			return "-- " + x.cut
		}
		return ""
	}
	for i := max(from-1, 0); i <= max(len(our.pcs), len(their.pcs)) && i < from+shown; i++ {
		fmt.Fprintf(&b, "%4d  %-48s | %s\n", i, line(our, i), line(their, i))
	}
	return b.String()
}
