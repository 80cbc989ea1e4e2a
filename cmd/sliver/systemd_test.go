package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// deploy/sliver-watch@.service below a separate systemd in its own namespaces. It reports
// readiness, has one user's rights and one capability, reloads its configuration, dumps,
// and is restarted after a kill -9, with the remaining rings recovered.
func TestBelowSystemd(t *testing.T) {
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("a system is started: with SLIVER_LONG=1")
	}
	testprog.Need(t, "ptrace", "root", "systemd-analyze")
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	home := publicDir(t, map[string]string{"sliver": bin, "spin": testprog.Build(t, "c/spin", "O0"),
		"systemd.sh": "testdata/systemd.sh", "drive": "testdata/systemd-drive.sh"})
	for _, d := range []string{"units", "etc/sliver", "private"} {
		if err := os.MkdirAll(filepath.Join(home, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, u := range []string{"sysinit.target", "basic.target", "shutdown.target", "umount.target", "multi-user.target", "sockets.target", "timers.target",
		"paths.target", "slices.target", "network.target", "systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket"} {
		write("units/"+u, read("/lib/systemd/system/"+u))
	}
	unit := read(filepath.Join(testprog.Root(t), "deploy", "sliver-watch@.service"))
	write("units/sliver-watch@.service", strings.ReplaceAll(unit, "/usr/bin/sliver", filepath.Join(home, "sliver")))
	write("units/myserver.service", "[Service]\nUser=nobody\nExecStart="+filepath.Join(home, "spin")+" --seconds 300\n")
	write("etc/sliver/nobody.yaml", "unit: [myserver]\ntriggers:\n  - stall: 1h\n")

	cmd := exec.Command(filepath.Join(home, "systemd.sh"), home)
	cmd.WaitDelay = 10 * time.Second
	limit := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(os.Interrupt) })
	defer limit.Stop()
	log, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 3 {
		testprog.Lack(t, "cgroup", string(log))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	want := `started: active, keeps the last 30s of a process of unit myserver
Uid: 65534 65534 65534 65534
CapEff: 0000000000080000
CapBnd: 0000000000080000
NoNewPrivs: 1
Seccomp: 2
the journal has its log
reloaded
dumped
the journal has the dump
restarted
recovered
stopped: success
`
	if got := read(filepath.Join(home, "out")); got != want {
		t.Errorf("%s\nwant %s\nsystemd's log: %s", got, want, log)
	}
}
