package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/internal/testprog"
)

// The use of the heap that is read without a stop is about what a walk through a copy finds.
func TestMeter(t *testing.T) {
	testprog.Unraced(t, oneGoroutine)
	for _, c := range [][]string{{"17", "-XX:+UseSerialGC"}, {"21", "-XX:+UseParallelGC"}, {"25", "-XX:+UseSerialGC"}, {"25", "-XX:+UseG1GC"}, {"25", "-XX:+UseZGC"}} {
		t.Run(strings.Join(c, ""), func(t *testing.T) {
			if c[0] == "21" || c[0] == "25" && c[1] != "-XX:+UseZGC" {
				testprog.Whole(t, "the oldest Java, and counters of a newer one")
			}
			proc := java(t, c[0], "map,list,array", c[1])
			p := open(t, proc.PID)
			m, err := NewMeter(p)
			if err != nil {
				t.Fatal(err)
			}
			used, limit, err := m.Read()
			if err != nil {
				t.Fatal(err)
			}
			if c[1] == "-XX:+UseZGC" { // by the counters
				if used < 0 || limit != 256<<20 {
					t.Errorf("%d of %d bytes in use", used, limit)
				}
				return
			}
			j := take(t, p)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			walked := int64(j.Heap.Bytes)
			if limit != 256<<20 || used < walked*95/100 || used > walked*11/10+4<<20 {
				t.Errorf("%d of %d bytes in use, a walk found %d", used, limit, walked)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		proc := java(t, "25", "map", "-XX:-UsePerfData", "-XX:+UseZGC")
		if _, err := NewMeter(open(t, proc.PID)); err == nil {
			t.Error("counters of a virtual machine without any")
		}
	})
}

func FuzzPerfUsed(f *testing.F) {
	// A file of this machine's, where there is one.
	all, _ := filepath.Glob("/tmp/hsperfdata_*/*")
	for _, path := range all[:min(1, len(all))] {
		if b, err := os.ReadFile(path); err == nil {
			f.Add(b)
		}
	}
	f.Add(append([]byte{0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1}, make([]byte, 64)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := hotspot.PerfUsed(b); err == nil && len(b) < 32 {
			t.Error("counters of a few bytes")
		}
	})
}
