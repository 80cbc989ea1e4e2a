package watch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/dumps"
)

// smallDisk mounts a separate file system of the given size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	testprog.Need(t, "root")
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		testprog.Lack(t, "mount", "no tmpfs can be mounted: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill uses up the free space and returns a function that frees it.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for b := bytes.Repeat([]byte{1}, 4096); err == nil; {
		_, err = f.Write(b)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A full disk costs the dump, with a message and no partial file, but not the recording. When
// space is available again, dumps work again and contain the samples recorded in between.
func TestDiskFull(t *testing.T) {
	p := trouble(t)
	disk := smallDisk(t, "4m")
	r := begin(t, fixed(t, p.PID), func(o *Options) {
		o.Store = &dumps.Store{Dir: disk}
		o.Formats = []string{".folded"}
	}, "call marker_function,cool=0s")
	r.samples(100)
	free := fill(t, disk)
	// More than one, as on a busy machine no check may happen during a single run of the
	// function.
	for i, what := range []string{"by request", "by a trigger", "by a second one", "by a third one", "by a fourth one"} {
		if i == 0 {
			if _, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: %v", what, err)
			}
		} else {
			p.Say("mark")
			p.Line("mark")
		}
		s := r.until("for a dump that fails "+what, func(s *control.Status) bool { return s.Failed == i+1 })
		if !strings.Contains(s.Trouble, "no space left on device") || len(s.Dumps) > 0 {
			t.Errorf("%s: %+v", what, s)
		}
		if left, err := os.ReadDir(disk); err != nil || len(left) != 1 {
			t.Errorf("%s: left behind: %v, %v", what, left, err)
		}
		r.samples(s.Targets[0].Samples + 100) // it continues
	}
	free()
	ds, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil)
	if err != nil || len(ds[0].Files) != 2 {
		t.Fatalf("%+v, %v", ds, err)
	}
	rec := open(t, ds[0].Files[0])
	if f := look(rec, 0, "marker_function"); f.longest == 0 {
		t.Error("what happened while the disk was full is not in the next dump")
	}
	for _, th := range rec.Stats.Threads {
		if th.Denied > 0 || th.Samples == 0 {
			t.Errorf("%+v", th)
		}
	}
}

// Without space for ring files the recorder continues with the memory it has: threads are still
// sampled, and it reports that less is kept.
func TestRingDiskFull(t *testing.T) {
	p := trouble(t)
	disk := smallDisk(t, "1m")
	for _, full := range []bool{false, true} {
		if full {
			fill(t, disk)
		}
		r := begin(t, fixed(t, p.PID), func(o *Options) { o.RingDir = disk; o.Keep = 0; o.KeepBytes = 64 << 20 })
		r.samples(300)
		s := r.Status()
		if inFile := s.Targets[0].RingFile != ""; inFile == full {
			t.Errorf("full %v: the rings are in %q", full, s.Targets[0].RingFile)
		}
		ds, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil)
		if err != nil || ds[0].Threads < 4 {
			t.Fatalf("full %v: %+v, %v", full, ds, err)
		}
		open(t, ds[0].Files[0])
		r.stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		close(r.ended)
	}
}
