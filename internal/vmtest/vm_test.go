package vmtest

//sliver:layer live unraced

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// machine is a kind of virtual machine.
type machine struct {
	arch    string // GOARCH
	uname   string // its name for uname(1)
	qemu    string // a word of testprog.Need
	console string
	args    []string
	// emulated is how many processors are emulated. With QEMU 7.2 and a counted time, Linux never starts the second
	// one of an amd64 machine.
	emulated int
	static   string // variant of C programs
}

var machines = []machine{
	{arch: "arm64", uname: "aarch64", qemu: "qemu-system-arm64", console: "ttyAMA0", args: []string{"-M", "virt", "-cpu", "max,pauth-impdef=on"}, emulated: 2, static: "arm64-static"},
	{arch: "amd64", uname: "x86_64", qemu: "qemu-system-amd64", console: "ttyS0", args: []string{"-M", "q35", "-cpu", "max,arch-capabilities=off"}, emulated: 1, static: "static"},
}

// kvm reports whether the host's processor can run a machine of its own architecture. In a virtual machine
// that has /dev/kvm and a processor without these flags, Debian's kernel does not start.
func kvm() bool {
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !regexp.MustCompile(`(?m)^flags\s.*\b(vmx|svm)\b`).Match(cpu) {
		return false
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// TestVM boots each machine, which QEMU emulates, or runs by KVM.
func TestVM(t *testing.T) {
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("SLIVER_LONG is not set: it takes some minutes")
	}
	for _, m := range machines {
		t.Run(m.arch, func(t *testing.T) {
			testprog.Need(t, "dpkg-deb")
			qemu := testprog.Tool(t, m.qemu)
			kernel, initrd := m.files(t)
			args := append(m.args, "-m", "1024", "-nic", "none", "-nographic", "-no-reboot", "-kernel", kernel, "-initrd", initrd,
				"-append", "quiet panic=-1 console="+m.console)
			if m.arch == runtime.GOARCH && kvm() {
				args = append(args, "-accel", "kvm", "-smp", "2")
			} else {
				// The guest's time is that of its instructions, 8 ns for each: a busy host makes the test slower, and
				// nothing in the guest late.
				args = append(args, "-icount", "shift=3,sleep=off", "-smp", strconv.Itoa(m.emulated))
			}
			ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, qemu, args...).CombinedOutput()
			text := strings.ReplaceAll(string(out), "\r", "")
			t.Log(text)
			if err != nil {
				t.Errorf("%s: %v", qemu, err)
			}
			check(t, m, split(text))
		})
	}
}

// files builds the machine's kernel and its image, and returns their paths.
func (m *machine) files(t *testing.T) (kernel, initrd string) {
	t.Helper()
	first := testprog.Tool(t, "vm-"+m.arch)
	debs, err := filepath.Glob(filepath.Join(filepath.Dir(first), "*.deb"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sliver := filepath.Join(dir, "sliver")
	cmd := exec.Command("go", "build", "-o", sliver, "./cmd/sliver")
	cmd.Dir = testprog.Root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+m.arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build sliver: %v\n%s", err, out)
	}
	var im image
	for _, deb := range debs {
		unpack(t, deb, func(name string, mode uint32, data []byte) {
			switch base := filepath.Base(name); {
			case strings.HasPrefix(base, "vmlinuz-"):
				kernel = filepath.Join(dir, base)
				if err := os.WriteFile(kernel, data, 0o644); err != nil {
					t.Fatal(err)
				}
			case strings.Contains(name, "/lib/modules/"), strings.Contains(name, "/usr/share/"), strings.Contains(name, "/boot/"):
			default:
				im.add(name, mode, data)
			}
		})
	}
	file := func(name, path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		im.add(name, modeFile|0o755, b)
	}
	file("init", "guest.sh")
	file("bin/sliver", sliver)
	for _, p := range []string{"locks/deadlock", "c/duty", "c/handler", "c/calls"} {
		file("t/"+filepath.Base(p), testprog.Build(t, p, m.static))
	}
	waits := filepath.Join(dir, "waits")
	cmd = exec.Command("go", "build", "-o", waits, ".")
	cmd.Dir = filepath.Join(testprog.Root(t), "testdata", "targets", "go", "waits")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+m.arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build waits: %v\n%s", err, out)
	}
	file("t/waits", waits)
	initrd = filepath.Join(dir, "initrd")
	if err := os.WriteFile(initrd, im.bytes(), 0o644); err != nil || kernel == "" {
		t.Fatalf("no kernel in %q, or no image: %v", debs, err)
	}
	return kernel, initrd
}

// split returns what the guest printed in each part.
func split(text string) map[string]string {
	parts := map[string]string{}
	for _, p := range strings.Split("\n"+text, "\n=== ")[1:] {
		name, body, _ := strings.Cut(p, "\n")
		parts[strings.TrimSpace(name)] = body
	}
	return parts
}

