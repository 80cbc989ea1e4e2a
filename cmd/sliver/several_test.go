package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/trace"
)

// familyLife is a process by the log of the program family.
type familyLife struct {
	parent int
	name   string
}

func familyLog(lines []string) map[int]*familyLife {
	out := map[int]*familyLife{}
	for _, l := range lines {
		var pid int
		var x familyLife
		if n, _ := fmt.Sscanf(l, "born %d %d %s", &pid, &x.parent, &x.name); n == 3 {
			if was := out[pid]; was == nil {
				out[pid] = &x
			} else { // the log of an exec came first
				was.parent = x.parent
			}
		}
		if n, _ := fmt.Sscanf(l, "exec %d %s", &pid, &x.name); n == 2 {
			if out[pid] == nil {
				out[pid] = &familyLife{}
			}
			out[pid].name = x.name
		}
	}
	return out
}

// family copies the program under the names of its processes.
func family(t *testing.T) (dir, first, kid string) {
	t.Helper()
	testprog.Need(t, "gcc", "ptrace")
	b, err := os.ReadFile(testprog.Build(t, "c/family", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	first, kid = filepath.Join(dir, "first"), filepath.Join(dir, "kid")
	for _, path := range []string{first, kid} {
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir, first, kid
}

func openSeveral(t *testing.T, path string) *trace.Recording {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	fi, _ := f.Stat()
	rec, err := trace.Open(f, fi.Size())
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestFamily compares a recording of a command with the log of its processes: each life once,
// with its parent, its last name and its own function; the exit status is the command's.
func TestFamily(t *testing.T) {
	dir, first, kid := family(t)
	r := sliver(t, dir, "record", "-i", "2ms", "-o", "x.sliver", "-o", "x.pb.gz", "-o", "x.pftrace", "-o", "x.folded", "-o", "x.firefox.json.gz", "-o", "x.svg", "--", first, "150", "12", kid)
	if r.status != 7 {
		t.Fatalf("%+v", r)
	}
	lives := familyLog(strings.Split(r.out, "\n"))
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	if rec.Left == nil {
		t.Fatal("the recording does not say what is left out")
	}
	left := map[int]trace.LeftProcess{}
	for _, l := range rec.Left.Processes {
		left[l.PID] = l
	}
	// By PID, the function that only such a process runs.
	burns := map[string]int{}
	recorded, whole, members := map[int]bool{}, 0, 0
	for i, one := range rec.All() {
		p := &one.Process
		x := lives[p.PID]
		if recorded[p.PID] || x == nil {
			t.Errorf("process %d: recorded twice, or unknown", p.PID)
			continue
		}
		recorded[p.PID] = true
		if i > 0 && p.Parent != x.parent {
			t.Errorf("process %d: parent %d, its own log says %d", p.PID, p.Parent, x.parent)
		}
		if p.Comm != x.name && len(one.Threads) > 0 && one.Count(0) > 50 {
			t.Errorf("process %d: name %q, its own log says %q", p.PID, p.Comm, x.name)
		}
		if one.End == nil || one.Symbols == nil {
			t.Errorf("process %d: not complete", p.PID)
		}
		if i > 0 && len(one.Threads) > 0 {
			members++
			switch before := one.Threads[0].Before; {
			case before < 0 || before > one.Stats.Threads[0].CPUNS:
				t.Errorf("process %d: %d ns of CPU time before its first sample, %d in all", p.PID, before, one.Stats.Threads[0].CPUNS)
			case before > 0:
				whole++
			}
		}
	}
	// The kernel reports when each was made: their own start times, in ticks of 10 ms, may be before the recording's.
	if exact := strings.HasPrefix(rec.Left.How, "reports of the kernel"); exact && whole != members || members == 0 {
		t.Errorf("%d of %d processes have the CPU time from before their first sample", whole, members)
	}
	for pid, x := range lives {
		if _, is := left[pid]; is == recorded[pid] {
			t.Errorf("process %d, %+v: recorded %v, left out %v", pid, x, recorded[pid], is)
		}
	}
	if rec.Left.Seen != len(lives) || rec.Left.Count != len(left) || rec.Left.Lost > 0 {
		t.Errorf("%+v; %d lives", rec.Left, len(lives))
	}
	sql := sliver(t, dir, "sql", "x.sliver", "SELECT DISTINCT p.pid, p.name, f.name FROM slices s JOIN threads t ON t.id = s.thread JOIN processes p ON p.id = t.process JOIN functions f ON f.id = s.function WHERE f.name LIKE 'burn_%'", "--format", "csv")
	for _, line := range strings.Split(strings.TrimSpace(sql.out), "\n")[1:] {
		f := strings.Split(line, ",")
		if len(f) == 3 {
			burns[f[2]+" in "+f[1]]++
		}
	}
	want := map[string]int{"burn_first in first": 1, "burn_fork in first": 1, "burn_exec in kid": 1, "burn_chain in kid": 1, "burn_daemon in first": 1}
	if fmt.Sprint(burns) != fmt.Sprint(want) {
		t.Errorf("functions %v, want %v\n%+v", burns, want, sql)
	}
	if !strings.Contains(r.errors, fmt.Sprintf("processes %d recorded, %d left out", len(recorded), len(left))) {
		t.Errorf("summary:\n%s", r.errors)
	}
	checkPprof(t, filepath.Join(dir, "x.pb.gz"), rec)
	checkFirefox(t, filepath.Join(dir, "x.firefox.json.gz"), rec)
	checkFolded(t, dir, rec)
	for pid := range lives {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(b), ") Z ") {
			t.Errorf("process %d is still there: %s", pid, b)
		}
	}
	// Every format has them all, or those that are chosen.
	for _, f := range export.Formats() {
		name := "all" + f.Extensions[0]
		if r := sliver(t, dir, "export", "x.sliver", "-o", name); r.status != 0 {
			t.Errorf("%s: %+v", f.Name, r)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "all.svg")); err != nil || !bytes.Contains(b, []byte(fmt.Sprintf("first (%d) and %d other processes: ", rec.Process.PID, len(rec.Others)))) || !bytes.Contains(b, []byte("<title>kid ")) {
		t.Errorf("flame graph: %v, %d bytes", err, len(b))
	}
	if r := sliver(t, dir, "export", "x.sliver", "--process", strconv.Itoa(rec.Others[0].Process.PID), "-o", "x.svg"); r.status != 0 {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, dir, "export", "x.sliver", "--process", "kid", "-o", "kid.sliver"); r.status != 0 || len(openSeveral(t, filepath.Join(dir, "kid.sliver")).All()) < 2 {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, dir, "report", "x.sliver"); r.status != 0 || !strings.Contains(r.out, fmt.Sprintf("first (%d) and %d other processes: ", rec.Process.PID, len(rec.Others))) || !strings.Contains(r.out, "\nProcesses") {
		t.Errorf("report: %+v", r)
	}
	checkReport(t, dir, rec)
}

// checkReport: the report has each process, and the steps of the critical path are within the lives
// of their processes and fill the life of the first one.
func checkReport(t *testing.T, dir string, rec *trace.Recording) {
	t.Helper()
	r := sliver(t, dir, "report", "--json", "x.sliver")
	var x report.Report
	if err := json.Unmarshal([]byte(r.out), &x); err != nil {
		t.Fatal(err)
	}
	if len(x.Processes) != len(rec.All()) || len(x.CriticalPath) == 0 {
		t.Fatalf("report: %d processes, want %d; critical path %+v", len(x.Processes), len(rec.All()), x.CriticalPath)
	}
	by := map[int]report.Process{}
	for _, p := range x.Processes {
		by[p.PID] = p
	}
	base := rec.Begin()
	for _, one := range rec.All() {
		base = min(base, one.Begin())
	}
	for _, l := range rec.Left.Processes { // those without a sample may be on the path
		if l.Gone > 0 {
			by[l.PID] = report.Process{PID: l.PID, Begin: int64(l.Born - base), End: int64(l.Gone - base)}
		}
	}
	first := by[rec.Process.PID]
	at := first.Begin
	for _, s := range x.CriticalPath {
		p, ok := by[s.PID]
		if !ok || s.Begin != at || s.Begin < p.Begin || s.Begin+s.Duration > p.End {
			t.Errorf("step %+v is outside of its process %+v, or not at the end of the last step (%d)", s, p, at)
		}
		at = s.Begin + s.Duration
	}
	if at != first.End {
		t.Errorf("the critical path ends at %d, the first process at %d", at, first.End)
	}
}

func checkPprof(t *testing.T, path string, rec *trace.Recording) {
	t.Helper()
	p := readProfile(t, path)
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
	saw := map[int64]string{}
	for _, s := range p.Sample {
		saw[s.NumLabel["pid"][0]] = s.Label["process"][0]
		for _, l := range s.Location {
			for _, line := range l.Line {
				if line.Function.Name == "burn_exec" && !strings.HasPrefix(s.Label["process"][0], "kid (") {
					t.Errorf("burn_exec in %s", s.Label["process"])
				}
			}
		}
	}
	for _, one := range rec.All() {
		if want := fmt.Sprintf("%s (%d)", one.Process.Comm, one.Process.PID); saw[int64(one.Process.PID)] != want {
			t.Errorf("pprof: process %q, want %q", saw[int64(one.Process.PID)], want)
		}
	}
}

func checkFirefox(t *testing.T, path string, rec *trace.Recording) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Libs    []struct{ Path string }
		Threads []struct {
			PID, ProcessName string
			Samples          struct{ Stack []*int }
		}
		Shared struct {
			StackTable  struct{ Frame []int }
			FrameTable  struct{ Func []int }
			FuncTable   struct{ Name []int }
			StringArray []string
		}
	}
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, th := range p.Threads {
		names[th.PID] = th.ProcessName
		for _, s := range th.Samples.Stack {
			if s == nil {
				continue
			}
			name := p.Shared.StringArray[p.Shared.FuncTable.Name[p.Shared.FrameTable.Func[p.Shared.StackTable.Frame[*s]]]]
			if name == "burn_exec" && th.ProcessName != "kid" || name == "burn_daemon" && th.ProcessName != "first" {
				t.Errorf("%s in %s", name, th.ProcessName)
			}
		}
	}
	libs := 0
	for _, one := range rec.All() {
		libs += len(one.Modules)
		if got := names[strconv.Itoa(one.Process.PID)]; got != one.Process.Comm {
			t.Errorf("firefox: process %d is %q, want %q", one.Process.PID, got, one.Process.Comm)
		}
	}
	if len(p.Libs) != libs {
		t.Errorf("%d libraries, want %d", len(p.Libs), libs)
	}
}

func checkFolded(t *testing.T, dir string, rec *trace.Recording) {
	t.Helper()
	r := sliver(t, dir, "export", "x.sliver", "--process-frames", "--format", "collapsed", "-o", "-")
	for _, one := range rec.All() {
		if !strings.Contains("\n"+r.out, fmt.Sprintf("\n%s (%d);", one.Process.Comm, one.Process.PID)) {
			t.Errorf("folded stacks lack process %d", one.Process.PID)
		}
	}
}

// TestNoChildren: the command alone, as without any of this.
func TestNoChildren(t *testing.T) {
	dir, first, kid := family(t)
	r := sliver(t, dir, "record", "-q", "--no-children", "-o", "x.sliver", "--", first, "20", "1", kid)
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	if r.status != 7 || len(rec.Others) > 0 || rec.Left != nil || rec.Process.Comm != "first" {
		t.Errorf("%+v, %d others", r, len(rec.Others))
	}
}

// TestSingleProcess: the rows of processes are left out where they repeat the lines above.
func TestSingleProcess(t *testing.T) {
	one := session.Recorded{PID: 7, Comm: "one", Threads: 1}
	failed := one
	failed.Exit = &trace.Exit{Status: 3}
	missing := &session.Result{Processes: []session.Recorded{one}}
	missing.LeftOut.Count = 2
	for _, c := range []struct {
		r         *session.Result
		want, not string
	}{
		{&session.Result{Processes: []session.Recorded{one}}, "", "one"},
		{&session.Result{Processes: []session.Recorded{failed}}, "  ended    exit status 3\n", "one"},
		{&session.Result{Processes: []session.Recorded{one, failed}}, "processes 2 recorded, 0 left out", "ended"},
		{missing, "processes 1 recorded, 2 left out", "ended"},
	} {
		var b strings.Builder
		writeProcesses(&b, c.r)
		if s := b.String(); !strings.Contains(s, c.want) || strings.Contains(s, c.not) || c.want == "" && s != "" {
			t.Errorf("got %q, want %q", s, c.want)
		}
	}
}

// TestSeveralPIDs records two processes by number, on one clock.
func TestSeveralPIDs(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/spin", "O2")
	a, b := testprog.Start(t, program, "--seconds", "120"), testprog.Start(t, program, "--seconds", "120")
	dir := t.TempDir()
	r := sliver(t, dir, "record", "-p", fmt.Sprintf("%d,%d", a.PID, b.PID), "-d", "500ms", "-o", "x.sliver", "--json")
	if r.status != 0 {
		t.Fatalf("%+v", r)
	}
	var sum struct {
		Processes []struct {
			PID     int
			Samples uint64
		}
		LeftOut struct{ Count int } `json:"left_out"`
	}
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil {
		t.Fatal(err)
	}
	if len(sum.Processes) != 2 || sum.Processes[0].PID != a.PID || sum.Processes[1].PID != b.PID || sum.LeftOut.Count > 0 {
		t.Errorf("%+v", sum)
	}
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	if len(rec.All()) != 2 || rec.Others[0].Process.PID != b.PID {
		t.Fatalf("%d processes", len(rec.All()))
	}
	f0, t0 := rec.Span()
	f1, t1 := rec.Others[0].Span()
	if f0 >= t1 || f1 >= t0 {
		t.Errorf("%d..%d and %d..%d do not overlap", f0, t0, f1, t1)
	}
	for _, p := range []*testprog.Proc{a, b} {
		checkFree(t, p.PID)
	}
}

// checkFree fails if a process is stopped or traced.
func checkFree(t *testing.T, pid int) {
	t.Helper()
	for begin := time.Now(); ; <-time.After(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return // it has ended
		}
		s := string(b)
		if strings.Contains(s, "TracerPid:\t0\n") && !strings.Contains(s, "State:\tT") && !strings.Contains(s, "State:\tt") {
			return
		}
		if time.Since(begin) > 5*time.Second {
			t.Errorf("process %d is stopped or traced:\n%s", pid, s)
			return
		}
	}
}

