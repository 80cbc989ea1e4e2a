package target

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

func refusal(t *testing.T, pid int, want Reason) {
	t.Helper()
	p, err := Open(pid)
	if err == nil {
		p.Close()
		t.Fatalf("open %d: no error, want reason %d", pid, want)
	}
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != want || r.PID != pid || strings.Contains(r.What+r.Advice, "\n") || r.What == "" {
		t.Errorf("open %d: %#v, want reason %d", pid, err, want)
	}
	t.Log(err)
}

func TestOpenRefuses(t *testing.T) {
	before := fds(t)
	refusal(t, 0, NoProcess)
	refusal(t, -5, NoProcess)
	refusal(t, 1<<22+1, NoProcess) // above the kernel's PID_MAX_LIMIT
	refusal(t, os.Getpid(), Itself)
	if b, err := os.ReadFile("/proc/2/stat"); err == nil {
		if st, err := ParseStat(b); err == nil && st.Flags&pfKthread != 0 {
			refusal(t, 2, KernelThread)
		}
	}
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "zombie", func() bool { return state(t, cmd.Process.Pid, cmd.Process.Pid) == 'Z' })
	refusal(t, cmd.Process.Pid, Zombie)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	refusal(t, cmd.Process.Pid, NoProcess)
	if n := fds(t); n > before+2 { // those that os/exec keeps
		t.Errorf("%d files open, %d before", n, before)
	}

	prog := start(t, build(t, "testdata/spin.c"), "1")
	refusal(t, atoi(t, prog.line()), NotLeader)

	if strace, err := exec.LookPath("strace"); err == nil {
		traced := start(t, strace, "-o", os.DevNull, build(t, "testdata/spin.c"), "1")
		tid := atoi(t, traced.line())
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseStatus(b)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Open(s.TGID)
		var r *Refusal
		if err == nil {
			p.Close()
		}
		if !errors.As(err, &r) || r.Reason != AlreadyTraced || !strings.Contains(r.What, "(strace)") {
			t.Errorf("traced by strace: %v", err)
		}
		traced.in.Close()
	}
}

// Another sampler holds a process only for a moment, and Open waits for that.
func TestOpenTracedForAMoment(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		need(t, "strace", "it is the other tracer")
	}
	prog := start(t, build(t, "testdata/spin.c"), "1")
	pid := prog.pid()
	prog.line()
	for try := 1; ; try++ {
		other := exec.Command(strace, "-o", os.DevNull, "-p", strconv.Itoa(pid))
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "strace has it", func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			s, bad := ParseStatus(b)
			return err == nil && bad == nil && s.TracerPid == other.Process.Pid
		})
		leave := time.AfterFunc(tracedFor/10, func() { other.Process.Signal(os.Interrupt) })
		p, err := Open(pid)
		leave.Stop()
		other.Process.Signal(os.Interrupt)
		other.Wait()
		if err == nil {
			p.Close()
			return
		}
		if try == 5 { // on a busy machine it may leave too late
			t.Fatal(err)
		}
	}
}

