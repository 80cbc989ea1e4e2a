package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// bpf skips a test of io that had no right to load programs.
func bpf(t *testing.T, r result) {
	t.Helper()
	if strings.Contains(r.errors, "shown is what /proc has") {
		testprog.Missing(t, "bpf", r.errors)
	}
}

// TestIOCounts compares the number of calls with that of strace -c, of a program with calls that fail.
func TestIOCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mixed")
	testprog.Need(t, "gcc", "ptrace")
	prog := testprog.Build(t, "c/files", "O2")
	want := straced(t, t.TempDir(), "\n", prog, "mixed", path, "50", "1000")
	got := ioWatched(t, t.TempDir(), "\n", prog, "mixed", path, "50", "1000")
	compared := 0
	for _, c := range got.Calls {
		compared++
		if w := want[c.Call]; w != [2]uint64{c.Calls, c.Errors} {
			t.Errorf("%s: %d calls, %d errors; strace has %v", c.Call, c.Calls, c.Errors, w)
		}
	}
	if compared < 8 || len(got.Lost) > 0 {
		t.Errorf("%d calls compared, lost: %q", compared, got.Lost)
	}
	i := slices.IndexFunc(got.Files, func(f fileLine) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("%s is missing", path)
	}
	if f := got.Files[i]; f.Opens != 50 || f.Ops != 200 || f.Syncs != 50 || f.Written != 100_000 || f.Read != 50*130 {
		t.Errorf("%+v", f)
	}
}

// TestIOCopies has operations on copies of descriptors, as a shell's redirections make them: they are those of the file, of a
// copy that another one replaces, and of one that is open when the program ends.
func TestIOCopies(t *testing.T) {
	testprog.Need(t, "ptrace")
	dir := t.TempDir()
	got := ioWatched(t, dir, "", "sh", "-c", "for i in 1 2 3; do echo line; done >replaced; exec 3>open; exec 1>&3; echo a; echo b")
	for name, want := range map[string]uint64{"replaced": 15, "open": 4} {
		i := slices.IndexFunc(got.Files, func(f fileLine) bool { return f.Path == filepath.Join(dir, name) })
		if i < 0 || got.Files[i].Opens != 1 || got.Files[i].Written != want {
			t.Errorf("%s: %+v, want %d bytes", name, got.Files, want)
		}
	}
}

// TestIOMoves has calls that move bytes between descriptors, or several messages: each is an operation of both
// descriptors with its bytes, and the calls are those of strace -c.
func TestIOMoves(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	prog, dir := testprog.Build(t, "c/moves", "O2"), t.TempDir()
	want := straced(t, dir, "", prog, dir, "20", "5000")
	cmd := slivercmd(t, dir, "io", "--json", "--", prog, dir, "20", "5000")
	r := runCmd(t, cmd)
	bpf(t, r)
	truth, out, found := strings.Cut(r.out, "{\n")
	var got ioReport
	if err := json.Unmarshal([]byte("{\n"+out), &got); err != nil || !found || len(dropped(got.Lost)) > 0 {
		t.Fatalf("%v: %+v, lost: %q", err, r, got.Lost)
	}
	moves := 0
	for _, c := range got.Calls {
		if w := want[c.Call]; w != [2]uint64{c.Calls, c.Errors} {
			t.Errorf("%s: %d calls, %d errors; strace has %v", c.Call, c.Calls, c.Errors, w)
		}
		if slices.Contains([]string{"sendfile", "splice", "tee", "vmsplice", "copy_file_range", "sendmmsg", "recvmmsg", "preadv2", "pwritev2"}, c.Call) {
			moves++
		}
	}
	if moves != 9 {
		t.Errorf("%+v", got.Calls)
	}
	files := 0
	for line := range strings.Lines(truth) {
		var name string
		var reads, in, writes, out uint64
		if _, err := fmt.Sscanf(line, "truth %s %d %d %d %d", &name, &reads, &in, &writes, &out); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		i := slices.IndexFunc(got.Files, func(f fileLine) bool { return f.Path == filepath.Join(dir, name) })
		if i < 0 || got.Files[i].Ops != reads+writes || got.Files[i].Read != in || got.Files[i].Written != out {
			t.Errorf("%s of %+v", line, got.Files)
		}
		files++
	}
	// Three pipes' ends and two sockets, one of whose calls has five messages: 100 to 104 bytes each.
	sent, received, piped, taken := uint64(0), uint64(0), uint64(0), uint64(0)
	for _, f := range got.Files {
		switch f.Kind {
		case "socket":
			sent, received = sent+f.Written, received+f.Read
		case "pipe":
			if strings.HasPrefix(f.Path, "descriptor ") {
				piped, taken = piped+f.Written, taken+f.Read
			}
		}
	}
	const spliced = 20 * 4990
	if files != 4 || sent != 20*510 || received != sent || piped != 2*spliced+20*1000 || taken != 3*spliced+20*1000 {
		t.Errorf("%d files, %d bytes sent, %d received, %d into pipes, %d out of them", files, sent, received, piped, taken)
	}
}

// TestIOOpenedIn looks for the function of the program that opened a file, of a command that ends after some
// milliseconds. On a busy machine sliver may have no CPU while the command lives, so one of several runs has to.
func TestIOOpenedIn(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	prog, path := testprog.Build(t, "c/files", "O2"), filepath.Join(t.TempDir(), "mixed")
	var r result
	for range 10 {
		got := ioWatched(t, t.TempDir(), "\n", prog, "mixed", path, "50", "1000")
		shown := slivercmd(t, t.TempDir(), "io", "--", prog, "mixed", path, "50", "1000")
		shown.Stdin = strings.NewReader("\n")
		r = runCmd(t, shown)
		i := slices.IndexFunc(got.Files, func(f fileLine) bool { return f.Path == path })
		if i >= 0 && got.Files[i].Func == "opening" && regexp.MustCompile(`max  opened in +file\n`).MatchString(r.out) && regexp.MustCompile(` opening +\S*/mixed\n`).MatchString(r.out) {
			return
		}
	}
	t.Errorf("%+v", r)
}

// TestIOWithoutRights is a user without capabilities: one line says why, and /proc still has numbers.
func TestIOWithoutRights(t *testing.T) {
	out := shell(t, `
		U="setpriv --reuid 23456 --regid 23456 --clear-groups"
		$U $S io -- sh -c 'for i in 1 2 3 4 5; do head -c 100000 /dev/zero >> $D/x; done; exit 3' 2>&1
		echo "status $?"
		exit 0`)
	if strings.Count(out, "CAP_BPF") != 1 && strings.Count(out, "sliver:") != 1 || !strings.Contains(out, "shown is what /proc has") || !strings.Contains(out, "status 3") {
		t.Errorf("%s", out)
	}
}

func TestIOUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"give a process":               {"io"},
		"choose one":                   {"io", "-p", "1", "--", "true"},
		"a command goes after --":      {"io", "true"},
		`unknown rule "main"; rules: `: {"io", "-p", "1", "--rule", "main"},
		"rows: -1 is negative":         {"io", "-p", "1", "-n", "-1"},
	} {
		if r := sliver(t, t.TempDir(), args...); r.status != exitUsage || !strings.Contains(r.errors, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
