package agree

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/oneshot"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// The waits of real programs match their own tools.

// glance takes one look at all threads of a process.
func glance(t *testing.T, pid int) *stacks.Snapshot {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	snaps, _, err := oneshot.Take([]*target.Process{p}, oneshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return snaps[0]
}

func text(s *stacks.Snapshot) string {
	var b strings.Builder
	if err := s.WriteText(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

// on reports whether a function is on the thread's stack.
func on(th *stacks.Thread, function string) bool {
	return slices.ContainsFunc(th.Frames, func(f stacks.Frame) bool { return f.Func == function })
}

// A PostgreSQL session waits for a row that another one has changed. Natively it sleeps
// on its latch; its functions give the reason, as pg_stat_activity does.
func TestPostgresWaits(t *testing.T) {
	testprog.Need(t, "ptrace", "postgres", "initdb", "psql")
	_, psql := servePostgres(t)
	ask := func(sql string) string {
		t.Helper()
		out, err := psql("-c", sql).Output()
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return strings.TrimSpace(string(out))
	}
	ask("CREATE TABLE t(id int PRIMARY KEY, v int)")
	ask("INSERT INTO t VALUES (1, 0)")
	session := func(sql string) (backend int) {
		t.Helper()
		p := launch(t, psql("-f", write(t, "session.sql", "SELECT pg_backend_pid();\n"+sql)))
		line := p.Line("")
		backend, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("psql printed %q for its backend's PID", line)
		}
		return backend
	}
	const update = "UPDATE t SET v = v + 1 WHERE id = 1;\n"
	first := session("BEGIN;\n" + update + "\\! exec sleep 600\n") // idle in its transaction
	eventually(t, "the first session has its row", func() bool {
		return ask(fmt.Sprintf("SELECT state FROM pg_stat_activity WHERE pid = %d", first)) == "idle in transaction"
	})
	second := session(update)
	event := func(pid int) string {
		t.Helper()
		return ask(fmt.Sprintf("SELECT wait_event_type || '/' || wait_event FROM pg_stat_activity WHERE pid = %d", pid))
	}
	eventually(t, "the second session waits for it", func() bool { return event(second) == "Lock/transactionid" })
	if by := ask(fmt.Sprintf("SELECT pg_blocking_pids(%d)", second)); by != fmt.Sprintf("{%d}", first) {
		t.Fatalf("PostgreSQL says that %s blocks it, not %d", by, first)
	}
	// Each wait event of PostgreSQL has specific functions.
	for pid, want := range map[int][2]string{
		second: {"Lock/transactionid", "ProcSleep"},
		first:  {"Client/ClientRead", "secure_read"},
	} {
		s := glance(t, pid)
		th := &s.Threads[0]
		if e := event(pid); e != want[0] {
			t.Errorf("%d: PostgreSQL says %s, want %s", pid, e, want[0])
		}
		if len(s.Threads) != 1 || th.State != stack.StateBlocked || th.Wait == nil || th.Wait.Kind != kind.WaitPoll ||
			!strings.HasPrefix(th.Wait.Call, "epoll_") || !strings.Contains(th.Wait.Args, "epoll of ") || !on(th, want[1]) || th.Truncated != stack.ReasonNone {
			t.Errorf("%s does not read as that:\n%s", want[0], text(s))
		}
	}
	// All others, which wait for work or for a client, wait natively too.
	rows := strings.Fields(ask("SELECT pid || '/' || wait_event_type FROM pg_stat_activity WHERE wait_event_type IN ('Activity', 'Client', 'Lock')"))
	if len(rows) < 4 {
		t.Errorf("PostgreSQL lists %v", rows)
	}
	for _, row := range rows {
		number, typ, _ := strings.Cut(row, "/")
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "process "+row+" waits", func() bool {
			th := &glance(t, pid).Threads[0]
			return th.State == stack.StateBlocked && th.Wait != nil && (th.Wait.Kind == kind.WaitPoll || typ != "Activity" && th.Wait.Kind == kind.WaitSocket)
		})
	}
	if got := ask(fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE pid = %d AND NOT granted AND locktype = 'transactionid'", second)); got != "1" {
		t.Errorf("pg_locks has %s ungranted locks of the waiting session", got)
	}
}

// Redis waits for its clients: as many as are in its epoll set, apart from its listening
// socket and its pipe. Its other threads wait for jobs.
func TestRedisWaits(t *testing.T) {
	testprog.Need(t, "ptrace", "redis", "redis-cli")
	port := freePort(t)
	p := launch(t, exec.Command(testprog.Tool(t, "redis"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder(t)))
	listens(t, p, port)
	cli := func(args ...string) *exec.Cmd {
		return exec.Command(testprog.Tool(t, "redis-cli"), append([]string{"-p", port}, args...)...)
	}
	clients := func() (n int, blocked bool) {
		t.Helper()
		out, err := cli("client", "list").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			if strings.Contains(line, "cmd=client") {
				continue // this one itself
			}
			n++
			blocked = blocked || strings.Contains(line, "flags=b") && strings.Contains(line, "cmd=blpop")
		}
		return n, blocked
	}
	// epoll returns how many descriptors the main thread waits for.
	epoll := func() (n int, s *stacks.Snapshot) {
		t.Helper()
		s = glance(t, p.PID)
		th := s.Thread(stack.TID(p.PID))
		if th == nil || th.Wait == nil || th.Wait.Kind != kind.WaitPoll || !strings.HasPrefix(th.Wait.Call, "epoll_") {
			return -1, s
		}
		_, of, _ := strings.Cut(th.Wait.Args, "epoll of ")
		of, _, _ = strings.Cut(of, ",")
		n, err := strconv.Atoi(of)
		if err != nil {
			t.Fatalf("%q: %v", th.Wait.Args, err)
		}
		return n, s
	}
	settled := func(want int) (n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("redis has %d clients", want), func() bool { c, _ := clients(); return c == want })
		var s *stacks.Snapshot
		last := -2
		eventually(t, "redis waits in epoll", func() bool { // the same twice: the client that asked has disconnected
			last = n
			n, s = epoll()
			return n >= 0 && n == last
		})
		if th := s.Thread(stack.TID(p.PID)); th.State != stack.StateBlocked || !on(th, "aeMain") || th.Wait.Timeout <= 0 {
			t.Errorf("it does not read as redis' event loop:\n%s", text(s))
		}
		jobs := 0
		for i := range s.Threads {
			th := &s.Threads[i]
			if strings.HasPrefix(th.Name, "bio_") {
				jobs++
				if th.Wait == nil || th.Wait.Lock == nil || th.Wait.Lock.Kind != kind.LockCond || th.Wait.Lock.Mutex == 0 || !on(th, "bioProcessBackgroundJobs") {
					t.Errorf("thread %s does not wait for jobs:\n%s", th.Name, text(s))
				}
			}
		}
		if jobs != 3 {
			t.Errorf("%d threads for jobs", jobs)
		}
		return n
	}
	alone := settled(0)
	for range 3 {
		launch(t, cli("blpop", "nosuch", "0"))
	}
	eventually(t, "redis-cli says that clients are blocked", func() bool { n, b := clients(); return n == 3 && b })
	if n := settled(3); n != alone+3 {
		t.Errorf("epoll of %d without clients and of %d with 3", alone, n)
	}
}

