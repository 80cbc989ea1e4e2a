package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/leak"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch/control"
)

// leakingJava starts a Java program with objects to find.
func leakingJava(t *testing.T, version string, flags ...string) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	java := testprog.Tool(t, "java"+version)
	args := append(append([]string{"-Xmx256m"}, flags...), "-cp", testprog.JavaClasses(t, "HeapLeaks"), "HeapLeaks", "map,list")
	p := testprog.StartCmd(t, exec.Command(java, args...))
	p.Line("READY")
	return p
}

// The heap of a running process: histogram, dump and leaks, with one line that says what it cost.
func TestHeapOfAProcess(t *testing.T) {
	dir := t.TempDir()
	proc := leakingJava(t, "17", "-XX:+UseG1GC")
	pid := fmt.Sprint(proc.PID)
	run := func(args ...string) result {
		t.Helper()
		r := sliver(t, dir, append([]string{"heap"}, args...)...)
		if r.status != 0 || !strings.Contains(r.errors, "sliver: process "+pid+": copied, stopped for ") {
			t.Errorf("heap %q: status %d\n%s", args, r.status, r.errors)
		}
		return r
	}
	if r := sliver(t, dir, "doctor", pid); !strings.Contains(r.out, "ok    heap               HotSpot 17, G1: read from a copy\n") {
		t.Errorf("doctor:\n%s", r.out)
	}
	if r := run(pid, "--top", "3"); !strings.Contains(r.out, "  byte[]\n") || strings.Count(r.out, "\n") != 5 {
		t.Errorf("histogram:\n%s", r.out)
	}
	var doc struct {
		PID     int
		Objects int
		Lines   []heapCount
	}
	if r := run(pid, "--json", "--by", "package"); json.Unmarshal([]byte(r.out), &doc) != nil || doc.PID != proc.PID || doc.Objects < 10_000 || len(doc.Lines) < 10 {
		t.Errorf("JSON by package:\n%.500s", r.out)
	}
	if r := run(pid, "--by", "loader"); !strings.Contains(r.out, "(boot loader)") || !strings.Contains(r.out, "ClassLoaders$AppClassLoader 0x") {
		t.Errorf("by loader:\n%s", r.out)
	}
	// No file is needed, so none that cannot be made hinders.
	if r := run("leaks", pid, "--share", "5%", "--temp", filepath.Join(dir, "none")); !strings.Contains(r.out, "HeapLeaks.sessionCache") || !strings.Contains(r.out, "HeapLeaks.listeners") {
		t.Errorf("leaks:\n%s", r.out)
	}
	if r := run(pid, "--live", "--top", "1"); !strings.Contains(r.errors, " objects are reachable, marked in ") {
		t.Errorf("live: %s", r.errors)
	}
	if r := run("leaks", pid, "--koom", "1"); !strings.Contains(r.out, `"jvmMax":256,`) || !strings.Contains(r.out, `"dumpReason":"MANUAL_TRIGGER"`) {
		t.Errorf("KOOM's report: %.500s", r.out)
	}
	koomFields(t, run("leaks", pid, "--koom", "2").out)
	dumps := [][]string{{"x.hprof"}, {"s.hprof.zst", "--strip", "shark"}, {"l.hprof", "--live"}, {"x.hprof.gz"}, {"x.spack"}}
	if testing.Short() {
		dumps = dumps[:2]
	}
	for _, args := range dumps {
		run(append([]string{"dump", pid, "-o"}, args...)...)
		f, err := hprof.Open(filepath.Join(dir, args[0]), dir)
		if err != nil {
			t.Fatal(err)
		}
		infos, findings, err := hprof.Check(f, dir)
		f.Close()
		if err != nil || len(findings) > 0 || len(infos) != 1 {
			t.Errorf("%s: %d dumps, %v, %v", args[0], len(infos), findings, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "x.hprof")); err != nil || !bytes.HasPrefix(b, []byte("JAVA PROFILE 1.0.2\x00")) {
		t.Errorf("dump: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What G1 fills behind a large array is not taken for garbage.
func TestHeapFillers(t *testing.T) {
	testprog.Need(t, "ptrace")
	proc := testprog.StartCmd(t, exec.Command(testprog.Tool(t, "java25"), "-Xmx256m", "-XX:+UseG1GC", "-cp", testprog.JavaClasses(t, "HeapLeaks"), "HeapLeaks", "array"))
	proc.Line("READY")
	r := sliver(t, t.TempDir(), "heap", "leaks", fmt.Sprint(proc.PID))
	filled := 0.0 // MB
	if m := regexp.MustCompile(`; ([0-9.]+) MB fill gaps`).FindStringSubmatch(r.errors); m != nil {
		filled, _ = strconv.ParseFloat(m[1], 64)
	}
	if r.status != 0 || filled < 0.9 {
		t.Errorf("status %d, %v MB\n%s", r.status, filled, r.errors)
	}
}

// Where a copy is not possible HotSpot writes the dump itself, and the reason is said.
func TestHeapFallsBack(t *testing.T) {
	dir := t.TempDir()
	proc := leakingJava(t, "25", "-XX:+UseZGC")
	pid := fmt.Sprint(proc.PID)
	if r := sliver(t, dir, "doctor", pid); !strings.Contains(r.out, "note  heap               its collector is ZGC") {
		t.Errorf("doctor:\n%s", r.out)
	}
	r := sliver(t, dir, "heap", "leaks", pid, "--share", "5%")
	if r.status != 0 || !strings.Contains(r.errors, "its collector is ZGC") || !strings.Contains(r.errors, "written by HotSpot itself, stopped for ") || !strings.Contains(r.out, "HeapLeaks.sessionCache") {
		t.Errorf("status %d\n%s\n%s", r.status, r.errors, r.out)
	}
	for by, want := range map[string]string{"class": "HeapLeaks$Listener", "package": "(none)", "loader": "jdk.internal.loader.ClassLoaders$AppClassLoader 0x"} {
		r := sliver(t, dir, "heap", pid, "--by", by)
		if r.status != 0 || !strings.Contains(r.errors, "its collector is ZGC") || !strings.Contains(r.out, want) {
			t.Errorf("--by %s: status %d\n%s\n%s", by, r.status, r.errors, r.out)
		}
	}
	for _, args := range [][]string{{pid, "--way", "snapshot"}, {"dump", pid, "-o", "x.hprof", "--way", "snapshot"}} {
		if r := sliver(t, dir, append([]string{"heap"}, args...)...); r.status == 0 || !strings.Contains(r.errors, "its collector is ZGC") {
			t.Errorf("heap %q: status %d\n%s", args, r.status, r.errors)
		}
	}
}

// written is what a dump by HotSpot itself says: of a process of the tests it has thousands of objects.
var written = regexp.MustCompile(`written by HotSpot itself, stopped for [0-9.]+ ms; [0-9]{4,} objects`)

// HotSpot writes all objects or, with --live, those that a collection leaves: to the file, packed or as it is.
func TestHeapWayFifo(t *testing.T) {
	testprog.Whole(t, "TestHeapOfAProcess takes the usual way")
	testprog.Need(t, "ptrace")
	dir := t.TempDir()
	want := []string{"all.hprof"}
	for version, live := range map[string]string{"17": "live.hprof.zst", "25": "live.spack"} { // 25 makes a second file, which must not stay
		if testing.Short() && version != "25" {
			continue
		}
		want = append(want, live)
		args := []string{"-Xmx64m", "-XX:+UseSerialGC", "-cp", testprog.JavaClasses(t, "HeapLeaks"), "HeapLeaks", "references"}
		p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, "java"+version), args...))
		p.Line("READY")
		for _, x := range []struct {
			file        string
			flags       []string
			least, most uint64
		}{{"all.hprof", nil, 700, 700}, {live, []string{"--live"}, 0, 40}} { // the program drops 700
			r := sliver(t, dir, append([]string{"heap", "dump", pidOf(p), "--way", "fifo", "-o", x.file}, x.flags...)...)
			if r.status != 0 || !written.MatchString(r.errors) {
				t.Errorf("%s: status %d\n%s", x.file, r.status, r.errors)
			}
			r = sliver(t, dir, "heap", "histo", x.file, "--json", "--rows", "100000")
			var doc struct{ Classes []leak.Class }
			if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
				t.Fatalf("%s: %v: %.300s%s", x.file, err, r.out, r.errors)
			}
			var dropped uint64
			for _, c := range doc.Classes {
				if c.Name == "HeapLeaks$Dropped" {
					dropped = c.Count
				}
			}
			if dropped < x.least || dropped > x.most {
				t.Errorf("%s: %d objects that are garbage, want %d to %d", x.file, dropped, x.least, x.most)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != len(want) {
		t.Errorf("files: %v, want %v", left, want)
	}
}

// The objects of a CPython process by class.
func TestHeapOfPython(t *testing.T) {
	testprog.Need(t, "ptrace")
	proc := testprog.StartCmd(t, exec.Command(testprog.Tool(t, "python3"), "-c", `
class Session: pass
kept = [Session() for _ in range(12345)]
print("READY", flush=True)
import sys; sys.stdin.read()`))
	proc.Line("READY")
	r := sliver(t, t.TempDir(), "heap", fmt.Sprint(proc.PID), "--json")
	var doc heapHistogram
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.status != 0 || !strings.Contains(r.errors, "CPython") {
		t.Fatalf("status %d, %v\n%s", r.status, err, r.errors)
	}
	found := false
	for _, l := range doc.Lines {
		found = found || l.Name == "Session" && l.Objects >= 12345 && l.Objects < 12350
	}
	if !found || doc.Objects < 20_000 {
		t.Errorf("%d objects, sessions found: %v", doc.Objects, found)
	}
	pid := fmt.Sprint(proc.PID)
	if r := sliver(t, t.TempDir(), "heap", pid, "--holders", "Session", "--rows", "1"); r.status != 0 || !strings.Contains(r.out, ` list ← dict["kept"] ← module`) || !strings.Contains(r.out, "conservative") {
		t.Errorf("holders: status %d\n%s%s", r.status, r.out, r.errors)
	}
	var held heldBy
	if r := sliver(t, t.TempDir(), "heap", pid, "--holders", "Session", "--json"); json.Unmarshal([]byte(r.out), &held) != nil || held.Objects < 12345 || len(held.Paths) == 0 || held.Paths[0].Objects < 12_000 {
		t.Errorf("holders as JSON: %.500s", r.out)
	}
	if r := sliver(t, t.TempDir(), "heap", pid, "--holders", "Nothing"); r.status == 0 || !strings.Contains(r.errors, `no object of a class called "Nothing"`) {
		t.Errorf("holders of nothing: status %d\n%s", r.status, r.errors)
	}
}

// Processes without a Java heap and invalid flags get one line.
func TestHeapOfAProcessRefused(t *testing.T) {
	dir := t.TempDir()
	spin := testprog.Start(t, testprog.Build(t, "c/spin", "O2"), "--seconds", "120")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{fmt.Sprint(spin.PID)}, "no HotSpot virtual machine"},
		{[]string{fmt.Sprint(spin.PID), "--holders", "x"}, "is not CPython"},
		{[]string{"dump", fmt.Sprint(spin.PID)}, "dump needs a file"},
		{[]string{"dump", fmt.Sprint(spin.PID), "-o", "x", "--strip", "all"}, `unknown --strip "all"`},
		{[]string{"dump", fmt.Sprint(spin.PID), "-o", "x", "--way", "gdb"}, `unknown --way "gdb"`},
		{[]string{"dump", fmt.Sprint(spin.PID), "-o", "missing/x.hprof"}, "cannot write in missing/"}, // before the process is looked at
		{[]string{"leaks", fmt.Sprint(spin.PID), "-o", "missing/x.html"}, "cannot write in missing/"},
		{[]string{fmt.Sprint(spin.PID), "--by", "age"}, `unknown --by "age"`},
		{[]string{"999999999"}, "no process 999999999"},
		{[]string{"dump", "x.hprof", "-o", "y"}, "invalid PID"},
	} {
		r := sliver(t, dir, append([]string{"heap"}, c.args...)...)
		if r.status == 0 || !strings.Contains(r.errors, c.want) {
			t.Errorf("heap %q: status %d, want %q in\n%s", c.args, r.status, c.want, r.errors)
		}
	}
}

// Killed while it copies and dumps, sliver leaves the Java process alive, with no thread traced and no
// zombie.
func TestHeapDumpKilled(t *testing.T) {
	dir := t.TempDir()
	proc := leakingJava(t, "25", "-XX:+UseG1GC")
	runtime.LockOSThread() // Pdeathsig is of the OS thread
	defer runtime.UnlockOSThread()
	for i := range 8 {
		cmd := slivercmd(t, dir, "heap", "dump", fmt.Sprint(proc.PID), "-o", "x.hprof")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.NewTimer(time.Duration(20+rand.IntN(300)) * time.Millisecond)
		<-after.C
		cmd.Process.Kill()
		cmd.Wait()
		deadline := time.Now().Add(60 * time.Second)
		for left := leftBy(t, proc.PID); len(left) > 0; left = leftBy(t, proc.PID) {
			if time.Now().After(deadline) {
				t.Fatalf("round %d: left: %v", i, left)
			}
			runtime.Gosched()
		}
	}
	if r := sliver(t, dir, "heap", fmt.Sprint(proc.PID), "--top", "1"); r.status != 0 {
		t.Errorf("after the kills: status %d\n%s", r.status, r.errors)
	}
}

// leftBy lists threads of a process that are traced or stopped, and its children.
func leftBy(t *testing.T, pid int) (left []string) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("the process has ended: %v", err)
	}
	for _, name := range tasks {
		b, err := os.ReadFile(name)
		if err == nil && (!bytes.Contains(b, []byte("TracerPid:\t0\n")) || bytes.Contains(b, []byte("State:\tt")) || bytes.Contains(b, []byte("State:\tT"))) {
			left = append(left, name)
		}
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if st, err := target.ParseStat(b); err == nil && st.PPID == pid {
			left = append(left, name)
		}
	}
	return left
}

