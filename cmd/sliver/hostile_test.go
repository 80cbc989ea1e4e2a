package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/hungfs"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
)

// nasty starts a program of testdata/targets/hostile from its own folder.
func nasty(t *testing.T, variant string, args ...string) (p *testprog.Proc, path string) {
	t.Helper()
	testprog.Need(t, "ptrace")
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	built := testprog.Build(t, "hostile/nasty", variant)
	b, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), filepath.Base(built))
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	p = testprog.Start(t, path, append(args, "--wait-go")...)
	p.Ready()
	p.Go()
	return p, path
}

// opened counts opens of files with inotify(7), which does not count opens with O_PATH.
type opened struct{ fd int }

func watchOpens(t *testing.T, paths ...string) *opened {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, p := range paths {
		if _, err := unix.InotifyAddWatch(fd, p, unix.IN_OPEN); err != nil {
			t.Fatalf("watch %s: %v", p, err)
		}
	}
	return &opened{fd}
}

func (o *opened) count(t *testing.T) (n int) {
	t.Helper()
	b := make([]byte, 64<<10)
	for {
		got, err := unix.Read(o.fd, b)
		if err == unix.EAGAIN {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		for off := 0; off < got; n++ {
			off += unix.SizeofInotifyEvent + int(b[off+12]) + int(b[off+13])<<8
		}
	}
}

// random makes a device of random bytes that no other program on the machine knows, and so opens.
func random(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "random")
	err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 9)))
	if err == nil {
		var f *os.File
		if f, err = os.Open(path); err == nil { // not if devices are not allowed there
			f.Close()
		}
	}
	if err != nil {
		testprog.Lack(t, "root", "no device can be made: "+err.Error())
	}
	return path
}

// Next to the program are pipes, devices, terminals and links to them with the names of
// debug files. None is opened, no terminal becomes the controlling one, and the recording
// does not differ.
func TestHostileDebugFiles(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	for _, c := range []struct{ name, kind string }{{"pipe", ""}, {"terminal", slave.Name()}, {"device", random(t)}, {"kernel", "/proc/kmsg"}} {
		t.Run(c.name, func(t *testing.T) {
			p, path := nasty(t, "debuglink")
			dir, link := filepath.Dir(path), filepath.Base(path)+".debug"
			if err := os.Mkdir(filepath.Join(dir, ".debug"), 0o755); err != nil {
				t.Fatal(err)
			}
			var bait []string
			for _, place := range []string{filepath.Join(dir, link), filepath.Join(dir, ".debug", link)} {
				if c.kind == "" {
					err = unix.Mkfifo(place, 0o666)
					bait = append(bait, place)
				} else {
					err = os.Symlink(c.kind, place)
					bait = []string{c.kind}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			opens := watchOpens(t, bait...)
			opens.count(t)
			// A session without a terminal, as for a service.
			for _, args := range [][]string{{"record", "-q", "-p", pidOf(p), "-d", "300ms", "-o", "r.sliver"}, {"stack", pidOf(p)}} {
				cmd := slivercmd(t, t.TempDir(), args...)
				cmd.SysProcAttr.Setsid = true
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %v: %s", args, err, out)
				}
				if n := opens.count(t); n != 0 {
					t.Errorf("%s: what was beside the program was opened %d times", args[0], n)
				}
			}
			free(t, p.PID)
		})
	}
}

// Whatever the names of a process and its threads, sliver's output moves no cursor and
// starts no line.
func TestHostileNames(t *testing.T) {
	testprog.Whole(t, "TestHostileNames of the exporters have such names")
	p, _ := nasty(t, "O2", "--name")
	dir := t.TempDir()
	for _, args := range [][]string{
		{"record", "-p", pidOf(p), "-d", "300ms", "-o", "r.sliver"},
		{"record", "-p", pidOf(p), "-d", "100ms"}, // the file is named after the process
		{"record", "-p", pidOf(p), "-t", "none-such"},
		{"threads", pidOf(p)}, {"stack", pidOf(p)}, {"top", "--once", pidOf(p)},
		{"report", "r.sliver"}, {"export", "-t", "none-such", "r.sliver", "-o", "x.pftrace"},
		{"sql", "r.sliver", "select name from threads"}, {"view", "--none", "r.sliver"},
		{"doctor", pidOf(p)}, {"report", "--html", "r.sliver"}, {"export", "r.sliver", "-o", "-", "--format", "collapsed"},
		{"record", "-p", pidOf(p) + "," + strconv.Itoa(os.Getpid()), "-d", "200ms", "-o", "two.sliver"}, {"report", "two.sliver"},
		{"heap", pidOf(p)}, {"trace", "-p", pidOf(p), "-f", "none_such"}, {"io", "-p", pidOf(p), "-d", "100ms"},
	} {
		r := sliver(t, dir, args...)
		harmless(t, args, r.out+r.errors)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	w := slivercmd(t, dir, "watch", "-p", pidOf(p), "--no-triggers", "--dir", dir)
	var log safeBuffer
	w.Stderr = &log
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	var all []control.Status
	status(t, dir, func(now []control.Status) bool {
		all = now
		return len(now) == 1 && len(now[0].Targets) == 1 && now[0].Targets[0].Samples > 10
	})
	for _, args := range [][]string{{"ls"}, {"ls", dir}, {"dump"}, {"dump", all[0].Name}, {"dump", "none-such"}, {"dump", "-o", "d.sliver"}, {"recover", "none-such"}} {
		r := sliver(t, dir, args...)
		harmless(t, args, r.out+r.errors)
	}
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil {
		t.Errorf("watch: %v: %s", err, log.String())
	}
	harmless(t, "the log of watch", log.String())
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) < 2 {
		t.Errorf("files: %q", files)
	}
}

// harmless reports text without characters that control a terminal, and not empty.
func harmless(t *testing.T, what any, text string) {
	t.Helper()
	if text == "" {
		t.Errorf("%v: nothing was printed", what)
	}
	for i, s := range text {
		// Bytes that are not valid runes are also allowed where column widths are
		// computed.
		if s != '\n' && s != '\t' && (s < ' ' || s >= 0x7f && s < 0xa0) {
			t.Errorf("%v: control character %#x at %d: %q", what, s, i, text[max(0, i-200):min(len(text), i+200)])
			break
		}
	}
	if !utf8.ValidString(text) {
		t.Errorf("%v: no UTF-8: %.500q", what, text)
	}
	// A line feed of a name would start a line with the rest of the name.
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "?[31mA") || strings.HasPrefix(line, "[31mA") {
			t.Errorf("%v: a name starts a line: %q", what, line)
		}
	}
}

