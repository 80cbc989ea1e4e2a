package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace/event"
)

// sharedTask is a task of an HTML file.
type sharedTask struct {
	ID      uint64
	Func    string
	Spans   int
	reasons map[string]bool // of its spans
}

// sharedTasks are the tasks of a process in an HTML file.
type sharedTasks struct {
	Process          int
	What             string
	Idle, More, Lost int
	Reasons          []string
	Len              int
	List             []sharedTask
}

// sharedTasksOf returns the tasks of an HTML file by PID, and fails if a span is on a thread of another process.
func sharedTasksOf(t *testing.T, path string) map[int]*sharedTasks {
	t.Helper()
	html, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(html, []byte(`id="data">`))
	text, _, _ := bytes.Cut(rest, []byte("</script>"))
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint32(b)
	var h struct {
		Threads []struct {
			Process int
			Lens    []int
		}
		Among struct{ Processes []struct{ PID int } }
		Tasks []*sharedTasks
	}
	if err := json.Unmarshal(b[4:4+n], &h); err != nil {
		t.Fatal(err)
	}
	b = b[4+n:]
	for _, th := range h.Threads {
		for _, n := range th.Lens {
			b = b[n:]
		}
	}
	next := func() int64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatal("the spans end early")
		}
		b = b[n:]
		return int64(v)
	}
	out := map[int]*sharedTasks{}
	for _, g := range h.Tasks {
		pid := h.Among.Processes[g.Process].PID
		out[pid] = g
		behind := len(b) - g.Len
		for i := range g.List {
			x := &g.List[i]
			x.reasons = map[string]bool{}
			for range x.Spans {
				next()
				next()
				next()
				if th := next(); th > 0 && h.Threads[th-1].Process != g.Process {
					t.Errorf("process %d: task %d has a span on thread %d of process %d", pid, x.ID, th-1, h.Threads[th-1].Process)
				}
				if r := next(); r > 0 {
					x.reasons[g.Reasons[r-1]] = true
				}
			}
		}
		if len(b) != behind {
			t.Fatalf("process %d: the spans end %d bytes off", pid, len(b)-behind)
		}
	}
	return out
}

// TestFileTasks records two Go programs and one with asyncio together: an HTML file has the tasks of each, with the waits
// that the Go programs say they have.
func TestFileTasks(t *testing.T) {
	testprog.Need(t, "ptrace")
	python := testprog.Tool(t, "python3.14")
	var programs []*goProgram
	for _, many := range []string{"7", "23"} {
		p := testprog.Start(t, testprog.Build(t, "go/routines", "default"), "-many", many)
		programs = append(programs, goProgramOf(t, p.Line("{")))
	}
	dir := t.TempDir()
	py := testprog.Start(t, python, filepath.Join(testprog.Root(t), "testdata", "targets", "python", "tasks.py"), "600", filepath.Join(dir, "log"), "5000000")
	py.Ready()
	p := testprog.StartCmd(t, slivercmd(t, dir, "record", "-o", "x.sliver", "-p", fmt.Sprintf("%d,%d,%d", programs[0].pid, programs[1].pid, py.PID)))
	py.Go()
	waitFor(t, func() bool { return looked(t, dir, programs, 1) && ranTasks(dir, py.PID) })
	if err := syscall.Kill(p.PID, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if s := p.Wait(); !s.Success() {
		t.Fatalf("%v\n%s", s, strings.Join(p.Errors(), "\n"))
	}
	if r := sliver(t, dir, "export", "x.sliver", "-o", "x.html"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	file := sharedTasksOf(t, filepath.Join(dir, "x.html"))
	if len(file) != 3 || file[py.PID] == nil || file[py.PID].What != "asyncio task" {
		t.Fatalf("the file has tasks of %v", file)
	}
	recorded := map[string]int{}
	for _, r := range csvRows(t, dir, "select p.pid, t.id from tasks t join processes p on p.id = t.process") {
		recorded[r[0]]++
		recorded[r[0]+" "+r[1]]++
	}
	named := false
	for pid, g := range file {
		if all := recorded[fmt.Sprint(pid)]; g.More != 0 || g.Lost != 0 || len(g.List)+g.Idle != all {
			t.Errorf("process %d: the file has %d tasks, %d of the runtime and %d more, the recording %d", pid, len(g.List), g.Idle, g.More, all)
		}
		for _, x := range g.List {
			if n := recorded[fmt.Sprint(pid, " ", x.ID)]; n != 1 || x.Spans == 0 {
				t.Errorf("process %d: task %d is in the recording %d times, and has %d spans", pid, x.ID, n, x.Spans)
			}
			named = named || pid == py.PID && x.Func == "named-0 worker"
		}
	}
	if !named {
		t.Errorf("the tasks of process %d have no names: %+v", py.PID, file[py.PID].List)
	}
	for _, p := range programs {
		list := map[uint64]*sharedTask{}
		for i := range file[p.pid].List {
			list[file[p.pid].List[i].ID] = &file[p.pid].List[i]
		}
		for id, reason := range p.waits {
			if reason == "running" || reason == "syscall" { // of these a thread has to be seen
				continue
			}
			if x := list[id]; x == nil || !x.reasons[reason] {
				t.Errorf("process %d: goroutine %d waits for %q, the file has %+v", p.pid, id, reason, x)
			}
		}
	}
	if to := os.Getenv("SLIVER_PICTURES"); to != "" {
		b, err := os.ReadFile(filepath.Join(dir, "x.html"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, "filetasks.html"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// ranTasks reports whether the unfinished recording in dir has a process whose threads were seen to run tasks often.
func ranTasks(dir string, pid int) bool {
	rec := unfinished(dir)
	if rec == nil {
		return false
	}
	n := 0
	for _, one := range rec.All() {
		for i := range one.Threads {
			for e := range one.Events(one.Threads[i].Seq) {
				if one.Process.PID == pid && e.Kind() == event.Task {
					n++
				}
			}
		}
	}
	return n > 100
}
