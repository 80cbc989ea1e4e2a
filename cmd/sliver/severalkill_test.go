package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// ofGroup returns the processes of a group that have not ended, by number with their name and state.
func ofGroup(t *testing.T, group int) (out []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		head, rest, _ := strings.Cut(string(b), ") ")
		var state string
		var parent, pgrp int
		if n, _ := fmt.Sscan(rest, &state, &parent, &pgrp); n == 3 && pgrp == group && state != "Z" && state != "X" {
			out = append(out, head+") "+state)
		}
	}
	return out
}

// A recorder of a command with all that it starts is killed at a random moment of its life, from its start to its
// end. Each process of the tree goes on to its end, nothing stays stopped or traced, and no helper of the recorder
// remains. With SLIVER_LONG=1 the test kills 200 times.
func TestTreeKilledOften(t *testing.T) {
	testprog.Whole(t, "TestFamilyKilled kills a recorder once")
	testprog.Need(t, "gcc", "ptrace")
	dir, first, kid := family(t)
	times := 10
	if os.Getenv("SLIVER_LONG") != "" {
		times = 200
	}
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	// How long a recording takes that is not killed.
	begin := time.Now()
	if r := sliver(t, dir, "record", "-q", "-i", "1ms", "--max-overhead", "0", "-o", "x.sliver", "--", first, "60", "3", kid); r.status != 7 {
		t.Fatalf("%+v", r)
	}
	whole := time.Since(begin)
	during, before, after := 0, 0, 0 // the tree ran, was not seen to run, or the recorder had ended
	for n := 0; during < times; n++ {
		if n == 4*times {
			t.Fatalf("of %d kills %d were while the tree ran, %d before and %d after", n, during, before, after)
		}
		log, err := os.Create(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := slivercmd(t, dir, "record", "-q", "-i", "1ms", "--max-overhead", "0", "-o", "x.sliver", "--", first, "60", "3", kid)
		cmd.Stdout = log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		moment := time.Duration(rand.Int64N(int64(whole)))
		<-time.After(moment)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		ended := cmd.ProcessState.Exited()
		read := func() (lives map[int]*familyLife, died int) {
			b, err := os.ReadFile(log.Name())
			if err != nil {
				t.Fatal(err)
			}
			return familyLog(strings.Split(string(b), "\n")), strings.Count(string(b), "died ")
		}
		var left []string
		for start := time.Now(); ; <-time.After(5 * time.Millisecond) {
			left = ofGroup(t, cmd.Process.Pid)
			lives, died := read()
			if len(left) == 0 && died == len(lives) && (died == 0 || died >= 9) {
				switch {
				case ended:
					after++
				case died > 0:
					during++
				default:
					before++
				}
				break
			}
			if time.Since(start) > time.Minute {
				for pid := range lives {
					if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
						st, _ := target.ParseStatus(b)
						left = append(left, fmt.Sprintf("%d traced by %d", pid, st.TracerPid))
					}
				}
				t.Fatalf("kill %d, after %v: %d processes began and %d ended; left are %q", n, moment, len(lives), died, left)
			}
		}
		log.Close()
		m, _ := filepath.Glob(filepath.Join(dir, ".x.sliver.*"))
		for _, f := range m {
			_ = os.Remove(f)
		}
	}
	t.Logf("%d kills while the tree ran, %d before, %d after the end, a recording takes %v", during, before, after, whole)
}
