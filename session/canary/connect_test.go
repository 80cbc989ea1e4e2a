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
		ends := map[string]uint64{"socket to " + peer: uint64(n), "socket accepted on " + peer: 0} // bytes written
		sums := map[string]iowatch.File{}
		for _, f := range s.Engine.Files() {
			name := f.Path
			if name == "short-lived descriptors of accept" { // of some, the server was closed before its address was read
				name = "socket accepted on " + peer
			}
			x := sums[name]
			x.Opens, x.Ops, x.Got, x.Written = x.Opens+f.Opens, x.Ops+f.Ops, x.Got+f.Got, x.Written+f.Written
			sums[name] = x
		}
		for name, written := range ends {
			if f := sums[name]; int(f.Opens) != n || f.Ops != uint64(n) || f.Got != uint64(n) || f.Written != written {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// TestOpenSockets names the sockets that are open before: one that listens, a connection that it accepted, and
// the other end of that.
func TestOpenSockets(t *testing.T) {
	testprog.Need(t, "python3", "ptrace")
	p := testprog.Start(t, testprog.Tool(t, "python3"), "-c", `
import os, socket, sys
l = socket.create_server(("127.0.0.1", 0))
u = socket.socket(socket.AF_UNIX)
u.bind(sys.argv[1])
u.listen()
a = socket.create_connection(l.getsockname())
b, _ = l.accept()
print("ready", os.getpid(), flush=True)
for _ in sys.stdin:
    a.send(b"x" * 7)
    b.recv(7)
    v = socket.socket(socket.AF_UNIX)
    v.connect(sys.argv[1])
    w, _ = u.accept()
    w.send(b"x" * 5)
    w.close()
    print("truth", l.getsockname()[1], flush=True)
    print("done", flush=True)
`, filepath.Join(t.TempDir(), "listens"))
	p.Ready()
	s := watch(t, p.PID)
	p.Go()
	port := 0
	if _, err := fmt.Sscanf(p.Line("truth "), "truth %d", &port); err != nil {
		t.Fatal(err)
	}
	p.Done()
	s.end(t)
	server := fmt.Sprintf("127.0.0.1:%d", port)
	want := map[string]iowatch.File{"socket listening on " + server: {Open: 1}, "socket accepted on " + server: {Open: 1, Got: 7}, "socket to " + server: {Open: 1, Got: 7, Written: 7},
		"socket accepted on ": {Opens: 1, Got: 5, Written: 5}}
	for _, f := range s.Engine.Files() {
		name := f.Path
		if strings.HasSuffix(name, "/listens") {
			name = strings.TrimSuffix(name, name[strings.Index(name, "/"):])
		}
		x, ok := want[name]
		if !ok {
			continue
		}
		if delete(want, name); f.Opens != x.Opens || f.Open != x.Open || f.Got != x.Got || f.Written != x.Written {
			t.Errorf("%+v, want %+v", f, x)
		}
	}
	if len(want) > 0 {
		t.Errorf("%v are missing in %+v", want, s.Engine.Files())
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
