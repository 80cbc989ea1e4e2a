package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/export/report"
)

// exitMarks are shells that end in different ways, by a mark in their command lines.
var exitMarks = []struct{ mark, end, want string }{
	{"with_0", "exit 0", "0 "}, {"with_3", "exit 3", "3 "}, {"with_255", "exit 255", "255 "},
	{"by_kill", "kill -KILL $$", " SIGKILL"}, {"by_segv", "ulimit -c 0; kill -SEGV $$", " SIGSEGV"}, {"by_term", "kill $$", " SIGTERM"},
}

// reapedExits reports whether the kernel keeps the status of a process that its parent has waited for (Linux 6.15,
// PIDFD_INFO_EXIT). On others it is known only of processes that were still zombies.
func reapedExits(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	var major, minor int
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 15
}

// TestExitStatus: the recording of several processes, its parts, the summary, the report and SQL say how each process
// ended, and nothing about one that did not end.
func TestExitStatus(t *testing.T) {
	dir := t.TempDir()
	script := ""
	for _, m := range exitMarks {
		script += fmt.Sprintf("sh -c ': %s; sleep .7; %s' & ", m.mark, m.end)
	}
	r := sliver(t, dir, "record", "-i", "5ms", "--json", "-o", "x.sliver", "--", "sh", "-c", ": first; "+script+"wait; exit 9")
	if r.status != 9 {
		t.Fatalf("%+v", r)
	}
	all := reapedExits(t)
	check := func(what string, ends map[string]string) {
		t.Helper()
		for _, m := range exitMarks {
			if got, ok := ends[m.mark]; !ok || got != m.want && (all || got != " ") {
				t.Errorf("%s: %s ended with %q (recorded: %v), want %q", what, m.mark, got, ok, m.want)
			}
		}
		if got := ends["first"]; got != "9 " {
			t.Errorf("%s: the command ended with %q", what, got)
		}
	}
	text := func(status *int, signal *string) string {
		s := " "
		if status != nil {
			s = fmt.Sprint(*status) + s
		}
		if signal != nil {
			s += *signal
		}
		return s
	}
	mark := func(command string) string {
		_, rest, _ := strings.Cut(command, ": ")
		word, _, _ := strings.Cut(rest, ";")
		return word
	}
	sql := func(file string) map[string]string {
		t.Helper()
		ends := map[string]string{}
		r := sliver(t, dir, "sql", file, "--format", "json", "select command, exit_status status, exit_signal signal from processes")
		if r.status != 0 {
			t.Fatalf("%+v", r)
		}
		var rows []struct {
			Command string
			Status  *int
			Signal  *string
		}
		if err := json.Unmarshal([]byte(r.out), &rows); err != nil {
			t.Fatalf("%q: %v", r.out, err)
		}
		for _, row := range rows {
			ends[mark(row.Command)] = text(row.Status, row.Signal)
		}
		return ends
	}
	check("sql", sql("x.sliver"))
	if r := sliver(t, dir, "export", "x.sliver", "-o", "cut.sliver", "--process", "sh"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	check("a part", sql("cut.sliver"))
	pids := map[int]string{}
	for _, one := range openSeveral(t, filepath.Join(dir, "x.sliver")).All() {
		pids[one.Process.PID] = mark(strings.Join(one.Process.Cmdline, " "))
	}
	var rep report.Report
	if err := json.Unmarshal([]byte(sliver(t, dir, "report", "--json", "x.sliver").out), &rep); err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for _, p := range rep.Processes {
		ends[pids[p.PID]] = text(p.Status, p.Signal)
	}
	check("report", ends)
	var sum struct {
		Processes []struct {
			PID    int     `json:"pid"`
			Status *int    `json:"exit_status"`
			Signal *string `json:"exit_signal"`
		} `json:"processes"`
	}
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	ends = map[string]string{}
	for _, p := range sum.Processes {
		ends[pids[p.PID]] = text(p.Status, p.Signal)
	}
	check("summary", ends)
}

// TestExitUnknown: processes that still run when their recording ends have no status.
func TestExitUnknown(t *testing.T) {
	pids, _ := parentOfTwo(t)
	dir := t.TempDir()
	if r := sliver(t, dir, "record", "-p", fmt.Sprint(pids[0]), "--children", "-d", "300ms", "-o", "x.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	r := sliver(t, dir, "sql", "x.sliver", "--format", "csv", "select count(*), count(exit_status), count(exit_signal) from processes")
	if !strings.HasSuffix(r.out, "\n3,0,0\n") {
		t.Errorf("%+v", r)
	}
}
