package target

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// oneLine checks the properties of every refusal.
func oneLine(t *testing.T, err error, want Reason) *Refusal {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != want || r.What == "" || strings.Contains(r.What+r.Advice, "\n") {
		t.Fatalf("%#v, want reason %d", err, want)
	}
	return r
}

// The reason for a refusal and the advice, for all relevant conditions, including modules that
// this kernel lacks.
func TestDenials(t *testing.T) {
	const capable = 1 << unix.CAP_SYS_PTRACE
	for _, c := range []struct {
		d      denial
		want   Reason
		what   string
		advice string
	}{
		{denial{yama: 1}, YamaScope, "ptrace_scope is 1", "record -- CMD"},
		{denial{yama: 1, child: true}, OtherPolicy, "security module", "audit"},
		{denial{yama: 1, child: true, hidden: true}, NotDumpable, "not dumpable", "sudo"},
		{denial{yama: 2}, YamaScope, "ptrace_scope is 2", "'sliver doctor' shows how"},
		{denial{yama: 2, child: true}, YamaScope, "ptrace_scope is 2", "sudo"},
		{denial{yama: 3}, YamaScope, "ptrace_scope is 3", "reboot"},
		{denial{yama: 1, status: Status{UID: 7}}, OtherUser, "belongs to user 7, you are user 0", "sudo"},
		{denial{yama: 1, status: Status{CapPrm: 2}}, NoCapability, "capabilities", "sudo"},
		{denial{hidden: true}, NotDumpable, "not dumpable", "sudo"},
		{denial{}, OtherPolicy, "security module", "audit"},
		{denial{me: Status{CapPrm: capable}, yama: 2}, OtherPolicy, "security module", "audit"},
		{denial{me: Status{CapPrm: capable}, container: true}, NoCapability, "another user namespace", "host"},
	} {
		c.d.pid, c.d.who = 12, "process 12 (x)"
		r := oneLine(t, c.d.reason(), c.want)
		if len(r.Advice) > 150 {
			t.Errorf("%+v: the advice has %d characters: %q", c.d, len(r.Advice), r.Advice)
		}
		if !strings.Contains(r.What, c.what) || !strings.Contains(r.Advice, c.advice) || r.PID != 12 {
			t.Errorf("%+v: %q, %q", c.d, r.What, r.Advice)
		}
	}
	for _, c := range []struct {
		scope   string
		capable bool
		want    Verdict
		found   string
	}{
		{"0", false, Good, "is 0"}, {"1", false, Limited, "is 1"}, {"1", true, Good, "CAP_SYS_PTRACE"},
		{"2", false, Limited, "is 2"}, {"2", true, Good, "CAP_SYS_PTRACE"}, {"3", true, Missing, "is 3"}, {"3", false, Missing, "no process"},
	} {
		k := yamaCheck(c.scope, c.capable)
		if k.Verdict != c.want || !strings.Contains(k.Found, c.found) || k.Verdict != Good && k.Advice == "" {
			t.Errorf("scope %s: %+v", c.scope, k)
		}
	}
}

// A 32-bit program has other registers: it is refused before it is touched.
func TestRefuse32Bit(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("a 32-bit program for amd64")
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		need(t, "gcc", "gcc is not installed")
	}
	bin := filepath.Join(t.TempDir(), "small")
	cmd := exec.Command(cc, "-m32", "-nostdlib", "-static", "-no-pie", "-x", "assembler", "-o", bin, "-")
	cmd.Stdin = strings.NewReader(".globl _start\n_start: mov $29, %eax\n int $0x80\n jmp _start\n") // pause
	if msg, err := cmd.CombinedOutput(); err != nil {
		need(t, "gcc-m32", fmt.Sprintf("gcc builds no 32-bit program: %v: %s", err, msg))
	}
	prog := exec.Command(bin)
	if err := prog.Start(); err != nil {
		need(t, "ia32", fmt.Sprintf("this kernel runs no 32-bit program: %v", err))
	}
	defer prog.Wait()
	defer prog.Process.Kill()
	p, err := Open(prog.Process.Pid)
	if err == nil {
		p.Close()
	}
	if r := oneLine(t, err, Wrong32Bit); !strings.Contains(r.What, "32-bit") {
		t.Error(r.What)
	}
}