// TestSplit: what the kernel prints before is in no part.
func TestSplit(t *testing.T) {
	got := split("[0.1] booting\n=== a\none\ntwo\n=== b\n=== end\n")
	if len(got) != 3 || got["a"] != "one\ntwo" || got["b"] != "" {
		t.Errorf("%q", got)
	}
}

func check(t *testing.T, m machine, parts map[string]string) {
	t.Helper()
	has := func(part string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(parts[part], w) {
				t.Errorf("%s: no %q:\n%s", part, w, parts[part])
			}
		}
	}
	has("kernel", "cloud", m.uname)
	if _, ok := parts["end"]; !ok {
		t.Error("the guest did not come to its end")
	}
	has("locks", "DEADLOCK of 3 threads", "held by TID", "lock_next", "status 3")
	has("signals", "spin", "on_alarm", "interrupted", "main")
	has("python", "leaf", "handle", "<module>")
	has("go", "main.main", "main.hold", "main.read", "main.write", "main.receive", "main.choose", "main.join", "semacquire", "chan receive", "select", "sleep")
	if err := putBack(parts["calls"]); err != nil {
		t.Errorf("calls: %v:\n%s", err, parts["calls"])
	}
	after := regexp.MustCompile(`(?m)^after \d: State:\s+(\S).*TracerPid:\s+(\d+)$`).FindAllStringSubmatch(parts["kill"], -1)
	for _, a := range after {
		if a[1] == "t" || a[1] == "T" || a[2] != "0" {
			t.Errorf("kill -9 of sliver left %q", a[0])
		}
	}
	if len(after) < 3 || strings.Count(parts["kill"], "runs ") != 3 {
		t.Errorf("kill: not three times, or the program does not run on:\n%s", parts["kill"])
	}
	if err := truth(parts["truth"]); err != nil {
		t.Errorf("truth: %v:\n%s", err, parts["truth"])
	}
}

// putBack checks the account of the program that makes every kind of blocking call: none has failed with EINTR
// or ended early because of a stop, though most were stopped in the kernel.
func putBack(part string) error {
	calls, samples := 0, 0
	for _, line := range strings.Split(part, "\n") {
		var name string
		var n, eintr, early, late, most int
		if _, err := fmt.Sscan(line, &name, &n, &eintr, &early, &late, &most); err == nil {
			if calls++; eintr != 0 || early != 0 {
				return fmt.Errorf("%s: of %d returns %d were EINTR and %d early", name, n, eintr, early)
			}
		}
		if f := strings.Fields(line); len(f) == 3 && f[0] == "how" && f[1] == "stop" {
			samples, _ = strconv.Atoi(f[2])
		}
	}
	if calls < 30 || samples == 0 {
		return fmt.Errorf("%d kinds of calls, %d stops", calls, samples)
	}
	return nil
}

// truth compares the folded stacks of a duty program on a CPU with its own account.
func truth(part string) error {
	var burn, all, wantBurn, wantAll float64
	for _, line := range strings.Split(part, "\n") {
		f := strings.Fields(line)
		if len(f) == 11 && f[0] == "truth" {
			wantBurn, _ = strconv.ParseFloat(f[2], 64)
			wantAll, _ = strconv.ParseFloat(f[8], 64)
		} else if i := strings.LastIndexByte(line, ' '); i > 0 && strings.Contains(line, ";") {
			n, err := strconv.ParseFloat(line[i+1:], 64)
			if err != nil {
				continue
			}
			if all += n; strings.Contains(line[:i], ";burn") {
				burn += n
			}
		}
	}
	if all == 0 || wantAll == 0 {
		return fmt.Errorf("no stacks, or no account of the program")
	}
	if got, want := burn/all, wantBurn/wantAll; got < want-.1 || got > want+.1 {
		return fmt.Errorf("burn has %.2f of the CPU time, %.2f by the program's account", got, want)
	}
	return nil
}

// TestChecks: each check fails for output that is wrong.
func TestChecks(t *testing.T) {
	const stacks = "main;main;burn 900\nmain;main;rest 100\n"
	for part, ok := range map[string]bool{
		stacks + "truth burn 90 rest 10 write 0 total 100 elapsed 300": true,
		stacks + "truth burn 50 rest 50 write 0 total 100 elapsed 300": false,
		stacks: false,
		"truth burn 90 rest 10 write 0 total 100 elapsed 300": false,
	} {
		if err := truth(part); (err == nil) != ok {
			t.Errorf("%q: %v", part, err)
		}
	}
	account := strings.Repeat("poll 3 0 0 0 12\n", 30)
	for part, ok := range map[string]bool{
		account + "how stop 40\n":                             true,
		account + "how read 40\n":                             false,
		account + "how stop 40\nfutex 3 1 0 0 12\n":           false,
		account + "how stop 40\nnanosleep 3 0 1 0 12\n":       false,
		strings.Repeat("poll 3 0 0 0 12\n", 3) + "how stop 4": false,
	} {
		if err := putBack(part); (err == nil) != ok {
			t.Errorf("%q: %v", part, err)
		}
	}
}
