package dumps

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	s := &Store{Dir: dir, Max: 3, MaxBytes: 1000}
	others := []string{"notes.txt", "server-20260101-000000.000-stall.txt", "x.sliver", ".server-20260101-000000.000-stall.sliver.00.partial"}
	for _, o := range others {
		put(t, filepath.Join(dir, o), 5000)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	var stems []string
	for i := range 5 {
		stem := s.Stem("my/server", at.Add(time.Duration(i)*time.Millisecond), "stall")
		if i == 0 && filepath.Base(stem) != "my_server-20260102-030405.006-stall" {
			t.Errorf("stem %s", stem)
		}
		if removed, err := s.Trim(1, 100); err != nil || len(removed) != max(0, min(1, i-2)) {
			t.Errorf("%d: removed %v, %v", i, removed, err)
		}
		put(t, stem+".sliver", 100)
		put(t, stem+".pb.gz", 20)
		stems = append(stems, stem)
	}
	check := func(want ...string) {
		t.Helper()
		all, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range all {
			got = append(got, d.Stem)
			if d.Target != "my_server" || d.Reason != "stall" || len(d.Files) != 2 || d.Bytes != 120 {
				t.Errorf("%+v", d)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check(stems[2:]...)
	if removed, err := s.Trim(0, 800); err != nil || len(removed) != 2 { // 360 and 800
		t.Errorf("%v, %v", removed, err)
	}
	check(stems[4])
	if removed, err := s.Trim(1, 5000); err != nil || len(removed) != 1 {
		t.Errorf("%v, %v", removed, err)
	}
	check()
	for _, o := range others {
		if _, err := os.Stat(filepath.Join(dir, o)); err != nil {
			t.Error(err)
		}
	}
}

func put(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
}