// As another user: the helper is this test binary, run with another user ID.
func TestOpenOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		need(t, "root", "only root can try being another user")
	}
	prog := start(t, build(t, "testdata/spin.c"), "1")
	prog.line()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// In a place that the other user cannot reach.
	f := filepath.Join(t.TempDir(), "helper")
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(f); d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(f)
	cmd.Env = append(os.Environ(), loopVar+"="+fmt.Sprint(prog.pid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "belongs to user 0, you are user 65534") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestFacts(t *testing.T) {
	bin := build(t, "testdata/spin.c")
	prog := start(t, bin, "2")
	tids := []int{prog.pid(), atoi(t, prog.line()), atoi(t, prog.line())}
	p := openProcess(t, prog.pid())
	f := p.Facts()
	if f.PID != prog.pid() || p.PID() != f.PID || f.Exe != bin || len(f.Cmdline) != 2 || f.Cmdline[1] != "2" || f.UID != os.Getuid() ||
		f.NSpid == 0 || f.PageSize != os.Getpagesize() || f.Container || f.StartTime > monotonic() || f.StartTime < monotonic()-600e9 ||
		!strings.HasPrefix(filepath.Base(bin), f.Comm) {
		t.Errorf("%+v", f)
	}
	got, err := p.Threads(nil)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v %v", got, err)
	}
	for i, tid := range got {
		if int(tid) != tids[i] {
			t.Errorf("threads %v, want %v", got, tids)
		}
		ti, err := p.ThreadInfo(tid)
		if err != nil || ti.TID != tid || ti.NSTID == 0 || !strings.HasPrefix(f.Comm, ti.Name) || len(ti.Name) != 15 || ti.StartTicks < f.StartTicks {
			t.Errorf("%+v %v, of %+v", ti, err, f)
		}
	}
	if _, err := p.ThreadInfo(stack.TID(os.Getpid())); err != ErrGone {
		t.Errorf("a thread of another process: %v", err)
	}
	if _, err := p.Thread(stack.TID(os.Getpid())); err != ErrGone {
		t.Errorf("a thread of another process: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { got, _ = p.Threads(got) }); n != 0 {
		t.Errorf("%v allocations to list threads", n)
	}
}

func TestMappings(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "copy")
	b, err := os.ReadFile(build(t, "testdata/spin.c"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, b, 0o755); err != nil {
		t.Fatal(err)
	}
	prog := start(t, bin, "1")
	prog.line()
	p := openProcess(t, prog.pid())
	open := func(want string) (File, stack.Mapping) {
		t.Helper()
		maps, err := p.Maps()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range maps {
			if m.Exec && (m.Path == want || strings.HasPrefix(filepath.Base(m.Path), want)) {
				f, err := p.OpenMapping(m)
				if err != nil {
					t.Fatal(err)
				}
				return f, m
			}
		}
		t.Fatalf("no mapping of %s in %v", want, maps)
		return nil, stack.Mapping{}
	}
	same := func() {
		t.Helper()
		f, m := open(bin)
		defer f.Close()
		got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
		if err != nil || string(got) != string(b) {
			t.Errorf("%d bytes, want %d, %v", len(got), len(b), err)
		}
		// Memory and file have the same content.
		code := make([]byte, 64)
		if n, err := p.ReadAt(code, m.Start); n != len(code) || err != nil || string(code) != string(b[m.Off:m.Off+64]) {
			t.Errorf("%d bytes of memory, %v", n, err)
		}
	}
	same()
	f, _ := open("libc.so")
	if e, err := elf.NewFile(f); err != nil || e.Type != elf.ET_DYN {
		t.Errorf("libc: %v", err)
	}
	f.Close()
	f, _ = open("[vdso]")
	if e, err := elf.NewFile(f); err != nil || e.Section(".eh_frame") == nil && e.Section(".text") == nil {
		t.Errorf("vdso: %v", err)
	}
	f.Close()
	// Deleted, and replaced by another file.
	if err := os.Remove(bin); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, []byte("something else"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, m := open(bin); !m.Deleted {
		t.Error("not shown as deleted")
	}
	same()
	// Without map_files, by path: the replacement is not mistaken for the mapped file.
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Path != bin {
			continue
		}
		m.Deleted = false
		if f, err := p.openByPath(m); err == nil {
			f.Close()
			t.Error("another file was opened for the mapping")
		}
		if f, err := p.openExe(m); err != nil {
			t.Errorf("exe: %v", err)
		} else {
			f.Close()
		}
	}
	for _, m := range maps {
		if strings.HasPrefix(filepath.Base(m.Path), "libc.so") {
			f, err := p.openByPath(m)
			if err != nil {
				t.Fatalf("by path: %v", err)
			}
			f.Close()
			break
		}
	}
	if _, err := p.OpenMapping(stack.Mapping{Path: "[heap]"}); !errors.Is(err, ErrNoFile) {
		t.Errorf("heap: %v", err)
	}
	var me *MemoryError
	two := make([]byte, 2*os.Getpagesize())
	last := maps[0].End
	for _, m := range maps {
		if m.Start != last && m.Start > last {
			break
		}
		last = m.End
	}
	n, err := p.ReadAt(two, last-16)
	if n != 16 || !errors.As(err, &me) || me.Addr != last {
		t.Errorf("read over the end: %d bytes, %v, want up to %#x", n, err, last)
	}
}

func TestPerfMap(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	prog.line()
	p := openProcess(t, prog.pid())
	name := fmt.Sprintf("/tmp/perf-%d.map", p.NSpid())
	os.Remove(name) // an earlier process of this number may have left one
	if _, err := p.PerfMap(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no map: %v", err)
	}
	if err := os.WriteFile(name, []byte("1000 10 jitted\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(name)
	f, err := p.PerfMap()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f.Data()); err != nil || string(b) != "1000 10 jitted\n" {
		t.Errorf("%q %v", b, err)
	}
	for age, mine := range map[time.Duration]bool{0: true, time.Hour: false} {
		at := time.Unix(0, p.began()).Add(-age)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
		f, err := p.PerfMap()
		if (err == nil) != mine {
			t.Errorf("a map that was written %v before the process began: %v", age, err)
		}
		if err == nil {
			f.Close()
		}
	}
	if err := os.Chtimes(name, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(name, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := p.PerfMap(); err == nil {
			t.Error("a stranger's map was taken")
		}
	}
	os.Remove(name)
	if err := os.Symlink("/etc/passwd", name); err != nil {
		t.Fatal(err)
	}
	if _, err := p.PerfMap(); err == nil {
		t.Error("a link was followed")
	}
}
