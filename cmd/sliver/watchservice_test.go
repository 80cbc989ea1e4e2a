package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/notify"
)

// inGroup puts a process into its own control group, with a unit's name, below those
// where systemd has its units. It returns the folder of the group.
func inGroup(t *testing.T, pid int, unit string) (dir string) {
	t.Helper()
	var errs []string
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"} {
		dir, err := testprog.NewGroup(root, unit)
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		procs := filepath.Join(dir, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			errs = append(errs, err.Error())
			_ = os.Remove(dir)
			continue
		}
		t.Cleanup(func() {
			_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
			waitFor(t, func() bool { return os.Remove(dir) == nil })
		})
		return dir
	}
	testprog.Lack(t, "cgroup", "no control group can be made: "+strings.Join(errs, "; "))
	return ""
}

// heard receives a service manager's messages.
type heard struct{ c *net.UnixConn }

func (h *heard) line(t *testing.T, want string) string {
	t.Helper()
	_ = h.c.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 4096)
	n, err := h.c.Read(b)
	if err != nil {
		t.Fatalf("the service manager waits for %s: %v", want, err)
	}
	if s := string(b[:n]); !strings.HasPrefix(s, want) {
		t.Fatalf("the service manager heard %q, want %q", s, want)
	}
	return string(b[:n])
}

// The user of the service tests: another one than the one that runs them.
const nobody = 65534

// asUser returns a command that runs as another user with only these capabilities.
func asUser(caps string, args ...string) *exec.Cmd {
	only := "-all," + caps
	return exec.Command("setpriv", append([]string{"--reuid", strconv.Itoa(nobody), "--regid", strconv.Itoa(nobody), "--clear-groups", "--no-new-privs",
		"--inh-caps", only, "--ambient-caps", only, "--bounding-set", only}, args...)...)
}

// publicDir makes a folder that other users cannot list, with copies of programs.
func publicDir(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sliver-service-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range programs {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// unitFile returns the command of deploy/sliver-watch@.service, and its capabilities in
// setpriv's format.
func unitFile(t *testing.T) (start []string, caps string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testprog.Root(t), "deploy", "sliver-watch@.service"))
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		lines[key] = value
	}
	if lines["AmbientCapabilities"] != "CAP_SYS_PTRACE" || lines["CapabilityBoundingSet"] != "CAP_SYS_PTRACE" ||
		lines["User"] != "%i" || lines["NoNewPrivileges"] != "yes" || lines["Type"] != "notify" {
		t.Errorf("the unit file has %v", lines)
	}
	return strings.Fields(lines["ExecStart"]), "+sys_ptrace"
}

