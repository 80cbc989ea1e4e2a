package target

import (
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// A process is alive while another thread than the first one execs: it is that thread's number that changes, and the old first
// thread's state is still read for a moment.
func TestAliveInExec(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/exec", "O2"), "--times", "2000", "--ms", "0", "--from-thread", "--wait-go")
	p.Ready()
	proc, err := Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	const readers = 4
	wrong := make(chan int)
	for range readers {
		go func() {
			n := 0
			for {
				select {
				case <-p.Exited():
					wrong <- n
					return
				default:
				}
				if !proc.Alive() && proc.Alive() {
					n++
				}
			}
		}()
	}
	p.Go()
	for range readers {
		if n := <-wrong; n > 0 {
			t.Errorf("ended, and then alive: %d times", n)
		}
	}
}
