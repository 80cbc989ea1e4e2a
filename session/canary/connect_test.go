package canary

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// runEach runs a scenario of c/files once and keeps each operation. It returns the program's own count.
func runEach(t *testing.T, set []string, scenario, path string, n int) (s *seen, own int) {
	t.Helper()
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/files", "O2"), scenario, path, strconv.Itoa(n), "1")
	p.Ready()
	s = watchEach(t, p.PID, set...)
	p.Go()
	var ns int64
	if _, err := fmt.Sscanf(p.Line("truth "), "truth %d %d", &own, &ns); err != nil {
		t.Fatal(err)
	}
	p.Done()
	s.end(t)
	return s, own
}

// TestConnect: connections to one server are one line of the table, and too many of them a finding with
// the place of the connect.
func TestConnect(t *testing.T) {
	for n, fires := range map[int]bool{11: true, 10: false} {
		s, port := runEach(t, []string{"churn within=60s life=60s"}, "connect", "-", n)
		peer := fmt.Sprintf("127.0.0.1:%d", port)
		connects := 0
		for i := range s.ops {
			if o := &s.ops[i]; o.Op == iowatch.OpConnect {
				connects++
				if o.path != "socket to "+peer || o.Call != "connect" {
					t.Errorf("%+v", o)
				}
			}
		}
		if connects != n {
			t.Errorf("%d connects, want %d", connects, n)
		}
		all := s.Engine.Findings()
		if fired := len(all) > 0; fired != fires {
			t.Errorf("%d connections: %d findings", n, len(all))
		}
		if len(all) > 0 && (all[0].Path != peer || all[0].Count != 11 || !strings.Contains(s.stackOf(all[0].Where), "connecting ")) {
			t.Errorf("%+v at %s", all[0], s.stackOf(all[0].Where))
		}
		found := false
		for _, f := range s.Engine.Files() {
			if f.Path == "socket to "+peer {
				found = true
				if int(f.Opens) != n || int(f.Ops) != n || int(f.Written) != n {
					t.Errorf("%+v", f)
				}
			}
		}
		if !found {
			t.Errorf("%s is not in the table", peer)
		}
	}
}

// TestRights: descriptors that came with messages are known, with the stack that received them.
func TestRights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passed")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, want := runEach(t, nil, "rights", path, 9)
	got := map[int32]bool{}
	for i := range s.ops {
		o := &s.ops[i]
		if o.Op != iowatch.OpMake || o.Call != "recvmsg" {
			continue
		}
		if got[o.FD] || o.Kind != iowatch.KindFile || !strings.Contains(s.stackOf(o.Stack), "receiving ") {
			t.Errorf("%+v at %s", o, s.stackOf(o.Stack))
		}
		got[o.FD] = true
	}
	if want != 9+4 || len(got) != want {
		t.Errorf("%d descriptors came with messages, the program has %d", len(got), want)
	}
	for _, f := range s.Engine.Files() { // sums of the socket have the messages
		if f.Kind == iowatch.KindSocket && f.Ops != 0 && f.Ops != 9 {
			t.Errorf("%+v", f)
		}
	}
}
