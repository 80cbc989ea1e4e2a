package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// Files that sliver writes are private to their user; a file that is replaced keeps its
// mode.
func TestModesOfOutputs(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	if err := os.WriteFile(filepath.Join(dir, "kept.pftrace"), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "200ms", "-o", "new.sliver", "-o", "new.pb.gz", "-o", "kept.pftrace")
	if r.status != 0 {
		t.Fatalf("%+v", r)
	}
	for _, c := range [][]string{{"export", "new.sliver", "-o", "later.pftrace"}, {"report", "new.sliver", "-o", "report.html"}} {
		if r := sliver(t, dir, c...); r.status != 0 {
			t.Fatalf("%v: %+v", c, r)
		}
	}
	for name, want := range map[string]os.FileMode{"new.sliver": 0o600, "new.pb.gz": 0o600, "later.pftrace": 0o600, "report.html": 0o600, "kept.pftrace": 0o640} {
		fi, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
	rest, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if len(rest) != 0 {
		t.Errorf("left: %q", rest)
	}
}

// A link that another user created at an output's path is not followed, even if the kernel
// would not protect it, as sliver reads links itself.
func TestLinksOfOthers(t *testing.T) {
	testprog.Need(t, "root")
	p := spin(t)
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	put := func() {
		t.Helper()
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put()
	sticky := filepath.Join(dir, "sticky")
	if err := os.Mkdir(sticky, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(sticky, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out.sliver", "out.pftrace", "chain.sliver"} {
		path, to := filepath.Join(sticky, name), victim
		if name == "chain.sliver" { // root's link, to another user's
			if err := os.Symlink("out.sliver", path); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := os.Symlink(to, path); err != nil {
				t.Fatal(err)
			}
			if err := os.Lchown(path, 12345, 12345); err != nil {
				t.Fatal(err)
			}
		}
		r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "100ms", "-o", path)
		if r.status != 1 || !strings.Contains(r.errors, "link of user 12345") || strings.Count(r.errors, "\n") != 1 {
			t.Errorf("%s: %+v", name, r)
		}
		if b, _ := os.ReadFile(victim); string(b) != "precious" {
			t.Fatalf("%s: the link was followed", name)
		}
		if fi, err := os.Lstat(path); err != nil || fi.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s: the link was replaced (%v)", name, err)
		}
	}
	// A link to another user's pipe.
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(sticky, "pipe.sliver")
	if err := os.Symlink(pipe, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "100ms", "-o", path); r.status != 1 || !strings.Contains(r.errors, "link of user 12345") {
		t.Errorf("a pipe: %+v", r)
	}
	// The user's own link is followed.
	own := filepath.Join(dir, "own.sliver")
	if err := os.Symlink("victim", own); err != nil {
		t.Fatal(err)
	}
	if r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "100ms", "-o", own); r.status != 0 {
		t.Errorf("the user's own link: %+v", r)
	}
	if b, _ := os.ReadFile(victim); string(b) == "precious" {
		t.Error("the user's own link was not followed")
	}
}

