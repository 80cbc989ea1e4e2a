package canary

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// TestMoves sends a file to a socket with sendfile. A wait for the peer is not one of the file: main-io does not
// fire. A wait for the file's data does, with the stack.
func TestMoves(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "gcc", "ptrace")
	prog := testprog.Build(t, "c/moves", "O2")
	run := func(path string, n, size int) *seen {
		p := testprog.Start(t, prog, filepath.Dir(path), strconv.Itoa(-n), strconv.Itoa(size))
		p.Ready()
		s := watchEach(t, p.PID, "main-io")
		p.Go()
		p.Done()
		s.end(t)
		return s
	}
	const peer = 20 * time.Millisecond
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	found := func(s *seen) []*iowatch.Finding { // an open may be slow on a busy machine
		return slices.DeleteFunc(slices.Clone(s.Engine.Findings()), func(f *iowatch.Finding) bool { return f.Call != "" })
	}
	s := run(path, 5, 1<<16)
	if all := found(s); len(all) > 0 {
		t.Errorf("%+v", all[0])
	}
	waited := false
	var moved, sent int64
	for _, op := range s.ops {
		if op.Call == "sendfile" && op.Op == iowatch.OpRead {
			moved += op.Ret
			if op.path != path || op.Want > 1<<16 || op.Busy() > int64(peer) {
				t.Errorf("%+v of %s", op.Event, op.path)
			}
		} else if op.Call == "sendfile" && op.Op == iowatch.OpWrite {
			sent += op.Ret
			waited = waited || op.Kind == iowatch.KindSocket && op.Busy() > int64(peer)
		}
	}
	if moved != 5<<16 || sent != moved || !waited {
		t.Errorf("%d bytes are read, %d written, waited for the peer: %v", moved, sent, waited)
	}

	path = mount(t, &slowFile{delay: peer, size: 4096, cached: true})
	s = run(path, 1, 4096)
	f := single(t, found(s))
	if f.Path != path || f.Longer < int64(peer) || f.First != iowatch.OpRead || f.Bytes != 4096 || !strings.Contains(s.stackOf(f.Where), "slowly main ") {
		t.Errorf("%+v at %s", f, s.stackOf(f.Where))
	}
}

// TestReplaced has descriptors that end without a close of their own, and paths that are relative to a folder of
// which the process has just made its working folder. No operation is lost, and each is one of its file.
func TestReplaced(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	const times, size = 20, 1000
	path := filepath.Join(t.TempDir(), "data")
	p := testprog.Start(t, testprog.Build(t, "c/files", "O2"), "replaced", path, strconv.Itoa(times), strconv.Itoa(size))
	p.Ready()
	s := watch(t, p.PID)
	p.Go()
	p.Line("truth ")
	p.Done()
	s.end(t)
	got := map[string]iowatch.File{}
	for _, f := range s.Engine.Files() {
		got[f.Path] = f
	}
	away := filepath.Join("/tmp", "sliver-rel-"+strconv.Itoa(p.PID))
	for _, name := range []string{path + ".1", path + ".2", path + ".3", path + ".4", filepath.Join(filepath.Dir(path), "rel"), away} {
		if f := got[name]; f.Opens != times || f.Ops != times || f.Written != times*size || f.Open != 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
