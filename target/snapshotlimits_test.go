package target

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// A limit that the kernel sets a process, by its file in control groups of version 1 and 2.
type groupLimit struct{ controller, v1, v2 string }

var (
	limitTasks  = groupLimit{"pids", "pids.max", "pids.max"}
	limitMemory = groupLimit{"memory", "memory.limit_in_bytes", "memory.max"}
)

// limited makes a control group with a limit. It returns its folder and the limit's file.
func limited(t *testing.T, l groupLimit, value int64) (dir, file string) {
	t.Helper()
	name := fmt.Sprintf("sliver-test-%d", os.Getpid())
	var errs []error
	for _, c := range []struct{ root, file string }{{"/sys/fs/cgroup/" + l.controller, l.v1}, {"/sys/fs/cgroup", l.v2}, {"/sys/fs/cgroup/unified", l.v2}} {
		dir, err := testprog.NewGroup(c.root, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(fmt.Sprint(value)), 0o644); err != nil {
			errs = append(errs, err, os.Remove(dir))
			continue
		}
		t.Cleanup(func() { eventually(t, "the group is empty", func() bool { return os.Remove(dir) == nil }) })
		return dir, filepath.Join(dir, c.file)
	}
	need(t, "cgroup", fmt.Sprintf("no control group with a limit of %s can be made: %v", l.controller, errors.Join(errs...)))
	return "", ""
}

// in starts a program in a control group.
func in(t *testing.T, dir, bin string, args ...string) *testTarget {
	t.Helper()
	return start(t, "/bin/sh", append([]string{"-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, dir, bin}, args...)...)
}

// refused holds that the kernel refused the copy with errno, in one line, and that the process is whole.
func refused(t *testing.T, prog *testTarget, err error, errno unix.Errno) {
	t.Helper()
	var c *CloneError
	if !errors.As(err, &c) || !errors.Is(err, errno) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), errno.Error()) {
		t.Errorf("%v, want a CloneError of %v in one line", err, errno)
	}
	untraced(t, prog.pid())
	for _, ch := range children(t, prog.pid()) {
		if ch.Comm == "spin" || ch.State == 'Z' && ch.Comm == "copied" {
			t.Errorf("a child is left: %+v", ch)
		}
	}
}

// A process that may have no more processes is not copied; once it may, it is.
func TestSnapshotPidsMax(t *testing.T) {
	dir, file := limited(t, limitTasks, 3)
	prog := in(t, dir, build(t, "testdata/spin.c"), "2") // three threads
	prog.line()
	p := openProcess(t, prog.pid())
	for range rounds(3, 100) {
		_, err := p.Snapshot(SnapshotOptions{StopFor: 10e9})
		refused(t, prog, err, unix.EAGAIN)
	}
	if err := os.WriteFile(file, []byte("4"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
		t.Error(err)
	}
	if n := len(children(t, prog.pid())); n != 0 {
		t.Errorf("%d children are left", n)
	}
}

// strict sets vm.overcommit_memory to 2, such that room bytes more than now can be reserved,
// for the time that f takes. A helper restores both settings, also if this process is killed.
func strict(t *testing.T, room uint64, f func()) {
	t.Helper()
	const mode, ratio = "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/overcommit_ratio"
	was, err1 := os.ReadFile(mode)
	wasRatio, err2 := os.ReadFile(ratio)
	if err := errors.Join(err1, err2); err != nil {
		need(t, "overcommit", err.Error())
	}
	percent := (meminfo(t, "Committed_AS")+room)*100/meminfo(t, "MemTotal") + 1
	guard := exec.Command("/bin/sh", "-c", `trap "" INT TERM HUP QUIT PIPE
echo "$3" >"$2" && echo 2 >"$1" && echo set
read line
echo "$4" >"$1"; echo "$5" >"$2"`, "sh", mode, ratio, fmt.Sprint(percent), string(bytes.TrimSpace(was)), string(bytes.TrimSpace(wasRatio)))
	in, err := guard.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := guard.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	restored := func() {
		in.Close()
		if err := guard.Wait(); err != nil {
			t.Error(err)
		}
		if now, err := os.ReadFile(mode); err != nil || !bytes.Equal(now, was) {
			t.Errorf("%s is %q after the test, was %q, %v", mode, now, was, err)
		}
		if now, err := os.ReadFile(ratio); err != nil || !bytes.Equal(now, wasRatio) {
			t.Errorf("%s is %q after the test, was %q, %v", ratio, now, wasRatio, err)
		}
	}
	said := make([]byte, 16)
	if n, err := io.ReadAtLeast(out, said, len("set\n")); err != nil {
		in.Close()
		_ = guard.Wait()
		need(t, "overcommit", fmt.Sprintf("%s cannot be set: %q, %v", mode, said[:n], err))
	}
	defer restored()
	f()
}

// meminfo reads a line of /proc/meminfo, in bytes.
func meminfo(t *testing.T, name string) uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name+":" {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("/proc/meminfo has no %s", name)
	return 0
}

// Where the kernel promises no more memory than it has, a large process is not copied, and is whole.
func TestSnapshotOvercommit(t *testing.T) {
	if os.Geteuid() != 0 {
		need(t, "root", "sets vm.overcommit_memory")
	}
	// The program reserves 32 TB. 20 TB remain for other programs: the race detector of Go reserves some.
	const pieces, room = 32 << 40, 20 << 40
	each := meminfo(t, "MemTotal") / 2 >> 30 // more at once is refused without the setting too
	if each == 0 {
		need(t, "memory", "the machine has less than 2 GB")
	}
	prog, _ := copied(t, "16", "reserve", fmt.Sprint(pieces/(each<<30)), fmt.Sprint(each))
	p := openProcess(t, prog.pid())
	if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
		t.Fatal(err)
	}
	strict(t, room, func() {
		for range rounds(3, 100) {
			_, err := p.Snapshot(SnapshotOptions{StopFor: 10e9})
			refused(t, prog, err, unix.ENOMEM)
		}
	})
	if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
		t.Error(err)
	}
	untraced(t, prog.pid())
	whole(t, prog)
}