// startOn starts a program of a file system that this process serves. A shell executes it: the
// Go runtime holds a P until the new program runs, which a garbage collection waits for, and the
// server for that.
func startOn(t *testing.T, path string) *testprog.Proc {
	t.Helper()
	return testprog.Start(t, "/bin/sh", "-c", `exec "$0" --wait-go`, path)
}

// The file system of a program's code hangs: a recording is still made, and a signal ends
// it.
func TestHungFilesRecord(t *testing.T) {
	testprog.Whole(t, "TestStuck of package session has threads that wait for such files")
	testprog.Need(t, "ptrace", "fuse")
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(testprog.Build(t, "hostile/nasty", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	fs := hungfs.Mount(t, map[string][]byte{"nasty": b})
	p := startOn(t, filepath.Join(fs.Dir, "nasty"))
	p.Ready()
	p.Go()
	fs.Hang("all")
	t.Cleanup(fs.Resume)
	r := sliver(t, t.TempDir(), "record", "-p", pidOf(p), "-d", "2s", "-o", "r.sliver")
	fs.Held()
	if r.status != 0 || !strings.Contains(r.errors, "recorded 2 threads of nasty") {
		t.Errorf("%+v", r)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		cmd := slivercmd(t, dir, "record", "-p", pidOf(p), "-o", "r.sliver")
		var errs safeBuffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return recordedSome(dir) })
		// Before the recording has started, the signal ends sliver itself.
		status := ends(t, cmd, sig)
		if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); status != 0 && !(ok && w.Signaled() && w.Signal() == sig) {
			t.Fatalf("%v: %v: %s", sig, cmd.ProcessState, errs.String())
		}
	}
	// Its helper processes wait for the hung file system, as would any process that
	// accesses it.
	free(t, p.PID)
}

// recordedSome reports whether a recording in dir has more than its header.
func recordedSome(dir string) bool { return grown(dir, ".*.partial", 512) }

