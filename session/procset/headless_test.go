package procset

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// TestHeadless: a process whose first thread ends before it is opened, while another one goes on or executes a program, is
// found, and has ended when that one has.
func TestHeadless(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	for _, mode := range []string{"goes", "exec"} {
		t.Run(mode, func(t *testing.T) {
			p := testprog.StartCmd(t, exec.Command("sh", "-c", `read x; "$@"; exit`, "sh", testprog.Build(t, "c/headless", "O2"), mode))
			root, err := target.Open(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			s := New(Options{Children: true, Grace: MostGrace})
			defer s.Close()
			if s.births == nil {
				testprog.Missing(t, "perf", s.left.How)
			}
			s.Take(root)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			came, over := make(chan Member, 8), make(chan struct{})
			go func() { defer close(over); s.Follow(ctx, func(m Member) { came <- m }) }()
			p.Say("go")
			p.Line("ready")
			var m Member
			for m.Process == nil {
				select {
				case m = <-came:
				case <-time.After(time.Millisecond):
					if l := s.Left(); l.Count > 0 {
						t.Fatalf("it was not found: %+v", l)
					}
				}
			}
			if at := s.Gone(m.Process.PID(), m.Born, false); at != 0 {
				t.Errorf("it ended at %d, and goes on", at)
			}
			end := target.Now()
			p.Say("end")
			p.Wait()
			awaitEnd(m.Process)
			gone := s.Gone(m.Process.PID(), m.Born, true)
			for gone == 0 && ctx.Err() == nil { // it waits for a report for 20 ms
				gone = s.Gone(m.Process.PID(), m.Born, true)
			}
			if gone < end {
				t.Errorf("it ended at %d, and was there at %d", gone, end)
			}
			m.Process.Close()
			s.Done() // it and the shell
			s.Done()
			<-over
			if l := s.Left(); l.Count != 0 || l.Seen != 2 {
				t.Errorf("%+v", l)
			}
		})
	}
}

// TestHeadlessMatch: a process whose first thread has ended is found by its name.
func TestHeadlessMatch(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, copyOf(t, testprog.Build(t, "c/deadmain", "O2"), "headless-prog"), "long")
	p.Ready()
	awaitZombie(t, p.PID)
	s := New(Options{Match: func(f *target.Found) bool { return f.Comm == "headless-prog" }, Once: true})
	defer s.Close()
	now, err := s.Now()
	if err != nil || len(now) != 1 || now[0].Process.PID() != p.PID {
		t.Fatalf("%v, %v", now, err)
	}
	now[0].Process.Close()
}

// awaitZombie waits until the first thread of a process has ended.
func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	for t.Context().Err() == nil {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if st, err := target.ParseStat(b); err == nil && st.State == 'Z' {
			return
		}
		<-time.After(time.Millisecond)
	}
}
