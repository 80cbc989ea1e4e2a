package iowatch

import (
	"strings"
	"testing"
)

// TestCalls has for each call a time at which main-io and loop-io just fire, and one at which they do not.
func TestCalls(t *testing.T) {
	for call, path := range map[string]string{"newfstatat": "/srv/a", "unlink": "/srv/a", "rename": "/srv/a", "openat": "/srv/a", "getdents64": "", "flock": "", "fcntl": "", "close": ""} {
		for _, c := range []struct {
			rules []string
			took  int64
			main  bool
			loop  bool
			want  string
		}{
			{nil, 131 * ms / 10, true, false, "main-io:1"},
			{nil, 13 * ms, true, false, ""},
			{nil, 129 * ms / 10, true, true, ""},
			{nil, 131 * ms / 10, true, true, "main-io:1"},
			{nil, 131 * ms / 10, false, true, "loop-io:1"},
			{nil, 129 * ms / 10, false, true, ""},
			{nil, 500 * ms, false, false, ""},
			{[]string{"main-io calls=matrix"}, 500 * ms, true, false, ""},
			{[]string{"main-io slow=1ms"}, 11 * ms / 10, true, false, "main-io:1"},
		} {
			s := newScript(t, c.rules...)
			s.open("/srv/b")
			ev := Event{Op: OpCall, End: s.now + 1, Took: c.took, TID: worker, FD: 3, Gen: s.gen, Kind: KindFile, Size: -1, Call: call, Stack: 9, Loop: c.loop}
			if c.main {
				ev.TID = main
			}
			switch {
			case call == "close":
				ev.Op = OpClose
			case path != "":
				ev.FD, ev.Path, ev.Ret = -1, path, -2
			}
			s.e.Apply(&ev)
			if got := s.rules(); got != c.want {
				t.Errorf("%s, %+v: %q", call, c, got)
				continue
			}
			for _, f := range s.e.Findings() {
				file := "/srv/b"
				if path != "" {
					file = path
				}
				if f.Path != file || f.Call != call || f.Where != 9 || f.Longer != c.took || f.Main != c.main || !strings.Contains(f.Advice(), call+" ") {
					t.Errorf("%s: %+v: %s", call, f, f.Advice())
				}
			}
		}
	}
}

// TestCallPlaces: calls on one path at two places are two findings, and their time is in the sums of the path.
func TestCallPlaces(t *testing.T) {
	s := newScript(t, "main-io")
	for _, at := range []StackID{1, 2, 1} {
		s.now++
		s.e.Apply(&Event{Op: OpCall, End: s.now, Took: 20 * ms, TID: main, FD: -1, Path: "/srv/a", Kind: KindFile, Size: -1, Call: "stat", Stack: at})
	}
	if all := s.e.Findings(); len(all) != 2 {
		t.Errorf("%d findings", len(all))
	}
	// A slow read of the same file is another finding.
	s.open("/srv/a")
	s.io(OpRead, 0, 20*ms, 1)
	s.close()
	if all := s.e.Findings(); len(all) != 3 {
		t.Errorf("%d findings with a read", len(all))
	}
	if f := s.e.Files(); len(f) != 1 || f[0].Path != "/srv/a" || f[0].Time != uint64(80*ms) || f[0].Longest != uint64(20*ms) || f[0].Ops != 1 || f[0].Opens != 1 {
		t.Errorf("%+v", f)
	}
}