// filteredLook tries to open a process with one system call blocked.
func filteredLook(call, pid string) {
	nr := uint32(unix.SYS_PTRACE)
	if call == "process_vm_readv" {
		nr = unix.SYS_PROCESS_VM_READV
	}
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = forbid(nr)
	}
	if err != nil {
		fmt.Println("filter:", err)
		os.Exit(3)
	}
	p, err := Open(n)
	var r *Refusal
	if errors.As(err, &r) {
		fmt.Printf("refused %d\n%s\n%s\n", r.Reason, r.What, r.Advice)
	} else {
		fmt.Println("opened", p != nil, err)
	}
	for _, c := range append(Examine(n), Examine(0)...) {
		if c.Verdict == Missing {
			fmt.Printf("missing %s: %s; %s\n", c.Name, c.Found, c.Advice)
		}
	}
	os.Exit(0)
}

// A container's filter that blocks ptrace or process_vm_readv is distinguished from all other
// refusals.
func TestFiltered(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	prog.line()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"ptrace", "process_vm_readv"} {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=filtered %s %d", loopVar, call, prog.pid()))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.Output()
		if err != nil && strings.HasPrefix(string(out), "filter:") {
			need(t, "seccomp", string(out))
		}
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) < 6 || lines[0] != fmt.Sprintf("refused %d", Filtered) || !strings.Contains(lines[1], call) ||
			!strings.Contains(lines[1], "seccomp") || !strings.Contains(lines[2], "SYS_PTRACE") {
			t.Errorf("%s: %q", call, lines)
		}
		if !strings.Contains(string(out), "missing seccomp: "+call) || !strings.Contains(string(out), fmt.Sprintf("missing process %d", prog.pid())) {
			t.Errorf("%s: doctor: %q", call, lines[3:])
		}
	}
}

// A program in its own user, PID and mount namespaces, as in a container, is sampled from
// outside.
func TestContainer(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		need(t, "unshare", "unshare is not installed")
	}
	bin := build(t, "testdata/spin.c")
	flags := []string{"-U", "-r", "-p", "-f", "-m", "--kill-child"}
	if out, err := exec.Command(unshare, append(flags, "true")...).CombinedOutput(); err != nil {
		need(t, "userns", fmt.Sprintf("no user namespaces here: %v: %s", err, out))
	}
	prog := start(t, unshare, append(flags, bin, "1")...)
	inside := atoi(t, prog.line())
	var pid int
	eventually(t, "the program inside", func() bool {
		ds, _ := os.ReadDir("/proc")
		for _, d := range ds {
			b, err := os.ReadFile("/proc/" + d.Name() + "/stat")
			if err != nil {
				continue
			}
			if st, err := ParseStat(b); err == nil && st.PPID == prog.pid() {
				pid = st.PID
				return strings.HasPrefix(filepath.Base(bin), st.Comm)
			}
		}
		return false
	})
	p := openProcess(t, pid)
	if f := p.Facts(); !f.Container || f.NSpid != 1 || f.Exe == "" {
		t.Errorf("%+v", f)
	}
	tids, err := p.Threads(nil)
	if err != nil || len(tids) != 2 {
		t.Fatalf("%v %v", tids, err)
	}
	if in, err := p.ThreadInfo(tids[1]); err != nil || in.NSTID != inside {
		t.Errorf("thread %d is %d inside, %d for itself: %v", tids[1], in.NSTID, inside, err)
	}
	tr := tracer(t)
	w := NewWindow(0)
	for range 20 {
		capture(t, tr, openThread(t, p, int(tids[1])), w)
		if w.Regs.PC == 0 || len(w.Stack()) == 0 {
			t.Fatalf("%+v", w.Regs)
		}
	}
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Exec && m.Inode != 0 {
			f, err := p.OpenMapping(m)
			if err != nil {
				t.Errorf("%s: %v", m.Path, err)
				continue
			}
			f.Close()
		}
	}
	untraced(t, pid)
}