// watchedHeap is a JVM whose heap grows on demand, with a watch that has a rule for that.
type watchedHeap struct {
	proc *testprog.Proc
	dir  string // of the dumps
	log  string // path of what the watch says
}

// watchGrowing starts both.
func watchGrowing(t *testing.T, version, collector, files string, flags ...string) *watchedHeap {
	t.Helper()
	w := &watchedHeap{dir: t.TempDir(), log: filepath.Join(t.TempDir(), "log")}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	testprog.Need(t, "ptrace")
	w.proc = testprog.StartCmd(t, exec.Command(testprog.Tool(t, "java"+version), "-Xmx256m", collector, "-cp", testprog.JavaClasses(t, "HeapLeaks"), "HeapLeaks", "grow"))
	w.proc.Line("READY")
	log, err := os.Create(w.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	cmd := slivercmd(t, w.dir, append([]string{"watch", "-p", fmt.Sprint(w.proc.PID), "--java-growth", "1MB,every=200ms,heap=" + files, "--dir", w.dir, "--interval", "200ms"}, flags...)...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	status(t, w.dir, func(all []control.Status) bool {
		return len(all) == 1 && len(all[0].Targets) == 1 && all[0].Targets[0].Threads > 3
	})
	return w
}

// until lets the heap grow until done. It grows again and again, since the first check may come after a growth.
func (w *watchedHeap) until(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for limit := time.Now().Add(3 * time.Minute); !done(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("nothing came in three minutes:\n%s", w.said(t))
		}
		w.proc.Say("grow")
		w.proc.Line("GROWN")
	}
}

// said returns what the watch wrote to standard error so far.
func (w *watchedHeap) said(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(w.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// files returns the paths of dumps with an ending.
func (w *watchedHeap) files(ending string) []string {
	found, _ := filepath.Glob(filepath.Join(w.dir, "*-java-growth"+ending))
	return found
}

// Where no copy is possible, the files of a rule about the Java heap come through the attach socket.
func TestWatchJavaHeapFallsBack(t *testing.T) {
	testprog.Whole(t, "TestWatchJavaHeap has the way that is usual")
	w := watchGrowing(t, "25", "-XX:+UseZGC", "dump+leaks")
	w.until(t, func() bool { return len(w.files(".leaks.txt")) > 0 })
	if said := w.said(t); !strings.Contains(said, "through the attach socket") || !strings.Contains(said, "its collector is ZGC") {
		t.Errorf("the log does not say why:\n%s", said)
	}
	leaks := w.files(".leaks.txt")[0]
	if b, err := os.ReadFile(leaks); err != nil || !strings.Contains(string(b), "HeapLeaks.listeners") {
		t.Errorf("report of leaks: %v\n%s", err, b)
	}
	if r := sliver(t, w.dir, "heap", "histo", strings.TrimSuffix(leaks, ".leaks.txt")+".spack", "--top", "50"); r.status != 0 || !strings.Contains(r.out, "HeapLeaks$Listener") {
		t.Errorf("status %d\n%s%s", r.status, r.out, r.errors)
	}
}

// A heap dump that is larger than all dumps may be is given up: no part of it stays, the log has the reason, and the
// process goes on.
func TestWatchJavaHeapTooLarge(t *testing.T) {
	for _, collector := range []string{"-XX:+UseSerialGC", "-XX:+UseZGC"} {
		t.Run(collector, func(t *testing.T) {
			if collector == "-XX:+UseZGC" {
				testprog.Whole(t, "another collector")
			}
			w := watchGrowing(t, "25", collector, "dump", "--max-bytes", "50kB")
			w.until(t, func() bool { return strings.Contains(w.said(t), "larger than --max-bytes allows") })
			if found := w.files(".spack*"); len(found) > 0 {
				t.Errorf("parts of a dump are left: %q", found)
			}
			w.proc.Say("grow") // it is not stopped
			w.proc.Line("GROWN")
		})
	}
}

// A rule about the Java heap writes a heap dump beside the recording.
func TestWatchJavaHeap(t *testing.T) {
	testprog.Whole(t, "TestHeapOfAProcess has the dump, TestWatchJavaHeapTooLarge the rule")
	w := watchGrowing(t, "17", "-XX:+UseSerialGC", "dump+leaks+koom")
	w.until(t, func() bool { return len(w.files(".koom.json")) > 0 }) // the last of the files
	dir, found := w.dir, w.files(".koom.json")
	stem := strings.TrimSuffix(found[0], ".koom.json")
	var koom struct {
		RunningInfo map[string]any
		ClassInfos  []any
		GCPaths     []struct{ LeakReason, GCRoot string }
	}
	if b, err := os.ReadFile(found[0]); err != nil || json.Unmarshal(b, &koom) != nil {
		t.Errorf("KOOM's report: %v\n%s", err, b)
	}
	if i := koom.RunningInfo; i["jvmMax"] != "256.0" || i["dumpReason"] != "reason_fast_huge_delta" || i["pss"] == nil || i["threadCount"] == nil || i["usageSeconds"] == nil {
		t.Errorf("running information: %v", koom.RunningInfo)
	}
	if b, err := os.ReadFile(stem + ".leaks.txt"); err != nil || !strings.Contains(string(b), "HeapLeaks.listeners") {
		t.Errorf("report of leaks: %v\n%s", err, b)
	}
	r := sliver(t, dir, "heap", "histo", stem+".spack", "--top", "50")
	if r.status != 0 || !strings.Contains(r.out, "HeapLeaks$Listener") {
		t.Errorf("status %d\n%s%s", r.status, r.out, r.errors)
	}
	if recordings, _ := filepath.Glob(filepath.Join(dir, "*-java-growth.sliver")); len(recordings) == 0 {
		t.Error("no recording beside it")
	}
}

// koomFields checks a report of KOOM's version 2 of a living process: each field that KOOM's HeapReport.kt has is
// there with its type, and no other, but for those that only Android has.
func koomFields(t *testing.T, report string) {
	t.Helper()
	var doc struct {
		RunningInfo                      map[string]any
		GCPaths, ClassInfos, LeakObjects []map[string]any
	}
	d := json.NewDecoder(strings.NewReader(report))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatalf("KOOM's report of version 2: %v\n%.500s", err, report)
	}
	const seconds = `\d+\.\d{3}`
	texts := map[string]string{"jvmMax": `\d+\.\d+`, "jvmUsed": `\d+\.\d+`, "vss": `\d+\.\d+mb`, "pss": `\d+\.\d+mb`, "rss": `\d+\.\d+mb`, "threadCount": `\d+`,
		"fdCount": `\d+`, "usageSeconds": `\d+`, "nowTime": `\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}`, "deviceMemTotal": `\d+\.\d+`, "deviceMemAvaliable": `\d+\.\d+`,
		"dumpReason": "manual_trigger", "filterInstanceTime": seconds, "findGCPathTime": seconds}
	for name, pattern := range texts {
		v, ok := doc.RunningInfo[name].(string)
		if !ok || !regexp.MustCompile("^"+pattern+"$").MatchString(v) {
			t.Errorf("runningInfo.%s is %#v, want text like %s", name, doc.RunningInfo[name], pattern)
		}
		delete(doc.RunningInfo, name)
	}
	for _, name := range []string{"threadList", "fdList"} {
		if _, ok := doc.RunningInfo[name].([]any); !ok {
			t.Errorf("runningInfo.%s is %#v, want a list", name, doc.RunningInfo[name])
		}
		delete(doc.RunningInfo, name)
	}
	if len(doc.RunningInfo) > 0 {
		t.Errorf("more running information: %v", doc.RunningInfo)
	}
	if doc.GCPaths == nil || doc.ClassInfos == nil || doc.LeakObjects == nil {
		t.Errorf("a list is missing: %.500s", report)
	}
}
