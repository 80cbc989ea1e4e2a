package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// database makes a cluster of PostgreSQL in dir. Its programs are run by the command as, for they refuse root.
func database(t *testing.T, dir string) (as []string, data string) {
	t.Helper()
	initdb, setpriv := testprog.Tool(t, "initdb"), testprog.Tool(t, "setpriv")
	if os.Geteuid() == 0 {
		u, err := user.Lookup("nobody")
		if err != nil {
			t.Skipf("root, and no user nobody to run postgres as: %v", err)
		}
		as = []string{setpriv, "--reuid", u.Uid, "--regid", u.Gid, "--clear-groups"}
		for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("chown", u.Uid+":"+u.Gid, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	data = filepath.Join(dir, "data")
	init := runAs(as, initdb, "-D", data, "-A", "trust", "-U", "me", "--no-sync", "--locale=C")
	init.Dir = dir
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	return as, data
}

// runAs is a program with arguments that the command as runs.
func runAs(as []string, argv ...string) *exec.Cmd {
	argv = append(slices.Clone(as), argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd
}

// TestPostgresUnderLoad records a server with the processes that it has and those that it starts: each is there
// once, below the server, with the functions of its work, and the clients see no error.
func TestPostgresUnderLoad(t *testing.T) {
	testprog.Whole(t, "TestIOFindsPostgres has the server, and TestFamily the processes")
	testprog.Need(t, "ptrace")
	postgres, pgbench := testprog.Tool(t, "postgres"), testprog.Tool(t, "pgbench")
	dir := t.TempDir()
	as, data := database(t, dir)
	server := runAs(as, postgres, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt) // it ends its connections and itself
		_ = server.Wait()
	})
	client := func(args ...string) *exec.Cmd {
		return runAs(as, append([]string{pgbench, "-h", dir, "-U", "me"}, append(args, "postgres")...)...)
	}
	for end := time.Now().Add(time.Minute); ; {
		out, err := client("-i", "-q", "-s", "1").CombinedOutput()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("pgbench -i: %v: %s\n%s", err, out, &said)
		}
	}
	const clients = 4
	load := client("-c", fmt.Sprint(clients), "-n", "-T", "300")
	var counted bytes.Buffer
	load.Stdout, load.Stderr = &counted, &counted
	// The first connections are there before the recording, the others come with it.
	early := client("-c", "1", "-n", "-S", "-T", "300")
	if err := early.Start(); err != nil {
		t.Fatal(err)
	}
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	rec := filepath.Join(dir, "db.sliver")
	r := sliver(t, dir, "record", "-p", fmt.Sprint(server.Process.Pid), "--children", "-d", "3s", "-i", "5ms", "-o", rec)
	for _, c := range []*exec.Cmd{load, early} {
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		_ = c.Wait() // by the signal
	}
	if r.status != 0 {
		t.Fatalf("%d: %s", r.status, r.errors)
	}
	if s := counted.String(); strings.Contains(s, "error") || strings.Contains(s, "aborted") {
		t.Errorf("pgbench: %s", s)
	}
	all := openSeveral(t, rec)
	working, parents := 0, map[int]bool{}
	for _, x := range all.All() {
		p := &x.Process
		if p.Comm != "postgres" {
			t.Errorf("%s (%d)", p.Comm, p.PID)
		}
		if p.PID != server.Process.Pid {
			parents[p.Parent] = true
		}
		// Of a connection that pgbench makes before its load there may be samples, too.
		if ended := x.End != nil && x.End.Gone > 0; !ended && ran(x, "PostgresMain") {
			working++
		}
	}
	if !parents[server.Process.Pid] || len(parents) != 1 {
		t.Errorf("parents %v, the server is %d", parents, server.Process.Pid)
	}
	if working != clients+1 {
		t.Errorf("%d processes work for clients, not %d:\n%s", working, clients+1, r.errors)
	}
	report := sliver(t, dir, "report", "--rows", "1000", rec)
	if report.status != 0 || !strings.Contains(report.out, "PostgresMain") {
		t.Errorf("%d: %s", report.status, report.out)
	}
}

// ran reports whether a function was on a stack of a process.
func ran(rec *trace.Recording, function string) (yes bool) {
	rec.EachLoc(func(k trace.LocKey) {
		for _, f := range rec.Symbols.Locs[k] {
			yes = yes || rec.Symbols.Funcs[f.Func].Name == function
		}
	})
	return yes
}
