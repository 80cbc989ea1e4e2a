package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// reported are the locks of a report.
type reported struct {
	Locks []struct {
		Name    string
		Kind    string
		Waiters []struct{ Name string } `json:"waiter_functions"`
		Holders []struct{ Name string } `json:"holder_functions"`
	}
	Idle struct{ Threads int }
}

// TestReportRuntimes: the report of a Java program and of a Python program has the contended locks of the
// program, in its functions. It does not list the waiting code of the runtimes or their idle threads.
func TestReportRuntimes(t *testing.T) {
	testprog.Whole(t, "TestReportNamesLocks and TestReportGoroutines have reports")
	testprog.Need(t, "ptrace")
	for _, c := range []struct {
		name  string
		start func(t *testing.T) *testprog.Proc
		lock  string // prefix of the first lock's name
		ours  string // program functions that must wait for and hold it
		not   string // functions that must not appear
		idle  bool   // the runtime has idle threads
	}{
		{"Java", func(t *testing.T) *testprog.Proc {
			cmd := exec.Command(testprog.Tool(t, "java17"), "-Xmx64m", "-XX:+UseParallelGC", "-XX:ParallelGCThreads=2", "-cp", testprog.JavaClasses(t, "Convoy"), "Convoy", "120")
			cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=")
			return testprog.StartCmd(t, cmd)
		}, "java.lang.Object monitor", `^Convoy\.`, `::|pthread`, true},
		{"Python", func(t *testing.T) *testprog.Proc { return python(t, testprog.Tool(t, "python3.12")) },
			"GIL", `^(deep|matching|encoding|JSONEncoder)\b`, `^(PyCOND_|take_gil|drop_gil|_?Py[A-Z]|pthread)`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, dir := c.start(t), t.TempDir()
			ours, not := regexp.MustCompile(c.ours), regexp.MustCompile(c.not)
			var last string
			// The functions of a file are known some time after the recording began, so a longer one has
			// them.
			for _, d := range []string{"2s", "4s", "8s", "16s", "32s"} {
				if r := sliver(t, dir, "record", "-q", "-p", pidOf(p), "-d", d, "-o", "r.sliver"); r.status != 0 {
					t.Fatalf("%+v", r)
				}
				r := sliver(t, dir, "report", "r.sliver", "--json")
				var doc reported
				if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
					t.Fatalf("%v: %+v", err, r)
				}
				if last != "" {
					t.Log(last)
				}
				if last = doc.lacks(c.lock, ours, not, c.idle); last == "" {
					return
				}
			}
			t.Error(last)
		})
	}
}

// lacks describes the first mismatch; "" if there is none.
func (r *reported) lacks(lock string, ours, not *regexp.Regexp, idle bool) string {
	if len(r.Locks) == 0 || !strings.HasPrefix(r.Locks[0].Name, lock) {
		return "the first lock is not " + lock
	}
	seen := [2]bool{}
	for i, names := range [][]struct{ Name string }{r.Locks[0].Waiters, r.Locks[0].Holders} {
		for _, f := range names {
			if not.MatchString(f.Name) {
				return lock + " is wanted or held in " + f.Name
			}
			seen[i] = seen[i] || ours.MatchString(f.Name)
		}
	}
	if seen != [2]bool{true, true} {
		return lock + " is not wanted and held in the program's functions"
	}
	for _, l := range r.Locks {
		if idle && l.Kind == "semaphore" {
			return "there is " + l.Name
		}
	}
	if idle != (r.Idle.Threads > 0) {
		return fmt.Sprintf("%d threads are idle", r.Idle.Threads)
	}
	return ""
}
