package kernel

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
)

// TestHeadless: calls of a process whose first thread has ended are seen.
func TestHeadless(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	if err := Check(); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	path := testprog.Build(t, "c/headless", "O2")
	p := testprog.Start(t, path, "goes")
	p.Ready()
	for {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), ") Z ") {
			break
		}
		<-time.After(time.Millisecond)
	}
	e, err := Open(p.PID, places(t, path, "told", false))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p.Go()
	p.Wait()
	if got := (&counter{n: map[calls.Where]int{}}).read(e); got.n[calls.Enter] != 1 || got.n[calls.Return] != 1 {
		t.Errorf("hits are %v", got)
	}
}
