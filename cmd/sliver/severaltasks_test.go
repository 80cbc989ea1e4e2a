package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// goProgram is what a program go/routines said about its goroutines.
type goProgram struct {
	pid   int
	waits map[uint64]string // by number: why it waited, or "running" and "syscall"
}

var goroutineHead = regexp.MustCompile(`(?m)^goroutine (\d+) (?:gp=\S+ m=\S+(?: mp=\S+)? )?\[([^\],]*)`)

func goProgramOf(t *testing.T, line string) *goProgram {
	t.Helper()
	var said struct {
		PID   int
		Stack string
	}
	if err := json.Unmarshal([]byte(line), &said); err != nil {
		t.Fatal(err)
	}
	p := &goProgram{said.PID, map[uint64]string{}}
	for _, m := range goroutineHead.FindAllStringSubmatch(said.Stack, -1) {
		id, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		p.waits[id] = m[2]
	}
	if len(p.waits) < 15 {
		t.Fatalf("process %d has %d goroutines:\n%s", p.pid, len(p.waits), said.Stack)
	}
	return p
}

// twoGoPrograms waits for what a program and its child say.
func twoGoPrograms(t *testing.T, p *testprog.Proc) (both []*goProgram) {
	t.Helper()
	var lines []string
	waitFor(t, func() bool {
		lines = slices.DeleteFunc(p.Output(), func(l string) bool { return !strings.HasPrefix(l, "{") })
		return len(lines) == 2
	})
	for _, l := range lines {
		both = append(both, goProgramOf(t, l))
	}
	return both
}

func (p *goProgram) name() string { return fmt.Sprintf("routines (%d)", p.pid) }

