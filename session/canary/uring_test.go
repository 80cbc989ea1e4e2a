package canary

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestRings reads and syncs a file through io_uring: no system call has that, and the sums have it all, also
// that of a registered file, of a call that fails, and of two files that io_uring opens one after the other.
func TestRings(t *testing.T) {
	if b, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); err == nil && strings.TrimSpace(string(b)) != "0" {
		t.Skip("io_uring is switched off: kernel.io_uring_disabled is not 0")
	}
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	const reads = 50
	s, own := runEach(t, nil, "uring", path, reads)
	if own != reads {
		t.Fatal(own)
	}
	for _, f := range s.Engine.Files() {
		if f.Path == path && f.Ops+f.Syncs > 0 {
			t.Errorf("its system calls: %+v", f)
		}
	}
	all := s.Rings()
	got := map[string]RingFile{}
	for _, f := range all {
		got[f.Path] = f
	}
	if f := got[path]; f.Ops != reads+1 || f.Read != reads+1 || f.Syncs != reads/5 || f.Errors != 0 || f.Time == 0 || f.Longest == 0 || f.Longest > f.Time {
		t.Errorf("%+v", all)
	}
	if f := got["descriptor 999"]; f.Errors != 1 || f.Ops != 0 || f.Read != 0 || len(all) != 5 {
		t.Errorf("%+v", all)
	}
	if f := got["no descriptor"]; f.Others != 4 || f.Ops+f.Syncs+f.Errors != 0 { // opens and closes
		t.Errorf("%+v", all)
	}
	for i, reads := range []uint64{3, 4} { // of one descriptor
		if f := got[path+"."+strconv.Itoa(i)]; f.Ops != reads || f.Read != reads || f.Others+f.Errors != 0 {
			t.Errorf("%d: %+v", i, all)
		}
	}
	if line := s.uringLine(); !strings.Contains(line, "73 operations through io_uring, which passes by these system calls, so that no rule sees it") {
		t.Error(line)
	}
}