// grown reports whether a file in dir that matches pattern is larger than most bytes.
func grown(dir, pattern string, most int64) bool {
	files, _ := filepath.Glob(filepath.Join(dir, pattern))
	for _, f := range files {
		if fi, err := os.Stat(f); err == nil && fi.Size() > most {
			return true
		}
	}
	return false
}

// One of two watched programs is on a hung file system. The other one is recorded and
// dumped, and SIGTERM ends the recorder, which reports the hang.
func TestHungFilesWatch(t *testing.T) {
	testprog.Need(t, "ptrace", "fuse")
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	b, err := os.ReadFile(testprog.Build(t, "hostile/nasty", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	fs := hungfs.Mount(t, map[string][]byte{"nasty-hung": b})
	hung := startOn(t, filepath.Join(fs.Dir, "nasty-hung"))
	hung.Ready()
	hung.Go()
	fs.Hang("all")
	t.Cleanup(fs.Resume)
	dir := t.TempDir()
	w := slivercmd(t, dir, "watch", "--name", "nasty*", "--no-triggers", "--as", "both", "--dir", dir)
	var errs safeBuffer
	w.Stderr = &errs
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	fs.Held()
	fine, _ := nasty(t, "O2") // starts when the recorder already waits
	var r result
	waitFor(t, func() bool {
		r = sliver(t, dir, "dump", pidOf(fine), "-o", "fine.sliver")
		return r.status == 0
	})
	if r := sliver(t, dir, "report", "fine.sliver"); r.status != 0 || !strings.Contains(r.out, "nasty") {
		t.Errorf("%+v", r)
	}
	if s := ends(t, w, syscall.SIGTERM); s != 0 {
		t.Errorf("status %d: %s", s, errs.String())
	}
	if !strings.Contains(errs.String(), "signal=SIGTERM") {
		t.Errorf("the signal is not told: %s", errs.String())
	}
	free(t, hung.PID)
	free(t, fine.PID)
}

// A perf map with millions of entries, twice as many as are read, with invalid lines, or with a hole of a hundred
// gigabytes costs a bounded recording and bounded memory, and is reported.
func TestHostilePerfMaps(t *testing.T) {
	testprog.Whole(t, "TestPerfMapMemory of package symbol has a map of that size")
	for kind, says := range map[string]string{"lines": "bytes ignored", "junk": "1000000 invalid lines ignored", "sparse": ""} {
		t.Run(kind, func(t *testing.T) {
			if kind == "junk" {
				testprog.Whole(t, "a table of too many valid lines")
			}
			p, _ := nasty(t, "O2", "--perf-map", kind)
			t.Cleanup(func() { os.Remove(fmt.Sprintf("/tmp/perf-%d.map", p.PID)) })
			dir := t.TempDir()
			cmd := slivercmd(t, dir, "record", "-p", pidOf(p), "-d", "500ms", "-o", "r.sliver")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if !strings.Contains(string(out), says) {
				t.Errorf("it does not say %q: %s", says, out)
			}
			fi, err := os.Stat(filepath.Join(dir, "r.sliver"))
			if err != nil {
				t.Fatal(err)
			}
			kB := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
			t.Logf("%d kB of recording, %d MB of memory", fi.Size()/1000, kB>>10)
			if fi.Size() > 64<<20 || kB > 600<<10 {
				t.Errorf("%d bytes of recording, %d kB of memory", fi.Size(), kB)
			}
		})
	}
}

// A small compressed trace that becomes gigabytes is refused on the way.
func TestImportBomb(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "bomb.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewWriterLevel(f, gzip.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	blanks := bytes.Repeat([]byte(" "), 1<<20)
	_, err = z.Write([]byte("["))
	for range 256 {
		if err == nil {
			_, err = z.Write(blanks)
		}
	}
	if err == nil {
		_, err = z.Write([]byte("]"))
	}
	for _, c := range []io.Closer{z, f} {
		if e := c.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(f.Name()); err != nil || fi.Size() > 512<<10 {
		t.Fatalf("%v, %v", fi.Size(), err)
	}
	r := sliver(t, dir, "report", "bomb.json.gz")
	if r.status != 1 || !strings.Contains(r.errors, "more than 256 to one is not believed") {
		t.Errorf("%+v", r)
	}
}
