package iowatch

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// connect makes a connection that lasts for life, with an answer after took (ns); 0: none.
func (s *script) connect(peer string, took, life int64) {
	s.fd, s.gen = 7, s.gen+1
	at := s.now
	s.e.Apply(&Event{Op: OpMake, End: at, TID: s.tid, FD: 7, Gen: s.gen, Ret: 7, Kind: KindSocket, Size: -1, Stack: 1, Call: "socket"})
	s.e.Apply(&Event{Op: OpConnect, End: at, TID: s.tid, FD: 7, Gen: s.gen, Path: peer, Size: -1, Stack: 2, Call: "connect"})
	s.e.Apply(&Event{Op: OpWrite, End: at, TID: s.tid, FD: 7, Gen: s.gen, Want: 30, Ret: 30, Kind: KindSocket, Size: -1})
	if took > 0 {
		s.e.Apply(&Event{Op: OpRead, End: at + stack.Time(took), TID: s.tid, FD: 7, Gen: s.gen, Want: 100, Ret: 60, Kind: KindSocket, Size: -1})
	}
	s.now = at + stack.Time(life)
	s.e.Apply(&Event{Op: OpClose, End: s.now, TID: s.tid, FD: 7, Gen: s.gen, Size: -1})
}

// TestConnections has for each rule connections that just fire it, and ones that just do not.
func TestConnections(t *testing.T) {
	many := func(n int, apart, life int64) func(*script) {
		return func(s *script) {
			for i := range n {
				s.now = stack.Time(1e9 + int64(i)*apart)
				s.connect("10.0.0.1:5432", life/2, life)
			}
		}
	}
	for _, c := range []struct {
		name, rule string
		do         func(*script)
		want       string
	}{
		{"an answer after 101 ms", "dns", func(s *script) { s.connect("1.1.1.1:53", 101*ms, 200*ms) }, "dns:1"},
		{"an answer after 100 ms", "dns", func(s *script) { s.connect("1.1.1.1:53", 100*ms, 200*ms) }, ""},
		{"no answer for 101 ms", "dns", func(s *script) { s.connect("[::1]:53", 0, 101*ms) }, "dns:0"},
		{"no answer for 100 ms", "dns", func(s *script) { s.connect("[::1]:53", 0, 100*ms) }, ""},
		{"another port", "dns", func(s *script) { s.connect("1.1.1.1:80", 500*ms, 600*ms) }, ""},
		{"port 10053", "dns", func(s *script) { s.connect("1.1.1.1:10053", 500*ms, 600*ms) }, ""},
		{"a lower limit", "dns slow=50ms", func(s *script) { s.connect("1.1.1.1:53", 51*ms, 200*ms) }, "dns:1"},
		{"11 in less than a second", "churn", many(11, 99*ms, 10*ms), "churn:11"},
		{"10 in less than a second", "churn", many(10, 99*ms, 10*ms), ""},
		{"11 in a second", "churn", many(11, 100*ms, 10*ms), ""},
		{"11 that live for a second", "churn", many(11, 1, 1000*ms), ""},
		{"11 that live for 999 ms", "churn", many(11, 1, 999*ms), "churn:11"},
		{"11 peers", "churn", func(s *script) {
			for i := range 11 {
				s.connect("10.0.0.1:"+strings.Repeat("1", i+1), ms, 2*ms)
			}
		}, ""},
		{"11 without a transfer", "churn", func(s *script) {
			for range 11 {
				s.gen++
				s.e.Apply(&Event{Op: OpConnect, End: s.now, TID: s.tid, FD: 7, Gen: s.gen, Path: "10.0.0.1:80", Size: -1})
				s.e.Apply(&Event{Op: OpClose, End: s.now + 1, TID: s.tid, FD: 7, Gen: s.gen, Size: -1})
			}
		}, ""},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			s := newScript(t, c.rule)
			c.do(s)
			if got := s.rules(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestPeers: the connections to one peer are one line of the table.
func TestPeers(t *testing.T) {
	s := newScript(t, "churn")
	for range 5 {
		s.connect("/run/db.sock", ms, 2*ms)
	}
	for _, f := range s.e.Files() {
		if f.Path == "socket to /run/db.sock" {
			if f.Opens != 5 || f.Ops != 10 || f.Written != 150 || f.Got-f.Written != 300 || f.Kind != KindSocket {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Errorf("%+v", s.e.Files())
}

// TestMainOnly: Matrix's two rules apply to all threads unless the main one is chosen.
func TestMainOnly(t *testing.T) {
	for _, c := range []struct {
		rule, threads, want string
		tid                 stack.TID
	}{{"small-buffer", "", "small-buffer:0", worker}, {"small-buffer", " threads=main", "", worker}, {"small-buffer", " threads=main", "small-buffer:0", main},
		{"repeat-read", " threads=all", "repeat-read:5", worker}, {"repeat-read", " threads=main", "", worker}, {"repeat-read", " threads=main", "repeat-read:5", main}} {
		s := newScript(t, c.rule+c.threads)
		s.tid = c.tid
		for range 5 {
			s.open("/data/f")
			for range 21 {
				s.io(OpRead, 0, ms, 10)
			}
			s.close()
			s.now -= stack.Time(20 * ms) // within 17 ms of the entry before
		}
		if got := s.rules(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestSlow: each slow operation of the main thread or an event loop is reported when it ends.
func TestSlow(t *testing.T) {
	s := newScript(t, "main-io", "loop-io")
	var got []string
	s.e.Slow = func(f *Finding) { got = append(got, string(f.Rule)+" "+f.Path+" "+f.Advice()) }
	s.open("/data/f")
	for range 3 {
		s.io(OpRead, 0, 14*ms, 10)
		s.io(OpRead, 0, 13*ms, 10)
	}
	if len(got) != 3 || got[0] != "main-io /data/f One operation on f held the main thread for 14ms: move it to another thread." {
		t.Errorf("%q", got)
	}
	s.io(OpSync, 0, 20*ms, 0)
	s.tid = worker
	s.io(OpRead, 0, 14*ms, 10)
	if len(got) != 4 || !strings.HasPrefix(got[3], "main-io /data/f fsync of f ") {
		t.Errorf("%q", got)
	}
}

// TestOpenedForWriting: for a file that is written, the advice differs.
func TestOpenedForWriting(t *testing.T) {
	for flags, want := range map[int64]string{0o100: "read it once and keep the result", 0o102: "for writing 20 times in a short time: keep it open.", 0o101: "for writing 20 times in a short time: keep it open."} {
		s := newScript(t, "repeat-open")
		for range 20 {
			s.gen++
			s.e.Apply(&Event{Op: OpOpen, End: s.now, TID: s.tid, FD: 3, Gen: s.gen, Ret: 3, Want: flags, Kind: KindFile, Path: "/x/journal", Size: 10, Stack: 7})
			s.close()
		}
		if all := s.e.Findings(); len(all) != 1 || !strings.Contains(all[0].Advice(), want) {
			t.Errorf("%o: %+v", flags, all)
		}
	}
}

// TestWholeStacks: a finding whose stack lacks frames gets a complete one when the rule fires again, and
// is not reported a second time.
func TestWholeStacks(t *testing.T) {
	s := newScript(t, "main-io")
	s.e.Complete = func(id StackID) bool { return id != 8 }
	slow := func(at StackID) {
		s.at = at
		s.open("/data/f")
		s.io(OpRead, 0, 14*ms, 10)
		s.close()
	}
	slow(8)
	slow(8)
	if got := s.e.Findings(); len(got) != 1 || got[0].Stack != 8 {
		t.Fatalf("%+v", got)
	}
	slow(9)
	if got := s.e.Findings(); len(got) != 1 || got[0].Stack != 9 {
		t.Fatalf("%+v", got)
	}
	s.e.Complete = func(id StackID) bool { return id < 20 && id != 8 }
	slow(8) // the incomplete one is known
	slow(20)
	slow(9)
	if got := s.e.Findings(); len(got) != 1 || got[0].Stack != 9 {
		t.Fatalf("%+v", got)
	}
	slow(10)
	if got := s.e.Findings(); len(got) != 2 || got[1].Stack != 10 {
		t.Fatalf("%+v, %+v", got[0], got[1])
	}
}

// TestLateClose: another thread has the number of a closed descriptor before the record of its close
// comes. The sums that come with that count, and a close whose record was lost counts after a while.
func TestLateClose(t *testing.T) {
	s := newScript(t, "leak")
	open := func(gen uint32, path string) {
		s.e.Apply(&Event{Op: OpOpen, End: s.now, TID: s.tid, FD: 3, Gen: gen, Ret: 3, Kind: KindFile, Path: path, Size: 10, Stack: 7})
	}
	open(1, "/a")
	open(3, "/b")
	s.e.Apply(&Event{Op: OpClose, End: s.now, TID: s.tid, FD: 3, Gen: 1, Kind: KindFile, Size: 10, Sums: &Sums{Ops: 5, Want: 50}})
	open(5, "/c") // the close of /b is lost
	open(6, "/d") // that of /c was none, as with dup2
	now := map[string]File{}
	for _, f := range s.e.Files() {
		now[f.Path] = f
	}
	if now["/a"].Ops != 5 || now["/a"].Open != 0 || now["/b"].Open != 0 || now["/c"].Open != 0 || now["/d"].Open != 1 || len(s.e.open) != 2 {
		t.Errorf("%+v, %d open", now, len(s.e.open))
	}
	s.now += stack.Time(5001 * ms)
	s.e.Tick(s.now)
	if len(s.e.open) != 1 {
		t.Errorf("%d open", len(s.e.open))
	}
}

// TestCopied: the operations on a copy of a descriptor are in the sums of its file, and it is not an open.
func TestCopied(t *testing.T) {
	s := newScript(t)
	s.open("/data/f")
	for _, call := range []string{"dup", "dup3", "fcntl"} {
		s.gen++
		s.e.Apply(&Event{Op: OpMake, End: s.now, TID: s.tid, FD: 9, Gen: s.gen, Ret: 9, Kind: KindFile, Size: 10, Stack: 99, Call: call})
		s.e.Apply(&Event{Op: OpWrite, End: s.now, Took: 1, TID: s.tid, FD: 9, Gen: s.gen, Want: 5, Ret: 5, Kind: KindFile, Size: 10})
		s.e.Name(9, s.gen, "/data/f", KindFile)
		s.e.Apply(&Event{Op: OpClose, End: s.now, TID: s.tid, FD: 9, Gen: s.gen, Kind: KindFile, Size: 10})
	}
	if all := s.e.Files(); len(all) != 1 || all[0].Opens != 1 || all[0].Ops != 3 || all[0].Written != 15 || all[0].Stack != s.at {
		t.Errorf("%+v", all)
	}
}

// TestShortLived: descriptors that are closed before their names are read are lines of the table by the call that
// made them.
func TestShortLived(t *testing.T) {
	s := newScript(t)
	for i := range 3 {
		s.fd, s.gen = 9, s.gen+2
		s.e.Apply(&Event{Op: OpMake, End: s.now, TID: s.tid, FD: 9, Gen: s.gen, Ret: 9, Kind: KindFIFO, Size: -1, Stack: 1, Call: "pipe2"})
		if i == 2 {
			s.e.Name(9, s.gen, "pipe:[7]", KindFIFO) // it was open for longer
		}
		s.e.Apply(&Event{Op: OpWrite, End: s.now + 1, Took: 1, TID: s.tid, FD: 9, Gen: s.gen, Want: 5, Ret: 5, Kind: KindFIFO, Size: -1})
		s.e.Apply(&Event{Op: OpClose, End: s.now + 2, TID: s.tid, FD: 9, Gen: s.gen, Size: -1})
	}
	// One whose open was not seen has no name.
	s.e.Apply(&Event{Op: OpWrite, End: s.now + 3, Took: 1, TID: s.tid, FD: 11, Gen: 1, Want: 5, Ret: 5, Kind: KindFIFO, Size: -1})
	s.e.Apply(&Event{Op: OpClose, End: s.now + 4, TID: s.tid, FD: 11, Gen: 1, Size: -1})
	want := map[string]uint64{"short-lived descriptors of pipe2": 2, "pipe:[7]": 1}
	for _, f := range s.e.Files() {
		if n := want[f.Path]; n == 0 || f.Opens != n || f.Ops != n || f.Written != 5*n || f.Kind != KindFIFO {
			t.Errorf("%+v", f)
		}
		delete(want, f.Path)
	}
	if len(want) > 0 {
		t.Errorf("%v are missing", want)
	}
}