// TestFamilyKilled: sliver is killed while it records a family. The processes go on to their
// ends, and the unfinished recording can be read.
func TestFamilyKilled(t *testing.T) {
	dir, first, kid := family(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := slivercmd(t, dir, "record", "-i", "1ms", "-o", "x.sliver", "--", first, "400", "3", kid)
	cmd.Stdout = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var partial []string
	ready := func() bool {
		partial, _ = filepath.Glob(filepath.Join(dir, ".x.sliver.*"))
		if len(partial) != 1 {
			return false
		}
		b, err := os.ReadFile(partial[0])
		return err == nil && strings.Count(string(b), "SECT") > 6
	}
	for begin := time.Now(); !ready(); <-time.After(5 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("no recording of several processes grows")
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	lives := func() map[int]*familyLife {
		b, _ := os.ReadFile(log.Name())
		return familyLog(strings.Split(string(b), "\n"))
	}
	for pid := range lives() {
		checkFree(t, pid)
	}
	rec := openSeveral(t, partial[0])
	if len(rec.Others) == 0 {
		t.Error("the other processes are not in what is left")
	}
	// All lives end by themselves: the log has as many deaths.
	for begin := time.Now(); ; <-time.After(10 * time.Millisecond) {
		b, _ := os.ReadFile(log.Name())
		if strings.Count(string(b), "died ") == len(lives()) && len(lives()) >= 9 {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("not all processes ended:\n%s", b)
		}
	}
	r := sliver(t, dir, "recover", partial[0])
	if r.status != 0 || len(openSeveral(t, filepath.Join(dir, "x.sliver")).Others) != len(rec.Others) {
		t.Errorf("%+v", r)
	}
}

// TestRecordByName: processes that match are recorded, also when they start later.
func TestRecordByName(t *testing.T) {
	dir, first, kid := family(t)
	cmd := slivercmd(t, dir, "record", "--name", "/^first$/", "-o", "x.sliver")
	var errs strings.Builder
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	buf := make([]byte, 4096)
	for !strings.Contains(errs.String(), "waiting for a process named /^first$/") {
		n, err := pipe.Read(buf)
		errs.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
	}
	// On a busy machine the program may end before it is found: it runs until it is in the file.
	lives := map[int]*familyLife{}
	for begin := time.Now(); partialWith(dir, "EVNT") == ""; {
		if time.Since(begin) > time.Minute {
			t.Fatal("no process that matches is recorded")
		}
		out, err := exec.Command(first, "300", "0", kid).Output()
		var ee *exec.ExitError
		if !errors.As(err, &ee) || ee.ExitCode() != 7 {
			t.Fatal(err)
		}
		maps.Copy(lives, familyLog(strings.Split(string(out), "\n")))
	}
	_ = cmd.Process.Signal(os.Interrupt)
	rest, _ := io.ReadAll(pipe)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s%s", err, errs.String(), rest)
	}
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	for _, one := range rec.All() {
		if x := lives[one.Process.PID]; x == nil || one.Process.Comm != "first" && one.Process.Comm != "kid" {
			t.Errorf("%+v", one.Process)
		}
	}
	if !slices.ContainsFunc(rec.All(), func(one *trace.Recording) bool { return one.Process.Comm == "first" && one.Count(0) > 0 }) {
		t.Error("no process with the name is recorded")
	}
}

// partialWith returns the path of the unfinished recording in dir if it contains the mark; "": not yet.
func partialWith(dir, mark string) string {
	partial, _ := filepath.Glob(filepath.Join(dir, ".x.sliver.*"))
	if len(partial) != 1 {
		return ""
	}
	if b, err := os.ReadFile(partial[0]); err != nil || !strings.Contains(string(b), mark) {
		return ""
	}
	return partial[0]
}

// TestUsedOfCommand: the CPU time that the samples of a command and its children do not have is in the losses, and
// both together are its own account.
func TestUsedOfCommand(t *testing.T) {
	testprog.Need(t, "ptrace")
	dir := t.TempDir()
	script := "n=0; while [ $n -lt 20 ]; do n=$((n+1)); sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done; times >times"
	before := testprog.Stolen(t)
	r := sliver(t, dir, "record", "--json", "-o", "x.sliver", "--", "sh", "-c", script)
	stolen := testprog.Stolen(t) - before
	var sum struct {
		LeftOut trace.LeftOut `json:"left_out"`
	}
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil || r.status != 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	b, err := os.ReadFile(filepath.Join(dir, "times"))
	if err != nil {
		t.Fatal(err)
	}
	var s [4]float64
	if _, err := fmt.Sscanf(string(b), "0m%fs 0m%fs\n0m%fs 0m%fs", &s[0], &s[1], &s[2], &s[3]); err != nil {
		t.Fatalf("%v: %q", err, b)
	}
	l := &sum.LeftOut
	// The shell counts in ticks of 10 ms, and ends after its account.
	if d := float64(l.UsedNS)/1e9 - s[0] - s[1] - s[2] - s[3]; d < -.041 || d > .061 {
		t.Errorf("%d ns, the shell says %q", l.UsedNS, b)
	}
	if l.CPUNS <= 0 || l.CPUNS > l.UsedNS+l.UsedNS/50+stolen {
		t.Errorf("the processes have %d ns of %d", l.CPUNS, l.UsedNS)
	}
	const line = "of CPU time: used by " // "a further", or all, if no line of a process has a part
	if l.SampledNS <= 0 || l.SampledNS > l.CPUNS {
		t.Errorf("the samples have %d ns of %d", l.SampledNS, l.CPUNS)
	}
	used := max(l.UsedNS, l.CPUNS)
	if left := used-l.SampledNS > max(used/200, 5_000_000); left != strings.Contains(sliver(t, dir, "report", "x.sliver").out, line) {
		t.Errorf("%d of %d ns: line %v", l.SampledNS, used, !left)
	}
	if rec := openSeveral(t, filepath.Join(dir, "x.sliver")); rec.Left == nil || rec.Left.UsedNS != l.UsedNS || rec.Left.CPUNS != l.CPUNS || rec.Left.SampledNS != l.SampledNS {
		t.Errorf("in the file: %+v", rec.Left)
	}
	// Of chosen threads, it says nothing.
	r = sliver(t, dir, "record", "--json", "-t", "main", "-o", "y.sliver", "--", "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	sum.LeftOut = trace.LeftOut{}
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil || sum.LeftOut.UsedNS != 0 {
		t.Errorf("%v: %+v", err, sum.LeftOut)
	}
}

// TestCPUOfShort compares the CPU time of processes that live for 2 to 60 ms with what the kernel returned to their parents.
func TestCPUOfShort(t *testing.T) {
	testprog.Need(t, "ptrace", "gcc")
	dir := t.TempDir()
	before := testprog.Stolen(t)
	r := sliver(t, dir, "record", "-o", "x.sliver", "--", testprog.Build(t, "c/cputimes", "O2"), "8")
	stolen := testprog.Stolen(t) - before
	truth := map[int]int64{}
	for line := range strings.Lines(r.out) {
		var pid, parent int
		var ns int64
		if n, _ := fmt.Sscanf(line, "used %d %d %d", &pid, &ns, &parent); n == 3 {
			truth[pid] += ns
			truth[parent] -= ns
		}
	}
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	if len(truth) != 41 || rec.Left == nil {
		t.Fatalf("%+v", r)
	}
	truth[rec.Process.PID] += rec.Left.UsedNS
	sum, counted := int64(0), 0
	check := func(pid int, ns, exact int64) {
		sum += ns
		const most = 5e6 + 2e7 // what the kernel's event has and its account has not, and steps of /proc/stat
		if want := truth[pid]; exact > 0 && ns < want-3e6 || ns > want+most+stolen {
			t.Errorf("process %d: %d ns, counted %d, the kernel's account has %d", pid, ns, exact, want)
		}
		if exact > 0 {
			counted++
		}
	}
	for _, one := range rec.All() {
		check(one.Process.PID, one.CPU(), one.End.CPU)
	}
	for _, l := range rec.Left.Processes {
		check(l.PID, l.CPU, l.CPU)
	}
	if sum != rec.Left.CPUNS || strings.HasPrefix(rec.Left.How, "reports") && counted == 0 {
		t.Errorf("%d ns, the recording says %d; %d processes were counted", sum, rec.Left.CPUNS, counted)
	}
	t.Logf("%d of %d processes counted, %d ns of %d", counted, len(truth), sum, rec.Left.UsedNS)
}

// TestParentOfGiven: of processes given by number, the parent is known whatever their order.
func TestParentOfGiven(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, "/bin/sh", "-c", "exec 3<&0; cat <&3 & echo child $!; wait")
	child := strings.TrimPrefix(p.Line("child"), "child ")
	dir := t.TempDir()
	if r := sliver(t, dir, "record", "-q", "-p", child, "-p", pidOf(p), "-d", "200ms", "-o", "x.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
	if len(rec.Others) != 1 || rec.Process.PID != p.PID || rec.Others[0].Process.Parent != p.PID || strconv.Itoa(rec.Others[0].Process.PID) != child {
		t.Errorf("%+v and %d others", rec.Process, len(rec.Others))
	}
}