// go build waits for the compilers that it has started.
func TestGoBuildWaits(t *testing.T) {
	testprog.Need(t, "ptrace", "go")
	dir := folder(t)
	slow := dir + "/slow"
	if err := os.WriteFile(slow, []byte("#!/bin/sh\ncase $2 in -V*) exec \"$@\" ;; esac\ntouch \"$0.begun\"\nread line <\"$0.pipe\"\nexec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfifo", slow+".pipe").CombinedOutput(); err != nil {
		t.Skipf("mkfifo: %v %s", err, out)
	}
	for name, content := range map[string]string{"go.mod": "module x\n", "x.go": "package x\n"} {
		if err := os.WriteFile(dir+"/"+name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(testprog.Tool(t, "go"), "build", "-p", "1", "-toolexec", slow, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOCACHE="+folder(t))
	p := launch(t, cmd)
	eventually(t, "go build runs a tool", func() bool {
		select {
		case <-p.Exited():
			t.Fatalf("go build ended: %q %q", p.Output(), p.Errors())
		default:
		}
		_, err := os.Stat(slow + ".begun")
		return err == nil
	})
	child, ok := find(func(q process) bool { return q.parent == p.PID && q.name == "slow" })
	if !ok {
		t.Fatal("no tool runs below go build")
	}
	eventually(t, "go build waits for its tool", func() bool {
		s := glance(t, p.PID)
		return slices.ContainsFunc(s.Threads, func(th stacks.Thread) bool {
			return th.State == stack.StateBlocked && th.Wait != nil && th.Wait.Kind == kind.WaitChild && th.Wait.Child == child &&
				strings.Contains(th.Wait.Args, strconv.Itoa(child))
		})
	})
	// The tool in turn waits for input.
	eventually(t, "the tool waits for its pipe", func() bool {
		th := &glance(t, child).Threads[0]
		return th.Wait != nil && strings.HasPrefix(th.Wait.Call, "open") && th.Wait.File == slow+".pipe"
	})
}

// Python threads that all compute: all but one wait for the interpreter's lock.
func TestPythonLock(t *testing.T) {
	testprog.Need(t, "ptrace", "python3")
	const threads = 4
	p := launch(t, exec.Command(testprog.Tool(t, "python3"), write(t, "gil.py", fmt.Sprintf(`import threading, sys
def spin():
    n = 0
    while True:
        n += 1
if hasattr(sys, "_is_gil_enabled") and not sys._is_gil_enabled():
    print("free", flush=True)
for _ in range(%d):
    threading.Thread(target=spin, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
`, threads))))
	p.Line("ready")
	if slices.Contains(p.Output(), "free") {
		t.Skip("this Python has no lock for all")
	}
	waits, right, free, looks := 0, 0, 0, 15
	addr := uint64(0)
	for range looks {
		s := glance(t, p.PID)
		for i := range s.Threads {
			th := &s.Threads[i]
			if !on(th, "spin") && !on(th, "thread_run") {
				continue // the main thread
			}
			if th.State != stack.StateBlocked || th.Wait == nil || th.Wait.Lock == nil {
				free++ // it runs Python, or is about to
				continue
			}
			waits++
			l := th.Wait.Lock
			if l.Kind == kind.LockGIL && addr == 0 {
				addr = l.Addr
			}
			h := l.Holder
			if l.Kind == kind.LockGIL && l.Addr == addr && h.TID != th.TID && (h.TID != 0 && h.By == event.KnownByRuntime || h.Why != "") ||
				l.Kind == kind.LockMutex { // the mutex inside it, held for a moment
				right++
			} else {
				t.Logf("%s: %d %s", l, h.TID, h.Why)
			}
		}
	}
	t.Logf("%d looks: %d waits for the lock, %d read as that; %d threads were not at it", looks, waits, right, free)
	// Threads are not observed at the same moment: more than one may have held the lock
	// during one look.
	if waits < looks || right*100 < waits*95 || free > 2*looks || addr == 0 {
		t.Errorf("%d looks: %d waits for the lock, %d read as that; %d threads were not at it", looks, waits, right, free)
	}
}