// systemd's own tool accepts the unit file.
func TestUnitFile(t *testing.T) {
	testprog.Need(t, "systemd-analyze")
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(testprog.Root(t), "deploy", "sliver-watch@.service"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sliver-watch@root.service")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), "/usr/bin/sliver", bin)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// The requirements of a Kubernetes sidecar, as far as they can be checked without a
// cluster: the manifest's arguments and settings start a recorder that finds a server of
// the same user, answers the probes, and writes to the volumes.
func TestKubernetesManifest(t *testing.T) {
	testprog.Need(t, "ptrace", "root", "setpriv")
	b, err := os.ReadFile(filepath.Join(testprog.Root(t), "deploy", "kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type probe struct {
		HTTPGet struct {
			Path string
			Port int
		} `yaml:"httpGet"`
	}
	var settings struct{ Data map[string]string }
	var pod struct {
		Spec struct {
			Share      bool `yaml:"shareProcessNamespace"`
			Containers []struct {
				Name            string
				Args            []string
				SecurityContext struct {
					RunAsUser int `yaml:"runAsUser"`
				} `yaml:"securityContext"`
				ReadinessProbe probe `yaml:"readinessProbe"`
				LivenessProbe  probe `yaml:"livenessProbe"`
			}
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	for _, v := range []any{&settings, &pod} {
		if err := dec.Decode(v); err != nil {
			t.Fatal(err)
		}
	}
	cs := pod.Spec.Containers
	if !pod.Spec.Share || len(cs) != 2 || cs[0].SecurityContext.RunAsUser == 0 || cs[0].SecurityContext.RunAsUser != cs[1].SecurityContext.RunAsUser {
		t.Fatalf("%+v", pod)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	// The server has the name in the settings, plus a unique suffix.
	name := fmt.Sprintf("server%d", os.Getpid()%1e6)
	home := publicDir(t, map[string]string{"sliver": bin, name: testprog.Build(t, "c/spin", "O0")})
	p := testprog.StartCmd(t, asUser("-all", filepath.Join(home, name), "--seconds", "120", "--wait-go"))
	p.Ready()
	p.Go()
	conf, l := settings.Data["watch.yaml"], freePort(t)
	for from, to := range map[string]string{"name: server\n": "name: " + name + "\n", "dir: /dumps\n": "dir: " + home + "/dumps\n", "0.0.0.0:7777": l} {
		if strings.Count(conf, from) != 1 {
			t.Fatalf("the settings lack %q: %s", from, conf)
		}
		conf = strings.Replace(conf, from, to, 1)
	}
	for _, d := range []string{"dumps", "run"} {
		if err := os.Mkdir(filepath.Join(home, d), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(home, d), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(home, "watch.yaml")
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{filepath.Join(home, "sliver")}
	for _, a := range cs[1].Args {
		args = append(args, strings.Replace(a, "/etc/sliver/watch.yaml", path, 1))
	}
	cmd := asUser("-all", args...)
	cmd.Env = []string{"XDG_RUNTIME_DIR=" + home + "/run", "SLIVER_HTTP_TOKEN=secret-of-the-test"}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []probe{cs[1].ReadinessProbe, cs[1].LivenessProbe} {
		if x.HTTPGet.Port != 7777 {
			t.Errorf("%+v", x)
		}
		waitFor(t, func() bool {
			res, err := http.Get("http://" + l + x.HTTPGet.Path)
			if err != nil {
				return false
			}
			res.Body.Close()
			return res.StatusCode == 200
		})
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(errs.String(), fmt.Sprintf(`"pid":%d`, p.PID)) {
		t.Errorf("%v: %s", err, errs.String())
	}
	free(t, p.PID)
}

// freePort returns an address without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The recorder as deploy/sliver-watch@.service starts it: the user of the service that it
// watches, only CAP_SYS_PTRACE (needed because the service has a capability of its own),
// no new privileges; the processes of a unit; readiness, health and metrics; reload by
// SIGHUP.
func TestWatchAsService(t *testing.T) {
	testprog.Need(t, "ptrace", "root", "setpriv")
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	home := publicDir(t, map[string]string{"sliver": bin, "spin": testprog.Build(t, "c/spin", "O0")})
	p := testprog.StartCmd(t, asUser("+net_bind_service", filepath.Join(home, "spin"), "--seconds", "120", "--wait-go"))
	p.Ready()
	p.Go()
	unit := fmt.Sprintf("sliver-test-%d.service", p.PID)
	inGroup(t, p.PID, unit)
	conf := filepath.Join(home, "watch.yaml")
	configure := func(text string) {
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	settings := "unit: [nosuch, " + strings.TrimSuffix(unit, ".service") + "]\nhttp: 127.0.0.1:0\ntriggers:\n"
	configure(settings + "  - stall: 1h\n")
	for _, d := range []string{"run", "state"} {
		if err := os.Mkdir(filepath.Join(home, d), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(home, d), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(home, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := &heard{c}
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	start, caps := unitFile(t)
	for i, x := range start {
		x = strings.ReplaceAll(x, "/usr/bin", home)
		x = strings.ReplaceAll(x, "/etc/sliver/%i.yaml", conf)
		x = strings.ReplaceAll(x, "/var/lib/sliver/%i", filepath.Join(home, "state"))
		start[i] = strings.ReplaceAll(x, "%i", "served")
	}
	cmd := asUser(caps, start...)
	cmd.Env = []string{"XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "NOTIFY_SOCKET=" + socket, "SLIVER_HTTP_TOKEN=secret-of-the-test", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	type entry struct {
		Msg, Address, Error, Level, File string
		PID                              int
	}
	lines := make(chan entry, 100)
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(errs); sc.Scan(); {
			var e entry
			if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
				t.Errorf("a line of the log is no JSON: %q", sc.Text())
			}
			lines <- e
		}
	}()
	said := func(msg string) entry {
		t.Helper()
		for limit := time.After(time.Minute); ; {
			select {
			case e, ok := <-lines:
				if !ok {
					t.Fatalf("it ended before it said %q", msg)
				}
				if e.Level == "ERROR" && msg != e.Msg && e.Error != notify.ErrNoJournal.Error() {
					t.Errorf("%+v", e)
				}
				if e.Msg == msg {
					return e
				}
			case <-limit:
				t.Fatalf("it does not say %q", msg)
			}
		}
	}
	base := "http://" + said("http").Address
	h.line(t, "READY=1\nSTATUS=")
	if e := said("watching"); e.PID != p.PID {
		t.Errorf("it watches %+v", e)
	}
	get := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret-of-the-test")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(b)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, text := get("GET", path); code != 200 {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	var st control.Status
	waitFor(t, func() bool {
		_, text := get("GET", "/status")
		st = control.Status{}
		return json.Unmarshal([]byte(text), &st) == nil && len(st.Targets) == 1 && st.Targets[0].Samples > 50
	})
	if st.Triggers[0] != "stall 1h" {
		t.Errorf("%+v", st)
	}

	configure(settings + "  - stall: 2h\n")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if s := h.line(t, "RELOADING=1\nMONOTONIC_USEC="); strings.HasSuffix(s, "=0") {
		t.Errorf("%q", s)
	}
	h.line(t, "READY=1")
	said("reloaded")
	if _, text := get("GET", "/status"); !strings.Contains(text, `"stall 2h"`) {
		t.Errorf("after SIGHUP: %s", text)
	}
	configure(settings + "  - stall: nonsense\n")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	h.line(t, "RELOADING=1")
	if e := said("the configuration stays as it was"); !strings.Contains(e.Error, "line 4") {
		t.Errorf("%+v", e)
	}
	h.line(t, "READY=1")
	if _, text := get("GET", "/status"); !strings.Contains(text, `"stall 2h"`) {
		t.Errorf("after a SIGHUP with nonsense: %s", text)
	}

	code, text := get("POST", "/dump")
	var ds []control.Dump
	if err := json.Unmarshal([]byte(text), &ds); code != 200 || err != nil || len(ds) != 1 || ds[0].Reason != "http" {
		t.Fatalf("POST /dump: %d %s", code, text)
	}
	checkDump(t, home, ds[0].Files[0])
	_, text = get("GET", "/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	fams, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"sliver_watch_targets": 1, "sliver_watch_targets_taken_total": 1, "sliver_watch_dumps_total": 1, "sliver_threads": 1} {
		if f := fams[name]; f == nil || f.Metric[0].GetCounter().GetValue()+f.Metric[0].GetGauge().GetValue() != want {
			t.Errorf("%s is %v, want %v", name, f, want)
		}
	}
	if f := fams["sliver_watch_rings_size_bytes"]; f == nil || f.Metric[0].GetGauge().GetValue() < 4096 {
		t.Errorf("the rings take %v", f)
	}
	samples := 0.
	for _, m := range fams["sliver_samples_total"].GetMetric() {
		samples += m.Counter.GetValue()
	}
	if samples < 50 {
		t.Errorf("%v samples", samples)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.line(t, "STOPPING=1")
	for range lines {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	free(t, p.PID)
}

// Processes of another user: CAP_SYS_PTRACE alone is refused with a clear error; with
// CAP_DAC_READ_SEARCH they are watched.
func TestOtherUsersProcess(t *testing.T) {
	testprog.Need(t, "ptrace", "root", "setpriv")
	p := spin(t)
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	home := publicDir(t, map[string]string{"sliver": bin})
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	run := func(caps string, args ...string) (string, error) {
		cmd := asUser(caps, append([]string{filepath.Join(home, "sliver")}, args...)...)
		cmd.Dir, cmd.Env = home, []string{"XDG_CACHE_HOME=" + home}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, c := range []struct{ caps, says string }{
		{"+sys_ptrace", "its files in /proc are not yours to read, for which CAP_SYS_PTRACE is not enough; run as that user, or give sliver CAP_DAC_READ_SEARCH as well"},
		{"+dac_read_search", "belongs to user 0, you are user 65534"},
	} {
		out, err := run(c.caps, "record", "-p", pidOf(p), "-d", "1s", "-o", "x.sliver")
		if err == nil || !strings.Contains(out, c.says) || strings.Count(out, "\n") != 1 {
			t.Errorf("with %s: %v, %q", c.caps, err, out)
		}
	}
	out, err := run("+sys_ptrace,+dac_read_search", "record", "-p", pidOf(p), "-d", "300ms", "--max-overhead", "0", "-o", "x.sliver")
	if err != nil {
		t.Errorf("with both: %v, %s", err, out)
	}
	if checkDump(t, home, filepath.Join(home, "x.sliver")); t.Failed() {
		t.Log(out)
	}
	if out, _ := run("+sys_ptrace", "doctor", pidOf(p)); !strings.Contains(out, "CAP_DAC_READ_SEARCH is needed as well") {
		t.Errorf("doctor: %s", out)
	}
	free(t, p.PID)
}