// csvRows returns the rows of a query, without the head.
func csvRows(t *testing.T, dir, question string) [][]string {
	t.Helper()
	r := sliver(t, dir, "sql", "x.sliver", question, "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(r.out)).ReadAll()
	if err != nil || r.status != 0 || len(rows) == 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	return rows[1:]
}

// checkGoPrograms compares each output of x.sliver with what the programs said: each goroutine is there once, in its own
// process, with its own wait. Programs that one process or another started in between have more.
func checkGoPrograms(t *testing.T, dir string, programs ...*goProgram) {
	t.Helper()
	type key struct{ pid, id string }
	tasks, waits := map[key]int{}, map[key]string{}
	for _, r := range csvRows(t, dir, "select p.pid, t.id from tasks t join processes p on p.id = t.process") {
		tasks[key{r[0], r[1]}]++
	}
	for _, r := range csvRows(t, dir, "select p.pid, s.task, s.reason from task_spans s join processes p on p.id = s.process where s.state = 'waiting' and reason is not null order by s.ts") {
		waits[key{r[0], r[1]}] = r[2]
	}
	tracks := map[key]int{}
	for _, r := range exporttest.Ask(t, filepath.Join(dir, "x.pftrace"), `select p.pid pid, k.name name from track k join process_track g on k.parent_id = g.id
		join process p on p.upid = g.upid where g.name = 'goroutines'`)[0] {
		id, _, _ := strings.Cut(strings.TrimPrefix(r.Text("name"), "goroutine "), " ")
		tracks[key{strconv.FormatInt(r.Int("pid"), 10), id}]++
	}
	var x report.Report
	out := sliver(t, dir, "report", "--json", "-n", "1000", "x.sliver")
	if err := json.Unmarshal([]byte(out.out), &x); err != nil || x.Tasks == nil {
		t.Fatalf("%v: %+v", err, out)
	}
	for _, p := range programs {
		receive := 0
		for id, reason := range p.waits {
			k := key{strconv.Itoa(p.pid), strconv.FormatUint(id, 10)}
			if reason == "running" || reason == "syscall" { // of these a thread has to be seen
				continue
			}
			if tasks[k] != 1 || tracks[k] != 1 {
				t.Errorf("goroutine %d of process %d: %d times in SQL, and %d tracks in Perfetto", id, p.pid, tasks[k], tracks[k])
			}
			if waits[k] != reason {
				t.Errorf("goroutine %d of process %d waits for %q, its program says %q", id, p.pid, waits[k], reason)
			}
			if reason == "chan receive" {
				receive++
			}
		}
		got := 0
		for _, w := range x.Tasks.Waits {
			// A look at the beginning of a program may have found its main goroutine waiting for the runtime.
			if w.Process == p.name() && w.For == "channel (receive)" && w.Func != "runtime.main" {
				got += w.Tasks
			}
		}
		if got != receive {
			t.Errorf("report: %d goroutines of process %d wait to receive, its program says %d", got, p.pid, receive)
		}
	}
	// The programs say nothing of the runtime's own goroutines.
	said := map[string]*goProgram{}
	for _, p := range programs {
		said[strconv.Itoa(p.pid)] = p
	}
	for _, r := range csvRows(t, dir, "select p.pid, t.id, t.name from tasks t join processes p on p.id = t.process") {
		id, err := strconv.ParseUint(r[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if p := said[r[0]]; p == nil {
			t.Errorf("goroutine %d %s in process %s", id, r[2], r[0])
		} else if _, ok := p.waits[id]; !ok && !strings.HasPrefix(r[2], "runtime.") && !strings.HasPrefix(r[2], "os/exec.") && !strings.HasPrefix(r[2], "os.") {
			t.Errorf("goroutine %d %s of process %s is not one of its program", id, r[2], r[0])
		}
	}
	text := sliver(t, dir, "report", "x.sliver").out
	first, cpu := strings.Index(text, "\nGoroutines: "), strings.Index(text, "\nOn the CPUs")
	if first < 0 || cpu >= 0 && cpu < first || !strings.Contains(text, fmt.Sprintf(", in %d processes", len(programs))) {
		t.Errorf("the report is not about the goroutines first:\n%s", text)
	}
}

// TestTwoGoPrograms records two Go programs by number: each has its own goroutines, of which many have the same numbers.
func TestTwoGoPrograms(t *testing.T) {
	testprog.Whole(t, "TestGoChild has two Go programs")
	testprog.Need(t, "ptrace")
	var programs []*goProgram
	for _, many := range []string{"7", "23"} {
		p := testprog.Start(t, testprog.Build(t, "go/routines", "default"), "-many", many)
		programs = append(programs, goProgramOf(t, p.Line("{")))
	}
	dir := t.TempDir()
	recordGoPrograms(t, dir, programs, "-p", fmt.Sprintf("%d,%d", programs[0].pid, programs[1].pid))
	checkGoPrograms(t, dir, programs...)
}

// TestGoChild records a Go program that starts another one, by number with its child, and as a command. The goroutines of a program
// that ended before its recording are those of SIGUSR1.
func TestGoChild(t *testing.T) {
	testprog.Need(t, "ptrace")
	program := testprog.Build(t, "go/routines", "default")
	t.Run("children", func(t *testing.T) {
		p := testprog.Start(t, program, "-many", "7", "-child", "23")
		programs := twoGoPrograms(t, p)
		dir := t.TempDir()
		recordGoPrograms(t, dir, programs, "-p", pidOf(p), "--children")
		checkGoPrograms(t, dir, programs...)
	})
	t.Run("command", func(t *testing.T) {
		dir := t.TempDir()
		p := testprog.StartCmd(t, slivercmd(t, dir, "record", "-o", "x.sliver", "-o", "x.pftrace", "--", program, "-many", "7", "-child", "23"))
		programs := twoGoPrograms(t, p)
		// A process is recorded some ms after its start. The look that SIGUSR1 asks for is that of the processes recorded then.
		waitFor(t, func() bool {
			if partialWith(dir, "EVNT") == "" {
				return false
			}
			if err := syscall.Kill(p.PID, syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			return looked(t, dir, programs, 2) // a span has two ends
		})
		p.CloseInput()
		if s := p.Wait(); !s.Success() {
			t.Fatalf("%v\n%s", s, strings.Join(p.Errors(), "\n"))
		}
		checkGoPrograms(t, dir, programs...)
	})
}

// recordGoPrograms records running programs until each has been looked at: on a busy machine the second one is sampled
// later than the first.
func recordGoPrograms(t *testing.T, dir string, programs []*goProgram, args ...string) {
	t.Helper()
	p := testprog.StartCmd(t, slivercmd(t, dir, append([]string{"record", "-o", "x.sliver", "-o", "x.pftrace"}, args...)...))
	waitFor(t, func() bool { return looked(t, dir, programs, 1) })
	if err := syscall.Kill(p.PID, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if s := p.Wait(); !s.Success() {
		t.Fatalf("%v\n%s", s, strings.Join(p.Errors(), "\n"))
	}
}

// unfinished opens the unfinished recording in dir; nil: its first section is not complete yet.
func unfinished(dir string) *trace.Recording {
	partial := partialWith(dir, "EVNT")
	if partial == "" {
		return nil
	}
	b, err := os.ReadFile(partial)
	if err != nil {
		return nil
	}
	rec, err := trace.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil
	}
	return rec
}

// looked reports whether the unfinished recording in dir has n looks at all goroutines of each program.
func looked(t *testing.T, dir string, programs []*goProgram, n int) bool {
	t.Helper()
	rec := unfinished(dir)
	if rec == nil {
		return false
	}
	for _, p := range programs {
		looks := 0
		for _, one := range rec.All() {
			if one.Process.PID != p.pid {
				continue
			}
			for i := range one.Tasks {
				if len(one.Tasks[i].List) >= len(p.waits) {
					looks++
				}
			}
		}
		if looks < n {
			return false
		}
	}
	return true
}
