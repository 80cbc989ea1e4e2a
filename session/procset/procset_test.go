package procset

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// copyOf returns a program's path under another name.
func copyOf(t *testing.T, path, name string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// life is a process by its own log.
type life struct {
	pid, parent int
	name        string
}

// lives parses the log of the program family.
func lives(lines []string) (out []life) {
	for _, l := range lines {
		var x life
		if n, _ := fmt.Sscanf(l, "born %d %d %s", &x.pid, &x.parent, &x.name); n == 3 {
			out = append(out, x)
		}
		if n, _ := fmt.Sscanf(l, "exec %d %s", &x.pid, &x.name); n == 2 {
			for i := range out {
				if out[i].pid == x.pid {
					out[i].name = x.name
				}
			}
		}
	}
	return out
}

// TestFollow compares what a set finds with the log of a family: each process once, with the
// process that started it, or counted and named.
func TestFollow(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/family", "O2")
	first, kid := copyOf(t, program, "first"), copyOf(t, program, "kid")
	for _, poll := range []bool{false, true} {
		t.Run(fmt.Sprintf("poll=%v", poll), func(t *testing.T) {
			p := testprog.StartCmd(t, exec.Command("sh", "-c", `read x; exec "$@"`, "sh", first, "100", "10", kid))
			root, err := target.Open(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			s := New(Options{Children: true})
			defer s.Close()
			if s.births == nil {
				testprog.Missing(t, "perf", s.left.How)
			}
			if poll {
				s.births.Close()
				s.births, s.seen = nil, map[int]bool{}
			}
			s.Take(root)
			if now, err := s.Now(); err != nil || len(now) > 0 {
				t.Fatalf("%v, %v", now, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var mu sync.Mutex
			found := map[int]Member{}
			var wg sync.WaitGroup
			// The set ends when all processes have, this one too.
			wg.Go(func() { awaitEnd(root); s.Done() })
			execs := map[int]bool{} // Follow's until it returns
			if reported := s.OnChange(func(pid int, _ target.BirthKind) { execs[pid] = true }); reported == poll {
				t.Errorf("execs are reported: %v", reported)
			}
			over := make(chan struct{})
			go func() {
				defer close(over)
				s.Follow(ctx, func(m Member) {
					mu.Lock()
					if _, twice := found[m.Process.PID()]; twice {
						t.Errorf("process %d is found twice", m.Process.PID())
					}
					found[m.Process.PID()] = m
					mu.Unlock()
					wg.Go(func() { awaitEnd(m.Process); m.Process.Close(); s.Done() })
				})
			}()
			p.Say("go")
			<-over
			wg.Wait()
			if ctx.Err() != nil {
				t.Fatal("the set did not end with its processes")
			}
			left := s.Left()
			out := lives(p.Output())
			if len(out) != 16 {
				t.Fatalf("%d lives in %q", len(out), p.Output())
			}
			for _, l := range p.Output() {
				var pid int
				if n, _ := fmt.Sscanf(l, "exec %d ", &pid); n == 1 && !poll && !execs[pid] {
					t.Errorf("the exec of process %d was not reported", pid)
				}
			}
			missed := map[int]string{}
			for _, l := range left.Processes {
				if l.Why != WhyShort {
					t.Errorf("%+v", l)
				}
				missed[l.PID] = l.Name
			}
			for _, x := range out[1:] {
				m, ok := found[x.pid]
				_, short := missed[x.pid]
				switch {
				case ok && short:
					t.Errorf("process %+v is found and left out", x)
				case ok && m.Parent != x.parent && !poll:
					t.Errorf("process %+v: parent %d", x, m.Parent)
				case !ok && !short && !poll: // a list of processes does not show the shortest ones
					t.Errorf("process %+v is neither found nor left out", x)
				}
			}
			if !poll && (left.Seen != len(out) || left.Count != len(missed) || left.Count+len(found)+1 != left.Seen || left.Lost != 0) {
				t.Errorf("%+v, %d found, %d lives", left, len(found), len(out))
			}
			least := 4 // fork, vfork, chain, daemon
			if poll {
				least = 3 // the daemon's parent may end before it is seen
			}
			if len(found) < least {
				t.Errorf("%d processes of 100 ms and more are found, %d expected", len(found), least)
			}
		})
	}
}

func awaitEnd(p *target.Process) {
	l, err := p.Life()
	if err != nil {
		return
	}
	defer l.Close()
	for p.Alive() {
		<-time.After(5 * time.Millisecond)
	}
}

// TestMatch finds processes by name that run already, and later ones.
func TestMatch(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/spin", "O2")
	mine := copyOf(t, program, "matched-prog")
	re := regexp.MustCompile("^matched-pr")
	match := func(f *target.Found) bool { return re.MatchString(f.Comm) }
	before := testprog.Start(t, mine, "--seconds", "120")
	awaitName(t, before.PID, "matched-prog")
	s := New(Options{Match: match})
	defer s.Close()
	now, err := s.Now()
	if err != nil || len(now) != 1 || now[0].Process.PID() != before.PID {
		t.Fatalf("%v, %v; want process %d", now, err, before.PID)
	}
	defer now[0].Process.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	came := make(chan Member, 8)
	over := make(chan struct{})
	go func() { defer close(over); s.Follow(ctx, func(m Member) { came <- m }) }()
	later := testprog.Start(t, mine, "--seconds", "120")
	testprog.Start(t, program, "--seconds", "120") // has another name
	m := <-came
	if m.Process.PID() != later.PID {
		t.Errorf("process %d came, not %d", m.Process.PID(), later.PID)
	}
	m.Process.Close()
	cancel()
	<-over
	if len(came) > 0 {
		t.Errorf("process %d came too", (<-came).Process.PID())
	}
}

// TestListedAndReported: a process that starts between New and Now is listed, and its birth is reported after that. It
// comes once, whether it matches or descends from one of the set.
func TestListedAndReported(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	for name, o := range map[string]Options{"match": {}, "children": {Children: true}, "both": {Children: true}} {
		t.Run(name, func(t *testing.T) {
			comm := "listed-" + name // that of another subtest may be about to end
			mine := copyOf(t, testprog.Build(t, "c/spin", "O2"), comm)
			if name != "children" {
				o.Match = func(f *target.Found) bool { return f.Comm == comm }
			}
			p := testprog.StartCmd(t, exec.Command("sh", "-c", `while read x; do "$1" --seconds 120 & echo "$x $!"; done; kill $(jobs -p)`, "sh", mine))
			root, err := target.Open(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			child := func(name string) (pid int) {
				p.Say(name)
				if _, err := fmt.Sscanf(p.Line(name), name+" %d", &pid); err != nil {
					t.Fatal(err)
				}
				awaitName(t, pid, comm)
				return pid
			}
			s := New(o)
			defer s.Close()
			if s.births == nil {
				testprog.Missing(t, "perf", s.left.How)
			}
			s.Take(root)
			first := child("first")
			now, err := s.Now()
			if err != nil || len(now) != 1 || now[0].Process.PID() != first {
				t.Fatalf("%v, %v; want process %d", now, err, first)
			}
			given := New(Options{Once: true}).Take(root, now[0].Process)
			if now[0].Parent != p.PID || given[0].Parent != 0 || given[1].Parent != p.PID {
				t.Errorf("parents %d as found, %d and %d as given; want %d, 0 and %d", now[0].Parent, given[0].Parent, given[1].Parent, p.PID, p.PID)
			}
			now[0].Process.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			came := make(chan Member, 8)
			over := make(chan struct{})
			go func() { defer close(over); s.Follow(ctx, func(m Member) { came <- m }) }()
			second := child("second") // reported after the first
			m := <-came
			m.Process.Close()
			if m.Process.PID() != second || m.Born == 0 || m.Parent != p.PID {
				t.Errorf("process %d came, born at %d, of %d; want process %d of %d", m.Process.PID(), m.Born, m.Parent, second, p.PID)
			}
			cancel()
			<-over
			if len(came) > 0 {
				t.Errorf("process %d came too", (<-came).Process.PID())
			}
			if left := s.Left(); left.Seen != 3 || left.Count != 0 {
				t.Errorf("%+v", left)
			}
		})
	}
}

func awaitName(t *testing.T, pid int, name string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; <-time.After(time.Millisecond) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if strings.TrimSpace(string(b)) == name[:min(len(name), 15)] {
			return
		}
	}
	t.Fatalf("process %d is not called %s", pid, name)
}

// TestMax leaves out processes over the limit, counted and named.
func TestMax(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.StartCmd(t, exec.Command("sh", "-c", `for i in 1 2 3 4 5; do sleep 100 & done; echo ready; read x; kill $(jobs -p)`))
	p.Line("ready")
	root, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := New(Options{Children: true, Max: 3})
	defer s.Close()
	s.Take(root)
	now, err := s.Now()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range now {
		m.Process.Close()
	}
	left := s.Left()
	if len(now) != 2 || left.Count != 3 || left.Seen != 6 || len(left.Processes) != 3 ||
		slices.ContainsFunc(left.Lines(), func(l string) bool { return !strings.Contains(l, "limit of 3") }) {
		t.Errorf("%d found, %+v", len(now), left)
	}
	p.Say("go")
}

// TestGrace: a program that ends within the grace is not opened; it is counted and named.
func TestGrace(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.StartCmd(t, exec.Command("sh", "-c", `read x; /bin/true; sleep 100 & read x; kill $!`))
	root, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := New(Options{Children: true, Grace: 300 * time.Millisecond})
	defer s.Close()
	if s.births == nil {
		testprog.Missing(t, "perf", s.left.How)
	}
	s.Take(root)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	came := make(chan Member, 8)
	over := make(chan struct{})
	go func() { defer close(over); s.Follow(ctx, func(m Member) { came <- m }) }()
	p.Say("go")
	m := <-came
	if f := m.Process.Facts(); f.Comm != "sleep" {
		t.Errorf("%s was opened, not sleep", f.Comm)
	}
	m.Process.Close()
	cancel()
	<-over
	if left := s.Left(); len(came) > 0 || left.Count != 1 || left.Processes[0].Name != "true" || left.Processes[0].Why != WhyShort {
		t.Errorf("%d more were opened, left out %+v", len(came), left)
	}
	p.Say("end")
}

// TestForest: of 300 processes that start at once, and of two with the same number in turn, each is
// delivered once with its parent, or counted and named once.
func TestForest(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.StartCmd(t, exec.Command(testprog.Build(t, "c/forest", "O2"), "300", "200"))
	root, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	const most = 40
	s := New(Options{Children: true, Max: most})
	defer s.Close()
	if s.births == nil {
		testprog.Missing(t, "perf", s.left.How)
	}
	s.Take(root)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	now, peak := 1, 1
	found := map[int][]int{} // parents by PID, one for each life
	var wg sync.WaitGroup
	wg.Go(func() { awaitEnd(root); s.Done() })
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Follow(ctx, func(m Member) {
			mu.Lock()
			defer mu.Unlock()
			pid := m.Process.PID()
			found[pid] = append(found[pid], m.Parent)
			now++
			peak = max(peak, now)
			wg.Go(func() {
				awaitEnd(m.Process)
				m.Process.Close()
				mu.Lock()
				now--
				mu.Unlock()
				s.Done()
			})
		})
	}()
	p.Say("go")
	<-over
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal("the set did not end with its processes")
	}
	st := p.Wait()
	if st.ExitCode() == 9 {
		t.Log("the kernel refuses to use a number again")
	} else if st.ExitCode() != 0 {
		t.Fatalf("%v", st)
	}
	lives := map[int][]int{} // parents by PID
	n := 0
	for _, l := range p.Output() {
		var what string
		var pid, parent int
		if k, _ := fmt.Sscanf(l, "%s %d %d", &what, &pid, &parent); k == 3 {
			lives[pid] = append(lives[pid], parent)
			n++
		}
	}
	left := s.Left()
	missed := map[int]int{}
	for _, l := range left.Processes {
		missed[l.PID]++
	}
	delivered := 0
	for pid, parents := range found {
		delivered += len(parents)
		for _, parent := range parents {
			if !slices.Contains(lives[pid], parent) {
				t.Errorf("process %d: parent %d, its own log says %v", pid, parent, lives[pid])
			}
		}
	}
	for pid, parents := range lives {
		if got := len(found[pid]) + missed[pid]; got != len(parents) && pid != p.PID {
			t.Errorf("process %d lived %d times; it is delivered %d times and left out %d times", pid, len(parents), len(found[pid]), missed[pid])
		}
	}
	if n < 300 || left.Seen != n || left.Count != n-1-delivered || left.Lost != 0 || peak > most {
		t.Errorf("%d lives, %d delivered, at most %d at once; %d seen, %d left out, %d reports lost", n, delivered, peak, left.Seen, left.Count, left.Lost)
	}
}

// TestMatchesAfterExec: a process that does not match before its exec keeps its birth and its parent.
func TestMatchesAfterExec(t *testing.T) {
	p := testprog.StartCmd(t, exec.Command("cat"))
	matches := false
	s := New(Options{Match: func(*target.Found) bool { return matches }})
	defer s.Close()
	s.kin[os.Getpid()] = &kin{pid: os.Getpid()}
	due := func() []*kin {
		s.kin[p.PID].due = time.Time{}
		return s.ready()
	}
	s.apply(&target.Birth{Kind: target.Born, PID: p.PID, Parent: os.Getpid(), At: 1234})
	if got := due(); len(got) > 0 || s.kin[p.PID] != nil {
		t.Fatalf("%+v matched", got)
	}
	matches = true
	s.apply(&target.Birth{Kind: target.Execed, PID: p.PID, Comm: "cat", At: 2345})
	if got := due(); len(got) != 1 || got[0].born != 1234 || got[0].parent != os.Getpid() {
		t.Errorf("%+v, want it born at 1234, of %d", got, os.Getpid())
	}
}