// rollup sums a line of a process's smaps_rollup, in bytes.
func rollup(t *testing.T, pid int, name string) (n int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name+":" {
			n += atoi(t, f[1]) << 10
		}
	}
	return n
}

// Memory in huge pages is in the copy as it was, also when the process writes to it, and stays in huge pages
// where it does not.
func TestSnapshotHugePages(t *testing.T) {
	const mb = 64
	prog, _ := copied(t, fmt.Sprint(mb), "huge")
	prog.tell("memory")
	at, err := strconv.ParseUint(strings.TrimPrefix(prog.line(), "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	huge := rollup(t, prog.pid(), "AnonHugePages")
	if huge < mb<<20/2 {
		need(t, "thp", fmt.Sprintf("the kernel gave %d MB of %d in huge pages", huge>>20, mb))
	}
	p := openProcess(t, prog.pid())
	page := make([]byte, 4096)
	for round := range rounds(4, 50) {
		before := rollup(t, prog.pid(), "AnonHugePages")
		s := snapshot(t, p, SnapshotOptions{})
		if n := rollup(t, prog.pid(), "AnonHugePages"); n < before {
			t.Errorf("round %d: the copy split huge pages: %d MB before, %d after", round, before>>20, n>>20)
		}
		if round%2 == 1 {
			prog.tell("dirty")
			if got := prog.line(); got != "dirty" {
				t.Fatal(got)
			}
		}
		for off := uint64(0); off < mb<<20; off += 4096 {
			if _, err := s.ReadAt(page, int64(at+off)); err != nil {
				t.Fatal(err)
			}
			if want := byte(1 + round/2); page[0] != want || !bytes.Equal(page[1:], make([]byte, 4095)) {
				t.Fatalf("round %d: a page of the copy at %#x begins with %d, want %d and zeros", round, at+off, page[0], want)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.ReadAt(page, at+mb<<20-4096); err != nil || page[0] != byte(1+(round+1)/2) {
			t.Fatalf("round %d: the process's own page begins with %d, %v", round, page[0], err)
		}
	}
	untraced(t, prog.pid())
	whole(t, prog)
}

// The copy is ended, and not the process, when the memory of its control group is short: by this program, by
// the kernel if that does not look in time, or at the moment when the memory is used up.
func TestSnapshotMemoryShort(t *testing.T) {
	for _, by := range []string{"guard", "kernel", "end"} {
		for i := range rounds(1, 40) {
			t.Run(fmt.Sprintf("%s-%d", by, i), func(t *testing.T) { memoryShort(t, by) })
		}
	}
}

func memoryShort(t *testing.T, by string) {
	const mb = 400
	const limit = (mb + 60) << 20
	dir, _ := limited(t, limitMemory, limit)
	prog := in(t, dir, build(t, "../testdata/targets/c/copied.c"), fmt.Sprint(mb))
	at, err := strconv.ParseUint(strings.TrimPrefix(prog.line(), "counter 0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	prog.line()
	p := openProcess(t, prog.pid())
	room, err := p.MemoryRoom()
	if err != nil || room.Limit != limit || room.Free > limit-mb<<20 || room.Free < limit-(mb+50)<<20 {
		t.Errorf("room %+v, %v", room, err)
	}
	if _, err := p.Snapshot(SnapshotOptions{Reserve: limit - 50<<20}); !errors.Is(err, ErrShort) {
		t.Errorf("a copy where memory is short before: %v", err)
	}
	var o SnapshotOptions
	if by != "guard" {
		o.Reserve = 1 // never looked at in time
	}
	s := snapshot(t, p, o)
	if n, err := s.Copied(); err != nil || n > 60<<20 {
		t.Errorf("%d bytes copied before anything was written, %v", n, err)
	}
	var b [8]byte
	if _, err := s.ReadAt(b[:], int64(at)); err != nil {
		t.Fatal(err)
	}
	ended := func() bool {
		_, err := s.ReadAt(b[:], int64(at))
		return errors.Is(err, ErrShort) || errors.Is(err, ErrGone)
	}
	if by == "end" {
		// The copy gets no CPU of its own while it gives its memory back.
		start(t, build(t, "testdata/spin.c"), "4").line()
		prog.tell("dirty")
		eventually(t, "the memory is used up", func() bool {
			room, err := p.MemoryRoom()
			return err != nil || room.Free < 1<<20 || ended()
		})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	} else {
		prog.tell("dirty")
	}
	if got := prog.line(); got != "dirty" {
		t.Fatal(got)
	}
	if by != "end" {
		eventually(t, "the copy ends", ended)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	untraced(t, prog.pid())
	whole(t, prog)
}

// Only private memory of no file is given back, in ranges that pass over holes.
func TestStretches(t *testing.T) {
	const kb = 1024
	m := func(from, to, inode uint64, path string) stack.Mapping {
		return stack.Mapping{Start: from * kb, End: to * kb, Inode: inode, Path: path}
	}
	got := stretches([]stack.Mapping{
		m(0, 500, 7, "/bin/prog"), m(500, 600, 0, "[heap]"), m(700, 900, 0, ""), m(1000, 1100, 0, "[anon:java]"),
		m(1100, 3000, 9, "/dev/zero"), m(3000, 3100, 0, ""), m(3100, 5000, 0, "[vvar]"), m(5000, 7000, 0, "[stack]"), m(7000, 8000, 0, "[vdso]"),
	})
	want := []stretch{{500 * kb, 1100 * kb}, {5000 * kb, 7000 * kb}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
