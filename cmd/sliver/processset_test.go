package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// parentOfTwo starts a shell with two children and returns all three PIDs, the shell's first. The
// name is that of the children.
func parentOfTwo(t *testing.T) (pids []int, name string) {
	t.Helper()
	testprog.Need(t, "gcc", "ptrace")
	b, err := os.ReadFile(testprog.Build(t, "c/spin", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprintf("set%d", os.Getpid())
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, exec.Command("sh", "-c", `"$1" --seconds 120 & a=$!; "$1" --seconds 120 & b=$!; echo "children $a $b"; trap "kill $a $b" EXIT; read x`, "sh", path))
	pids = []int{p.PID, 0, 0}
	if n, err := fmt.Sscanf(p.Line("children"), "children %d %d", &pids[1], &pids[2]); n != 2 {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Say("end"); p.Wait() })
	waitFor(t, func() bool { // the children have executed the program
		for _, pid := range pids[1:] {
			if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) != name {
				return false
			}
		}
		return true
	})
	return pids, name
}

// TestProcessSets: threads and stack take processes by number, name and parent, and show each
// process once.
func TestProcessSets(t *testing.T) {
	pids, name := parentOfTwo(t)
	parent, kids := strconv.Itoa(pids[0]), fmt.Sprintf("%d,%d", pids[1], pids[2])
	for _, c := range []struct {
		flags []string
		want  []int
	}{
		{[]string{"-p", kids}, pids[1:]},
		{[]string{kids, parent}, pids},
		{[]string{strings.ReplaceAll(kids, ",", " "), "-p", parent}, pids},
		{[]string{"-p", parent, "--children"}, pids},
		{[]string{"--name", name}, pids[1:]},
		{[]string{"--name", name, "-p", parent, "--children"}, pids},
		{[]string{parent, parent}, pids[:1]},
	} {
		want := map[int]bool{}
		for _, pid := range c.want {
			want[pid] = true
		}
		r := sliver(t, t.TempDir(), append([]string{"threads", "--json", "-d", "10ms"}, c.flags...)...)
		var rows []threadRow
		if err := json.Unmarshal([]byte(r.out), &rows); err != nil {
			t.Fatalf("%q: %v, %+v", c.flags, err, r)
		}
		got := map[int]bool{}
		for _, row := range rows {
			if row.Position == 1 {
				if got[row.PID] || int(row.TID) != row.PID {
					t.Errorf("%q: process %d twice, or without its main thread first", c.flags, row.PID)
				}
				got[row.PID] = true
			}
			if (row.Process == name) == (row.PID == pids[0]) {
				t.Errorf("%q: %+v", c.flags, row)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("threads %q: processes %v, want %v", c.flags, got, want)
		}
		r = sliver(t, t.TempDir(), append([]string{"stack", "--json"}, c.flags...)...)
		dec := json.NewDecoder(bytes.NewReader([]byte(r.out)))
		got = map[int]bool{}
		for dec.More() {
			var doc struct{ PID int }
			if err := dec.Decode(&doc); err != nil {
				t.Fatalf("%q: %v, %+v", c.flags, err, r)
			}
			got[doc.PID] = true
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("stack %q: processes %v, want %v", c.flags, got, want)
		}
	}
	// As text, several processes have a heading each, one has none.
	r := sliver(t, t.TempDir(), "threads", "-d", "0s", "-p", kids)
	for _, pid := range pids[1:] {
		if strings.Count("\n"+r.out, fmt.Sprintf("\n%s (%d)\n", name, pid)) != 1 {
			t.Errorf("no heading for process %d:\n%s", pid, r.out)
		}
	}
	if r := sliver(t, t.TempDir(), "threads", "-d", "0s", strconv.Itoa(pids[1])); !strings.HasPrefix(strings.TrimSpace(r.out), "TID") {
		t.Errorf("one process has a heading:\n%s", r.out)
	}
	for _, command := range []string{"threads", "stack"} {
		if r := sliver(t, t.TempDir(), command, "--name", "no-such-process-"+name); r.status != 1 || !strings.Contains(r.errors, "there is no process named no-such-process") {
			t.Errorf("%s: %+v", command, r)
		}
		// A pattern is for the whole name.
		part := name[1 : len(name)-1]
		if r := sliver(t, t.TempDir(), command, "--name", part); r.status != 1 || !strings.Contains(r.errors, "--name '*"+part+"*' matches "+name) {
			t.Errorf("%s: %+v", command, r)
		}
	}
	for _, pid := range pids {
		checkFree(t, pid)
	}
}

// TestTopOfSeveral: one table has the functions and threads of all processes, those that start later
// too, and a sum for each process.
func TestTopOfSeveral(t *testing.T) {
	pids, name := parentOfTwo(t)
	r := sliver(t, t.TempDir(), "top", "--once", "-d", "500ms", "--idle", "-n", "0", "-p", strconv.Itoa(pids[0]), "--children")
	if r.status != 0 || !strings.HasPrefix(r.out, "3 processes: ") {
		t.Fatalf("%+v", r)
	}
	for _, pid := range pids[1:] {
		if strings.Count(r.out, fmt.Sprintf("%7d ", pid)) < 2 || !strings.Contains(r.out, name) {
			t.Errorf("process %d has no sum and thread:\n%s", pid, r.out)
		}
	}
	type table struct {
		PID       int
		Processes []struct {
			PID, Threads int
			Name         string
			CPU          int64 `json:"cpu_ns"`
		}
		Functions []struct {
			Func, Module string
			Self         int64 `json:"self_wall_ns"`
		}
		Threads []struct{ TID, PID int }
	}
	read := func(r result) (x table) {
		t.Helper()
		if err := json.Unmarshal([]byte(r.out), &x); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		return x
	}
	x := read(sliver(t, t.TempDir(), "top", "--json", "-d", "500ms", "-n", "0", "--name", name))
	if x.PID != 0 || len(x.Processes) != 2 || len(x.Threads) < 2 {
		t.Errorf("%+v", x)
	}
	seen := map[string]int{}
	for _, f := range x.Functions {
		seen[f.Func+" "+f.Module]++ // the C library and the vDSO share names
	}
	for f, n := range seen {
		if n > 1 {
			t.Errorf("function %s has %d rows", f, n)
		}
	}
	for _, th := range x.Threads {
		if th.PID != pids[1] && th.PID != pids[2] {
			t.Errorf("%+v", th)
		}
	}
	// One process, given by number, has the table that it always had.
	if one := read(sliver(t, t.TempDir(), "top", "--json", "-d", "200ms", strconv.Itoa(pids[1]))); one.PID != pids[1] || one.Processes != nil {
		t.Errorf("%+v", one)
	}
	for _, pid := range pids {
		checkFree(t, pid)
	}
}
