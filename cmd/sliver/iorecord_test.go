package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/trace"
)

// TestRecordIO records a program whose operations are known: each one is in the recording, with its
// file, and the sums are those of the operations.
func TestRecordIO(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	dir := t.TempDir()
	path, out := filepath.Join(dir, "mixed"), filepath.Join(dir, "run.sliver")
	prog := testprog.Build(t, "c/files", "O2")
	cmd := slivercmd(t, dir, "record", "--io", "-o", out, "--", prog, "mixed", path, "50", "1000")
	// The program waits for a line. By then a sample has met its libraries, and their maps are known.
	feed := exec.Command("sh", "-c", "sleep 2; echo")
	var err error
	if cmd.Stdin, err = feed.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := feed.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = feed.Wait() }()
	r := runCmd(t, cmd)
	if strings.Contains(r.errors, "I/O was not recorded") {
		testprog.Missing(t, "bpf", r.errors)
	}
	if r.status != 0 || !strings.Contains(r.errors, "I/O: ") {
		t.Fatalf("%+v", r)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(f, fi.Size())
	if err != nil {
		t.Fatal(err)
	}
	if rec.IO == nil || len(dropped(rec.IO.Lost)) > 0 || rec.IO.Skipped > 0 || len(rec.Problems) > 0 {
		t.Fatalf("%+v, %q", rec.IO, rec.Problems)
	}
	type sum struct{ opens, reads, writes, syncs, closes, bytes, got, stacks int }
	sums := map[string]*sum{}
	byCall := map[string]uint64{}
	for o, err := range rec.Ops() {
		if err != nil {
			t.Fatal(err)
		}
		name := rec.IONames.Path(o.File)
		s := sums[name]
		if s == nil {
			s = &sum{}
			sums[name] = s
		}
		byCall[rec.IONames.Call(o.Call)]++
		switch o.Op {
		case iowatch.OpOpen:
			s.opens++
			if frames, cut := rec.IONames.Stack(o.Stack, true); name == path && o.Stack >= 0 {
				if s.stacks++; cut != "" || len(frames) < 3 || !hasFrame(frames, "opening") || !hasFrame(frames, "main") {
					t.Errorf("opened in %+v, %q", frames, cut)
				}
			}
		case iowatch.OpRead:
			s.reads, s.got = s.reads+1, s.got+int(o.Ret)
		case iowatch.OpWrite:
			s.writes, s.bytes = s.writes+1, s.bytes+int(o.Ret)
		case iowatch.OpSync:
			s.syncs++
		case iowatch.OpClose:
			s.closes++
		}
		if o.Begin < rec.IO.Began || o.Took < 0 {
			t.Errorf("%+v", o)
		}
	}
	if s := sums[path]; s == nil || s.opens != 50 || s.reads != 100 || s.writes != 100 || s.syncs != 50 || s.bytes != 100_000 || s.got != 50*130 || s.stacks < 10 || s.closes < 50 {
		t.Errorf("%s: %+v", path, s)
	}
	for _, c := range rec.IO.Calls {
		want := c.Calls - c.Errors
		if strings.HasPrefix(c.Call, "pipe") {
			want *= 2 // each makes two descriptors
		}
		if strings.Contains(c.Call, "stat") { // of these, slow ones alone have a record, also if they failed
			if n := byCall[c.Call]; n > c.Calls {
				t.Errorf("%s: %d operations in the recording, %d calls", c.Call, n, c.Calls)
			}
			continue
		}
		if n := byCall[c.Call]; n != want {
			t.Errorf("%s: %d operations in the recording, %d calls of which %d failed", c.Call, n, c.Calls, c.Errors)
		}
	}
	found := false
	for _, x := range rec.IO.Files {
		if rec.IONames.Path(x.File) == path {
			found = true
			if x.Ops != 200 || x.Syncs != 50 || x.Opens != 50 || x.Written != 100_000 {
				t.Errorf("%+v", x)
			}
		}
	}
	if !found {
		t.Errorf("%s is not among %+v", path, rec.IO.Files)
	}
	if r := sliver(t, dir, "report", out); r.status != 0 || !strings.Contains(r.out, "\nFiles") || !strings.Contains(r.out, "mixed") {
		t.Errorf("report: %+v", r)
	}
	if r := sliver(t, dir, "sql", out, "select count(*) n, sum(bytes) b from io where file = '"+path+"' and op = 'write'"); r.status != 0 || !strings.Contains(r.out, "100000") {
		t.Errorf("sql: %+v", r)
	}
}

// TestRecordIOShort records a command that ends after some milliseconds: its stacks have names all the same.
// On a busy machine sliver may have no CPU while the command lives, so one of several runs has to.
func TestRecordIOShort(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	dir := t.TempDir()
	out := filepath.Join(dir, "run.sliver")
	prog := testprog.Build(t, "c/files", "O2")
	last := ""
	for range 10 {
		cmd := slivercmd(t, dir, "record", "--io", "-o", out, "--", prog, "mixed", filepath.Join(dir, "mixed"), "50", "1000")
		cmd.Stdin = strings.NewReader("\n")
		r := runCmd(t, cmd)
		if strings.Contains(r.errors, "I/O was not recorded") {
			testprog.Missing(t, "bpf", r.errors)
		}
		if r.status != 0 {
			t.Fatalf("%+v", r)
		}
		r = sliver(t, dir, "sql", "--format", "csv", out, `select count(*), sum(stack like '% < opening (%) < mixed (%) < main (%') from io where op = 'open' and file like '%/mixed' and stack is not null`)
		lines := strings.Fields(r.out)
		last = r.out
		if n := strings.Split(lines[len(lines)-1], ","); len(n) == 2 && n[0] == n[1] && n[0] != "0" {
			return
		}
	}
	t.Errorf("stacks of opens, and those with names: %s", last)
}