// A second recording to the same file is refused while the first one runs, also under the
// name of its second output. Names that sliver chooses are numbered.
func TestTwoRecordingsToOneFile(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	first := slivercmd(t, dir, "record", "-p", pidOf(p), "-i", "1ms", "-o", "one.sliver", "-o", "two.pftrace")
	var errs safeBuffer
	first.Stderr = &errs
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return grown(dir, ".*.partial", 3000) })
	for _, out := range []string{"one.sliver", "two.pftrace", "./one.sliver"} {
		if r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "100ms", "-o", out); r.status != 1 || !strings.Contains(r.errors, "another sliver is writing it") {
			t.Errorf("%s: %+v", out, r)
		}
	}
	// The files of a recording in progress are marked as such and not touched.
	if r := sliver(t, dir, "ls", "--left"); r.status != 0 || !strings.HasPrefix(r.out, "being written:\n") || strings.Count(r.out, ".partial") != 2 {
		t.Errorf("ls: %+v", r)
	}
	part, _ := filepath.Glob(filepath.Join(dir, ".one.sliver.*.partial"))
	if r := sliver(t, dir, "recover", part[0], "-o", "x.sliver"); r.status != 1 || !strings.Contains(r.errors, "its sliver is running") {
		t.Errorf("recover: %+v", r)
	}
	if err := first.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if rest, _ := filepath.Glob(filepath.Join(dir, ".*")); len(rest) != 0 {
		t.Errorf("left: %q", rest)
	}
	var two []*safeBuffer
	at := time.Now()
	for time.Since(at).Truncate(time.Second) == 0 && len(two) < 2 { // mostly in the same second
		c := slivercmd(t, dir, "record", "-p", pidOf(p), "-d", "300ms")
		b := &safeBuffer{}
		c.Stderr = b
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Wait(); err != nil {
				t.Errorf("%v: %s", err, b.String())
			}
		}()
		two = append(two, b)
	}
}

// Files left by a killed sliver are listed, recovered, and removed on request.
func TestPartialRecordings(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for _, out := range []string{"run.sliver", "run.pftrace"} {
		c := slivercmd(t, dir, "record", "-q", "-p", pidOf(p), "-i", "1ms", "-o", out)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return grown(dir, "."+out+".*.partial", 512) })
		c.Process.Kill()
		c.Wait()
	}
	free(t, p.PID)
	var all []left
	waitFor(t, func() bool { // stoppers keep its files open for a moment
		r := sliver(t, dir, "ls", "--left", "--json")
		if err := json.Unmarshal([]byte(r.out), &all); err != nil {
			t.Fatal(err, r)
		}
		return len(all) == 2 && !all[0].Writing && !all[1].Writing
	})
	if r := sliver(t, dir, "recover"); r.status != 2 || !strings.Contains(r.errors, all[0].Path) {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(filepath.Join(dir, "taken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		args := []string{"recover", "--remove", l.Path}
		if i == 1 { // the first one took the name
			if r := sliver(t, dir, args...); r.status != 1 || !strings.Contains(r.errors, "is there already") {
				t.Errorf("%+v", r)
			}
			args = append(args, "-o", "other.sliver")
		}
		if r := sliver(t, dir, args...); r.status != 0 || !strings.Contains(r.errors, "threads of spin") && !strings.Contains(r.errors, "1 thread ") {
			t.Errorf("%+v", r)
		}
		if _, err := os.Lstat(filepath.Join(dir, l.Path)); !os.IsNotExist(err) {
			t.Errorf("%s is still there", l.Path)
		}
	}
	for _, f := range []string{"run.sliver", "other.sliver"} {
		if r := sliver(t, dir, "report", f); r.status != 0 || !strings.Contains(r.out, "spin_0") && !strings.Contains(r.out, "spin") || strings.Contains(r.errors, "is truncated") {
			t.Errorf("%s: %+v", f, r)
		}
	}
}

// A heap dump that a killed sliver was writing is listed as one, not as a recording to recover.
func TestPartialHeapDump(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	c := slivercmd(t, dir, "hprof", "strip", "--rule", "shark", "-", "-o", "out.hprof")
	w, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Write([]byte("JAVA PROFILE 1.0.2\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	listed := func(writing bool) (r result) {
		waitFor(t, func() bool {
			var all []left
			r = sliver(t, dir, "ls", "--left", "--json")
			if err := json.Unmarshal([]byte(r.out), &all); err != nil {
				t.Fatal(err, r)
			}
			return len(all) == 1 && all[0].Kind == leftHeapDump && all[0].Writing == writing
		})
		return r
	}
	listed(true)
	c.Process.Kill()
	c.Wait()
	listed(false)
	if r := sliver(t, dir, "ls", "--left"); !strings.Contains(r.out, "heap dumps that are cut off") || strings.Contains(r.out, "recover") {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, dir, "recover"); r.status != 2 || !strings.Contains(r.errors, "none found") {
		t.Errorf("%+v", r)
	}
}

// If the disk of one output is full, the other outputs are written, and the error is
// reported.
func TestFullDiskOfOneOutput(t *testing.T) {
	testprog.Whole(t, "TestFullDisk and TestFullOutput have full disks")
	testprog.Need(t, "root")
	busy := spin(t)
	kitchen := testprog.Start(t, testprog.Build(t, "locks/kitchen", "O2"), "--seconds", "3600", "--wait-go")
	kitchen.Ready()
	kitchen.Go()
	for name, c := range map[string]struct {
		limit string
		p     *testprog.Proc
	}{"at once": {"16k", busy}, "while it records": {"64k", kitchen}} { // the stacks of the second fill the disk in seconds
		limit, p := c.limit, c.p
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			small := filepath.Join(dir, "small")
			if err := os.Mkdir(small, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size="+limit); err != nil {
				testprog.Lack(t, "root", "no file system can be mounted: "+err.Error())
			}
			t.Cleanup(func() { syscall.Unmount(small, syscall.MNT_DETACH) })
			r := sliver(t, dir, "record", "-p", pidOf(p), "-i", "1ms", "-o", "small/a.sliver", "-o", "good.pb.gz", "-o", "good.sliver")
			if r.status != 1 || !strings.Contains(r.errors, "the disk is full") {
				t.Errorf("%+v", r)
			}
			for _, f := range []string{"good.pb.gz", "good.sliver"} {
				if fi, err := os.Stat(filepath.Join(dir, f)); err != nil || fi.Size() == 0 {
					t.Errorf("%s: %v: %s", f, err, r.errors)
				}
			}
			if x := sliver(t, dir, "report", "good.sliver"); x.status != 0 || !strings.Contains(x.out, "spin") {
				t.Errorf("%+v", x)
			}
			// The same with the outputs in reverse order.
			r = sliver(t, dir, "record", "-p", pidOf(p), "-i", "1ms", "-d", "1s", "-o", "fine.sliver", "-o", "small/b.pftrace", "-o", "fine.pftrace")
			if _, err := os.Stat(filepath.Join(dir, "fine.pftrace")); err != nil || r.status != 0 && !strings.Contains(r.errors, "b.pftrace") {
				t.Errorf("%v: %+v", err, r)
			}
			if _, err := os.Stat(filepath.Join(dir, "fine.sliver")); err != nil {
				t.Errorf("%v: %+v", err, r)
			}
		})
	}
}

