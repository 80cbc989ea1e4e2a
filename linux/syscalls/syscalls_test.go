package syscalls

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		arch, name string
		nr         int32
	}{
		{"amd64", "read", syscall.SYS_READ}, {"amd64", "futex", 202}, {"amd64", "restart_syscall", 219},
		{"amd64", "epoll_pwait2", 441}, {"amd64", "futex_waitv", 449}, {"amd64", "newfstatat", 262},
		// arm64 uses the kernel's generic table (include/uapi/asm-generic/unistd.h).
		{"arm64", "read", 63}, {"arm64", "futex", 98}, {"arm64", "ppoll", 73}, {"arm64", "restart_syscall", 128},
		{"arm64", "epoll_pwait", 22}, {"arm64", "clock_nanosleep", 115}, {"arm64", "wait4", 260},
	} {
		if c.arch == "amd64" && c.name == "read" && syscall.SYS_READ != 0 {
			continue // the test runs on another architecture
		}
		if got := Name(c.arch, c.nr); got != c.name {
			t.Errorf("%s: call %d is %q, want %q", c.arch, c.nr, got, c.name)
		}
		if nr, ok := Number(c.arch, c.name); !ok || nr != c.nr {
			t.Errorf("%s: %s is %d, %v, want %d", c.arch, c.name, nr, ok, c.nr)
		}
	}
	for _, nr := range []int32{-1, 100000, 1<<31 - 1} {
		if c := Lookup("amd64", nr); !strings.HasPrefix(c.Name, "syscall ") || c.Args != nil {
			t.Errorf("call %d: %+v", nr, c)
		}
	}
	if _, ok := Number("arm64", "poll"); ok {
		t.Error("arm64 has a poll")
	}
	if c := Lookup("sparc", 0); c.Name != "syscall 0" {
		t.Errorf("unknown machine: %+v", c)
	}
}

// Every name with arguments must be a system call of one of the architectures, and the
// registers must exist.
func TestArgsAreOfRealCalls(t *testing.T) {
	src, err := os.ReadFile("args.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	_, body, _ := strings.Cut(string(src), "switch name {")
	for i, part := range strings.Split(body, `"`) {
		if i%2 == 0 {
			continue
		}
		seen++
		_, a := Number("amd64", part)
		_, b := Number("arm64", part)
		if !a && !b {
			t.Errorf("no system call %q", part)
		}
		args := Args(part)
		if len(args) == 0 {
			t.Errorf("%s has no arguments", part)
		}
		for _, x := range args {
			if x.Reg < 0 || x.Reg > 5 || x.Len < 0 || x.Len > 5 || x.Meaning == 0 {
				t.Errorf("%s: %+v", part, x)
			}
		}
	}
	if seen < 100 {
		t.Fatalf("only %d names found", seen)
	}
}

// The checked-in tables must match the generator's output.
func TestTablesAreCurrent(t *testing.T) {
	gen, err := os.ReadFile("gen.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Inside the module, so that go list finds x/sys. The output goes elsewhere.
	text := strings.Replace(string(gen), `"names"+`, `"`+dir+`/names"+`, 1)
	if err := os.WriteFile(dir+"/gen.go", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "run", dir+"/gen.go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"namesamd64.go", "namesarm64.go"} {
		old, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if string(fresh) != string(old) {
			t.Errorf("%s is stale: run go generate", name)
		}
	}
}