// TestRecordIOSeveral records two processes: each has its own operations, files and findings.
func TestRecordIOSeveral(t *testing.T) {
	testprog.Whole(t, "TestRecordIO has one process")
	testprog.Need(t, "gcc", "ptrace")
	dir := t.TempDir()
	out := filepath.Join(dir, "run.sliver")
	prog := testprog.Build(t, "c/files", "O2")
	var procs [2]*testprog.Proc
	for i := range procs {
		procs[i] = testprog.Start(t, prog, "mixed", filepath.Join(dir, fmt.Sprint("mixed", i)), "30", "1000")
		procs[i].Ready()
	}
	cmd := slivercmd(t, dir, "record", "--io", "-d", "4s", "-o", out, "-p", fmt.Sprintf("%d,%d", procs[0].PID, procs[1].PID))
	done := make(chan result, 1)
	go func() { done <- runCmd(t, cmd) }()
	every := time.NewTicker(100 * time.Millisecond) // from before the recording begins until its end
	defer every.Stop()
	var r result
	for ended := false; !ended; {
		select {
		case r = <-done:
			ended = true
		case <-every.C:
			for _, p := range procs {
				p.Go()
			}
		}
	}
	if strings.Contains(r.errors, "I/O was not recorded") {
		testprog.Missing(t, "bpf", r.errors)
	}
	if r.status != 0 || !strings.Contains(r.errors, "  I/O: ") || !strings.Contains(r.errors, fmt.Sprintf("  I/O of files (%d): ", procs[1].PID)) {
		t.Fatalf("%+v", r)
	}
	for _, query := range []string{
		`select p.pid, i.file, count(*) from io i join processes p on p.id = i.process where i.op = 'write' and i.file like '%/mixed%' group by 1, 2 order by 2`,
		`select p.pid, i.file, 1 from findings i join processes p on p.id = i.process where i.rule = 'fsync' and i.file like '%/mixed%' order by 2`,
		`select p.pid, i.file, i.ops from io_files i join processes p on p.id = i.process where i.file like '%/mixed%' order by 2`,
	} {
		r := sliver(t, dir, "sql", "--format", "csv", out, query)
		lines := strings.Fields(r.out)
		if r.status != 0 || len(lines) != 3 {
			t.Errorf("%s: %+v", query, r)
			continue
		}
		for i, p := range procs {
			if !strings.HasPrefix(lines[i+1], fmt.Sprintf("%d,%s,", p.PID, filepath.Join(dir, fmt.Sprint("mixed", i)))) || strings.HasSuffix(lines[i+1], ",0") {
				t.Errorf("%s: %s", query, lines[i+1])
			}
		}
	}
}

// TestRecordIOMany records more processes than are watched at once. The others say so.
func TestRecordIOMany(t *testing.T) {
	testprog.Whole(t, "TestRecordIOSeveral has two processes")
	testprog.Need(t, "gcc", "ptrace")
	dir := t.TempDir()
	prog := testprog.Build(t, "c/files", "O2")
	var pids []string
	for range 10 {
		p := testprog.Start(t, prog, "read", "/dev/null", "1", "1")
		p.Ready()
		pids = append(pids, fmt.Sprint(p.PID))
	}
	r := sliver(t, dir, "record", "--io", "-d", "1s", "-p", strings.Join(pids, ","))
	const why = "I/O was not recorded: it is for at most 8 processes at once"
	if strings.Count(r.errors, "I/O was not recorded") > strings.Count(r.errors, why) {
		testprog.Missing(t, "bpf", r.errors)
	}
	if r.status != 0 || strings.Count(r.errors, why) != 2 {
		t.Errorf("%+v", r)
	}
}

func hasFrame(frames []trace.IOFrame, name string) bool {
	for i := range frames {
		if frames[i].Func == name {
			return true
		}
	}
	return false
}

// TestRecordIOUsage has flags without --io, and wrong values.
func TestRecordIOUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"give --io too":            {"record", "-p", "1", "--io-slower", "1ms"},
		"--io-rule is for":         {"record", "-p", "1", "--io-rule", "leak"},
		"io-slower: -1s is":        {"record", "-p", "1", "--io", "--io-slower", "-1s"},
		`unknown rule "x"; rules:`: {"record", "-p", "1", "--io", "--io-rule", "x"},
	} {
		if r := sliver(t, t.TempDir(), args...); r.status != exitUsage || !strings.Contains(r.errors, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// TestRecordIOWithoutRights still records, and names the missing right.
func TestRecordIOWithoutRights(t *testing.T) {
	out := shell(t, `
		U="setpriv --reuid 23456 --regid 23456 --clear-groups"
		chmod 777 $D
		$U $S record --io -o $D/x.sliver -- sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done' 2>&1
		echo "status $?"
		$U $S report $D/x.sliver
		exit 0`)
	if strings.Count(out, "I/O was not recorded") != 2 || !strings.Contains(out, "status 0") { // in the summary, and in the report
		t.Errorf("%s", out)
	}
}
