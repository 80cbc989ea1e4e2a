package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/hungfs"
	"github.com/sliverprof/sliver/internal/testprog"
)

// endsWithin bounds the time from a signal to the end. On an idle machine it is a second; on a
// busy one, names are looked up for longer. Without the end at a signal, the waits of these
// tests take 90 s or have no end.
const endsWithin = 30 * time.Second

// ends sends a signal and returns how the program ended, within the time.
func ends(t *testing.T, cmd *exec.Cmd, sig syscall.Signal) (status int) {
	t.Helper()
	sent := time.Now()
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	took := time.Since(sent)
	t.Logf("%v ended it after %v: %v", sig, took.Round(time.Millisecond), cmd.ProcessState)
	if took > endsWithin {
		t.Errorf("%v: ended after %v", sig, took)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// deaf is a server that accepts connections and answers nothing. asked is closed when the
// first request has arrived.
func deaf(t *testing.T) (url string, asked chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked = make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			if n == 0 {
				go func() {
					_, _ = c.Read(make([]byte, 1))
					close(asked)
				}()
			}
		}
	}()
	return "http://" + l.Addr().String(), asked
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// fullPipe returns the end of a pipe that takes no more bytes.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 512))
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return w
}

// recording waits until a recording grows, also that of threads that sleep.
func recording(t *testing.T, dir string) {
	t.Helper()
	size := func() (n int64) {
		files, _ := filepath.Glob(filepath.Join(dir, ".*.partial"))
		for _, f := range files {
			if fi, err := os.Stat(f); err == nil {
				n += fi.Size()
			}
		}
		return n
	}
	waitFor(t, func() bool { return size() > 512 })
	from := size()
	waitFor(t, func() bool { return size() > from })
}

// letGo waits until the processes of a sliver that exited at once have detached from a target.
func letGo(t *testing.T, pid int) {
	t.Helper()
	waitFor(t, func() bool {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		return strings.Contains(string(b), "TracerPid:\t0\n")
	})
	free(t, pid)
}

// waiting reports whether all threads of a command sleep, over some looks.
func waiting(cmd *exec.Cmd) bool {
	dir := "/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task/"
	for range 20 {
		tids, _ := os.ReadDir(dir)
		for _, tid := range tids {
			b, _ := os.ReadFile(dir + tid.Name() + "/stat")
			if _, state, _ := strings.Cut(string(b), ") "); strings.HasPrefix(state, "R") {
				return false
			}
		}
		<-time.After(5 * time.Millisecond)
	}
	return true
}

// A signal that comes twice, as timeout sends it to the program and to its group, is logged once.
func TestWatchSignalTwice(t *testing.T) {
	var logged bytes.Buffer
	canceled := 0
	x := &ender{stderr: io.Discard, stays: true} // which never exits
	for range 2 {
		x.watching(syscall.SIGTERM, func() { canceled++ }, slog.New(slog.NewTextHandler(&logged, nil)))
	}
	if n := strings.Count(logged.String(), "ended by a signal"); n != 1 || canceled != 1 {
		t.Errorf("logged %d times, canceled %d times:\n%s", n, canceled, logged.String())
	}
}