// Ctrl-C and the time limit end a query.
func TestSQLEnds(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	if r := sliver(t, dir, "record", "-q", "-p", pidOf(p), "-d", "100ms", "-o", "r.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	const forever = "with recursive r(n) as (select 1 union all select n+1 from r) select "
	if r := sliver(t, dir, "sql", "--timeout", "200ms", "r.sliver", forever+"sum(n) from r"); r.status != 1 || !strings.Contains(r.errors, "longer than 200ms; --timeout") {
		t.Errorf("%+v", r)
	}
	for _, what := range []string{"sum(n) from r", "n from r"} {
		c := slivercmd(t, dir, "sql", "--timeout", "0", "r.sliver", forever+what)
		var errs safeBuffer
		c.Stderr = &errs
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if what == "n from r" {
			if _, err := io.ReadFull(out, make([]byte, 1<<16)); err != nil {
				t.Fatal(err)
			}
		} else {
			waitFor(t, func() bool { return cpuTicks(t, c.Process.Pid) > 20 })
		}
		go io.Copy(io.Discard, out)
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if c.Wait(); c.ProcessState.ExitCode() != 1 || !strings.Contains(errs.String(), "ended by a signal") {
			t.Errorf("%s: %v: %s", what, c.ProcessState, errs.String())
		}
	}
}

// cpuTicks returns the CPU time of a process, in kernel ticks.
func cpuTicks(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	user, _ := strconv.Atoi(f[11])
	return user
}
