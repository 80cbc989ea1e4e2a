package canary

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// stored makes a file with this many pages on a file system that has a disk.
func stored(t *testing.T, pages int) string {
	t.Helper()
	const tmpfs = 0x01021994
	dir := t.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type == tmpfs {
		t.Skip("the temporary folder is in memory: its files are always in the page cache")
	}
	path := filepath.Join(dir, "stored")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, pages*4096)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil { // pages that are not on disk stay in the cache
		t.Fatal(err)
	}
	return path
}

// TestCacheMisses reads pages that are not in the page cache, and then the same ones again: the sums have
// those reads that waited, by the program's own account, and the rule fires for the first time only. A disk may
// be so fast that the data is there before the thread sleeps, so the file is one that takes a while.
func TestCacheMisses(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	const pages = 200
	path := mount(t, &slowFile{delay: time.Millisecond, size: 3 * pages * 4096, cached: true})
	s, own := runEach(t, []string{"cache-miss count=100 time=0s within=60s"}, "cold", path, pages)
	fileOf := func(s *seen) iowatch.File {
		all := s.Engine.Files()
		i := slices.IndexFunc(all, func(f iowatch.File) bool { return f.Path == path })
		if i < 0 {
			t.Fatalf("%s is missing", path)
		}
		return all[i]
	}
	if own < pages*9/10 {
		t.Errorf("%d of %d reads waited", own, pages)
	}
	f := fileOf(s)
	if int(f.Misses) != own || f.Missed == 0 || f.Missed > f.Time || f.Ops != pages || f.Faults != 0 {
		t.Errorf("%d of %d reads, %d ns of %d; the program has %d", f.Misses, f.Ops, f.Missed, f.Time, own)
	}
	missed := 0
	for i := range s.ops {
		if o := &s.ops[i]; o.path == path && o.Missed {
			missed++
		}
	}
	if missed != int(f.Misses) {
		t.Errorf("%d operations waited, the sums have %d", missed, f.Misses)
	}
	x := only(t, s)
	if x.Rule != iowatch.CacheMiss || x.Path != path || x.Count != int(f.Misses) || x.Ops != pages || !strings.Contains(s.stackOf(x.Where), "main ") || !strings.Contains(s.stackOf(x.Stack), "opening ") ||
		!strings.Contains(x.Advice(), "of 200 reads of file waited for storage") {
		t.Errorf("%+v at %s: %s", x, s.stackOf(x.Where), x.Advice())
	}
	// One read less than the rule needs.
	below, own := runEach(t, []string{fmt.Sprintf("cache-miss count=%d time=0s within=60s", pages+1)}, "cold", path, pages)
	if all := below.Engine.Findings(); len(all) > 0 || own < pages*9/10 {
		t.Errorf("%d findings of %d reads that waited", len(all), own)
	}
	// As the last run, but without evicting: small reads of pages that are in memory.
	again, _, _ := filesRun(t, []string{"cache-miss count=1 time=0s within=60s"}, "read", path, pages, 100)
	if f := fileOf(again); f.Misses != 0 && f.Misses > 1 || f.Ops != pages {
		t.Errorf("in memory: %+v", f)
	}
}

// TestPageFaults touches mapped pages that are not in the page cache: each is a fault of that file, with the
// place that touched it.
func TestPageFaults(t *testing.T) {
	const pages = 200
	path := stored(t, 3*pages)
	s, own := runEach(t, []string{"page-fault count=100 time=0s within=60s"}, "mapped", path, pages)
	if own < pages*9/10 {
		t.Skipf("%d of %d pages were not in the page cache: another program reads the file", own, pages)
	}
	faults, stacks, took := 0, 0, int64(0)
	for i := range s.ops {
		o := &s.ops[i]
		if o.Op != iowatch.OpFault || o.path != path {
			continue
		}
		faults++
		took += o.Busy()
		if o.Stack != 0 {
			stacks++
			if got := s.stackOf(o.Stack); !strings.HasPrefix(got, "touching evicted main ") {
				t.Errorf("touched at %s", got)
			}
		}
	}
	if faults != own || stacks < 50 || stacks > own || took == 0 {
		t.Errorf("%d faults with %d stacks and %d ns; the program has %d", faults, stacks, took, own)
	}
	for _, f := range s.Engine.Files() {
		if f.Path == path && (int(f.Faults) != own || int64(f.Faulted) != took || f.Ops != 0) {
			t.Errorf("%+v", f)
		}
	}
	all := s.Engine.Findings()
	of := func(f *iowatch.Finding) bool { return f.Path == path }
	i := slices.IndexFunc(all, of)
	if i < 0 || all[i].Rule != iowatch.PageFault || all[i].Count != own || !strings.Contains(s.stackOf(all[i].Where), "touching ") {
		t.Errorf("%+v", all)
	}
	below, own := runEach(t, []string{fmt.Sprintf("page-fault count=%d time=0s within=60s", pages+1)}, "mapped", path, pages)
	if i := slices.IndexFunc(below.Engine.Findings(), of); i >= 0 {
		t.Errorf("%+v of %d faults", below.Engine.Findings()[i], own)
	}
}

// TestMapped looks up addresses of a program, of memory without a file, and of none.
func TestMapped(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/files", "O2"), "read", "/dev/null", "1", "1")
	p.Ready()
	s := watch(t, p.PID)
	s.end(t)
	maps, err := s.proc.Maps()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := s.proc.Exe()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, m := range maps {
		r := &kernel.IORecord{Addr: m.Start}
		switch path, kind := s.mapped(r); {
		case m.Path == exe:
			seen |= 1
			if path != exe || kind != iowatch.KindFile {
				t.Errorf("%+v: %s", m, path)
			}
		case m.Path == "[heap]" || m.Path == "[stack]":
			seen |= 2
			if path != iowatch.Swapped {
				t.Errorf("%+v: %s", m, path)
			}
		}
	}
	if path, _ := s.mapped(&kernel.IORecord{Addr: 1 << 12}); path != "" || seen != 3 {
		t.Errorf("%s at an address without memory; %d", path, seen)
	}
}