// A reader that does not read, a server that does not answer and a command that goes on do
// not keep sliver from ending at a signal, and cost no finished output.
func TestSignalsWhileItWaits(t *testing.T) {
	testprog.Whole(t, "TestInterruptTwice has the signals")
	p := spin(t)
	start := func(t *testing.T, dir string, args ...string) *exec.Cmd {
		t.Helper()
		cmd := slivercmd(t, dir, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	recorded := func(t *testing.T, dir string) {
		t.Helper()
		if r := sliver(t, dir, "report", "r.sliver"); r.status != 0 {
			t.Errorf("the recording: %+v", r)
		}
	}
	t.Run("output", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mkfifo(filepath.Join(dir, "pipe.sliver"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := start(t, dir, "record", "-q", "-p", pidOf(p), "-o", "r.sliver", "-o", "pipe.sliver")
		growing(t, dir)
		if s := ends(t, cmd, syscall.SIGINT); s != 128+int(syscall.SIGINT) {
			t.Errorf("status %d", s)
		}
		recorded(t, dir)
		letGo(t, p.PID)
	})
	t.Run("second signal", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mkfifo(filepath.Join(dir, "pipe.sliver"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := start(t, dir, "record", "-q", "-p", pidOf(p), "-d", "200ms", "-o", "r.sliver", "-o", "pipe.sliver")
		waitFor(t, func() bool { _, err := os.Stat(filepath.Join(dir, "r.sliver")); return err == nil })
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ends(t, cmd, syscall.SIGINT)
		recorded(t, dir)
	})
	t.Run("server of names", func(t *testing.T) {
		dir := t.TempDir()
		url, asked := deaf(t)
		t.Setenv("DEBUGINFOD_URLS", url)
		// A few percent of the samples are in the vDSO, which has a build ID and no debug file here.
		cmd := start(t, dir, "record", "-q", "-p", pidOf(p), "-d", "1s", "-i", "1ms", "--max-overhead", "0", "--debuginfod", "--no-symbol-cache", "-o", "r.sliver")
		waitFor(t, func() bool { return isClosed(asked) })
		if s := ends(t, cmd, syscall.SIGTERM); s != 0 {
			t.Errorf("status %d", s)
		}
		recorded(t, dir)
	})
	t.Run("backend", func(t *testing.T) {
		dir := t.TempDir()
		url, asked := deaf(t)
		cmd := start(t, dir, "record", "-p", pidOf(p), "--otlp", url, "--window", "1s", "--spool", filepath.Join(dir, "spool"), "-o", "r.sliver")
		waitFor(t, func() bool { return isClosed(asked) })
		if s := ends(t, cmd, syscall.SIGTERM); s != 0 {
			t.Errorf("status %d", s)
		}
		recorded(t, dir)
		if left, _ := filepath.Glob(filepath.Join(dir, "spool", "*")); len(left) == 0 {
			t.Error("no window waits on disk")
		}
	})
	t.Run("command", func(t *testing.T) {
		dir := t.TempDir()
		cmd := start(t, dir, "record", "-q", "-o", "r.sliver", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000")
		pid := 0
		waitFor(t, func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, "pid"))
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			return pid > 0
		})
		recording(t, dir)
		defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
		ends(t, cmd, syscall.SIGTERM)
		recorded(t, dir)
		letGo(t, pid)
	})
	t.Run("standard output", func(t *testing.T) {
		dir := t.TempDir()
		if r := sliver(t, dir, "record", "-q", "-p", pidOf(p), "-d", "200ms", "-o", "r.sliver"); r.status != 0 {
			t.Fatalf("%+v", r)
		}
		cmd := slivercmd(t, dir, "sql", "r.sliver", "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) select i from n")
		cmd.Stdout = fullPipe(t)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return waiting(cmd) })
		ends(t, cmd, syscall.SIGINT)
	})
	t.Run("standard error", func(t *testing.T) {
		dir := t.TempDir()
		cmd := slivercmd(t, dir, "watch", "-p", pidOf(p), "--no-triggers", "--recorder", "deaf", "--dir", dir)
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+dir)
		cmd.Stderr = fullPipe(t)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return waiting(cmd) })
		ends(t, cmd, syscall.SIGTERM)
		letGo(t, p.PID)
	})
}

// A target that waits for a dead file system, in a state that no signal ends, does not keep
// sliver from ending either.
func TestSignalsWithHungTarget(t *testing.T) {
	testprog.Need(t, "ptrace", "fuse")
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	fs := hungfs.Mount(t, map[string][]byte{"file": []byte("content")})
	fs.Hang("open")
	t.Cleanup(fs.Resume)
	hung := testprog.StartCmd(t, exec.Command("cat", filepath.Join(fs.Dir, "file")))
	fs.Held()
	for _, args := range [][]string{{"record", "-q", "-p", pidOf(hung), "-o", "r.sliver"}, {"watch", "-p", pidOf(hung), "--no-triggers", "--recorder", "hung", "--dir", "."}} {
		dir := t.TempDir()
		cmd := slivercmd(t, dir, args...)
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if args[0] == "record" {
			recording(t, dir)
		} else {
			waitFor(t, func() bool { return waiting(cmd) })
		}
		ends(t, cmd, syscall.SIGINT)
	}
	fs.Resume()
}
