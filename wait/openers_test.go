package wait

import (
	"slices"
	"testing"

	"github.com/sliverprof/sliver/linux/files"
)

func TestBlockedBy(t *testing.T) {
	const end = 1<<64 - 1
	held := files.FileLock{Class: "POSIX", Write: true, PID: 7, Inode: 5, Start: 10, End: 29}
	for _, c := range []struct {
		what string
		want line
		held func(*files.FileLock)
		in   bool
	}{
		{"the same bytes", line{class: "POSIX", pid: 8, inode: 5, write: true, start: 10, end: 29}, nil, true},
		{"its last byte", line{class: "POSIX", pid: 8, inode: 5, write: true, start: 29, end: end}, nil, true},
		{"what is behind it", line{class: "POSIX", pid: 8, inode: 5, write: true, start: 30, end: end}, nil, false},
		{"what is before it", line{class: "POSIX", pid: 8, inode: 5, write: true, end: 9}, nil, false},
		{"its own", line{class: "POSIX", pid: 7, inode: 5, write: true, end: end}, nil, false},
		{"another file", line{class: "POSIX", pid: 8, inode: 6, write: true, end: end}, nil, false},
		{"another class", line{class: "FLOCK", pid: 8, inode: 5, write: true, end: end}, nil, false},
		{"to read what is written", line{class: "POSIX", pid: 8, inode: 5, end: end}, nil, true},
		{"to read what is read", line{class: "POSIX", pid: 8, inode: 5, end: end}, func(l *files.FileLock) { l.Write = false }, false},
		{"one that waits too", line{class: "POSIX", pid: 8, inode: 5, write: true, end: end}, func(l *files.FileLock) { l.Waiting = true }, false},
		{"flock of its own process", line{class: "FLOCK", pid: 7, inode: 5, write: true, end: end}, func(l *files.FileLock) { l.Class = "FLOCK" }, true},
	} {
		l := held
		if c.held != nil {
			c.held(&l)
		}
		if got := c.want.blockedBy(&l); got != c.in {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// An fdinfo file may be cut at the kernel's page or at our limit: only whole lines
// count.
func FuzzFdinfo(f *testing.F) {
	f.Add([]byte("pos:\t0\nflags:\t0100002\nmnt_id:\t27\nino:\t9977964\nlock:\t1: FLOCK  ADVISORY  WRITE 3565 fe:00:9977964 0 EOF\n"))
	f.Add([]byte("mnt_id:\t27\nlock:\t1: POSIX  ADVISORY  READ 1 00:2b:5 10 29\nlock:\t2: POSIX  ADVI"))
	f.Add([]byte("lock:\n:\nmnt_id"))
	f.Fuzz(func(t *testing.T, b []byte) {
		mount, locks := parseFdinfo(b)
		if again, _ := parseFdinfo(append(slices.Clone(b), "\npos:\t0\n"...)); again != mount && len(b) > 0 && b[len(b)-1] == '\n' {
			t.Errorf("mount %q, then %q", mount, again)
		}
		for i := range locks {
			if locks[i].Class == "" {
				t.Errorf("%+v of %q", locks[i], b)
			}
		}
	})
}

func TestFdinfo(t *testing.T) {
	mount, locks := parseFdinfo([]byte("pos:\t0\nmnt_id:\t27\nlock:\t1: POSIX  ADVISORY  READ 3565 fe:00:99 10 29\nlock:\t2: POSIX  ADVI"))
	want := files.FileLock{ID: 1, Class: "POSIX", PID: 3565, Major: 0xfe, Inode: 99, Start: 10, End: 29}
	if mount != "27" || len(locks) != 1 || locks[0] != want {
		t.Errorf("mount %q, locks %+v", mount, locks)
	}
}
