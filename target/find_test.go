package target

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Names match the process or its program, and may be patterns.
func TestNamed(t *testing.T) {
	f := &Found{Comm: "worker", Exe: "nginx"}
	for pattern, want := range map[string]bool{"nginx": true, "worker": true, "ngin?": true, "w*": true, "x": false, "*x*": true, "[a-m]*": false} {
		is, err := Named(pattern)
		if err != nil || is(f) != want {
			t.Errorf("%s: %v, %v", pattern, is(f), err)
		}
	}
	f = &Found{Comm: "gunicorn: worke", Exe: "python3.11"}
	for pattern, want := range map[string]bool{"gunicorn": true, "/^gunicorn$/": true, "gunicorn: *": true, "worke": false, "gunicor": false, "python*": true} {
		is, err := Named(pattern)
		if err != nil || is(f) != want {
			t.Errorf("%s: %v, %v", pattern, is(f), err)
		}
	}
	if _, err := Named("["); err == nil {
		t.Error("a pattern that cannot be read is taken")
	}
}

// A matching process is found each time. Another one is examined less and less often, but not
// dropped.
func TestFinder(t *testing.T) {
	if os.Getpid() == 1 {
		t.Skip("this is the process that is looked for")
	}
	looked, wanted := 0, false
	x := NewFinder(func(f *Found) bool {
		if f.PID != 1 {
			return false
		}
		looked++
		if f.Comm == "" || f.Start == 0 && f.Exe == "" {
			t.Errorf("%+v", f)
		}
		return wanted
	})
	turns := 0
	find := func() int {
		turns++
		found, err := x.Find(nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	for range 4 * maxGap {
		if find() != 0 {
			t.Fatal("found what was not wanted")
		}
	}
	if looked == 0 {
		t.Skip("process 1 is another user's")
	}
	// In searches 1, 2, 4, 8, 16, and then every 16th.
	if looked < 5 || looked > 9 {
		t.Errorf("%d looks in %d searches", looked, turns)
	}
	wanted = true
	for n := 0; find() == 0; n++ {
		if n == maxGap {
			t.Fatal("not found any more")
		}
	}
	for range 3 {
		if find() != 1 {
			t.Error("lost")
		}
	}
}

// A process that was seen before it became the matching program is found in the next search.
func TestFinderSeesExec(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read x; exec cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	pid := cmd.Process.Pid
	x := NewFinder(func(f *Found) bool { return f.PID == pid && f.Comm == "cat" })
	for range maxGap / 2 {
		if found, err := x.Find(nil); err != nil || len(found) != 0 {
			t.Fatalf("%+v, %v", found, err)
		}
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); ; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || time.Now().After(limit) {
			t.Fatalf("it is %q, %v", b, err)
		}
		if string(b) == "cat\n" {
			break
		}
	}
	if found, err := x.Find(nil); err != nil || len(found) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
}

// The helper that opens files is part of this program and is left out.
func TestFinderLeavesHelpersOut(t *testing.T) {
	f, err := safefile.Root("").Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	helpers := 0
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		b, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if st, e := ParseStat(b); err == nil && e == nil && st.PPID == os.Getpid() && st.Comm == safefile.HelperName {
			helpers++
		}
	}
	if helpers == 0 {
		t.Fatal("there is no helper")
	}
	found, err := NewFinder(func(f *Found) bool { return f.Comm == safefile.HelperName }).Find(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range found {
		if b, err := os.ReadFile("/proc/" + strconv.Itoa(x.PID) + "/stat"); err == nil {
			if st, err := ParseStat(b); err == nil && st.PPID == os.Getpid() {
				t.Errorf("process %d is found", x.PID)
			}
		}
	}
}
