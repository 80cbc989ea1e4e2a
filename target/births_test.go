package target

import (
	"encoding/binary"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/testprog"
)

// perfRecord makes a record as the kernel does, with its time at the end.
func perfRecord(typ uint32, misc uint16, at uint64, words []uint32, tail []byte) []byte {
	var body []byte
	for _, w := range words {
		body = binary.NativeEndian.AppendUint32(body, w)
	}
	body = append(body, tail...)
	for len(body)%8 != 0 {
		body = append(body, 0)
	}
	b := binary.NativeEndian.AppendUint32(nil, typ)
	b = binary.NativeEndian.AppendUint16(b, misc)
	b = binary.NativeEndian.AppendUint16(b, uint16(8+len(body)+8))
	return binary.NativeEndian.AppendUint64(append(b, body...), at)
}

func TestParseBirth(t *testing.T) {
	eight := make([]byte, 8)
	for _, c := range []struct {
		what string
		b    []byte
		want Birth
		lost uint64
		ok   bool
	}{
		{"a process", perfRecord(unix.PERF_RECORD_FORK, 0, 5, []uint32{20, 10, 20, 11}, eight), Birth{Kind: Born, PID: 20, Parent: 10, At: 5}, 0, true},
		{"a thread", perfRecord(unix.PERF_RECORD_FORK, 0, 5, []uint32{10, 10, 21, 10}, eight), Birth{Kind: Threaded, PID: 10, At: 5}, 0, true},
		{"an end", perfRecord(unix.PERF_RECORD_EXIT, 0, 6, []uint32{20, 10, 20, 10}, eight), Birth{Kind: Ended, PID: 20, At: 6}, 0, true},
		{"a thread's end", perfRecord(unix.PERF_RECORD_EXIT, 0, 6, []uint32{20, 20, 21, 20}, eight), Birth{Kind: Unthreaded, PID: 20, At: 6}, 0, true},
		{"an exec", perfRecord(unix.PERF_RECORD_COMM, commExec, 7, []uint32{20, 20}, []byte("cc1\x00")), Birth{Kind: Execed, PID: 20, At: 7, Comm: "cc1"}, 0, true},
		{"a new name", perfRecord(unix.PERF_RECORD_COMM, 0, 7, []uint32{20, 21}, []byte("cc1\x00")), Birth{Kind: Renamed, PID: 20, At: 7, Comm: "cc1"}, 0, true},
		{"a loss", perfRecord(unix.PERF_RECORD_LOST, 0, 8, []uint32{1, 0, 9, 0}, nil), Birth{}, 9, false},
		{"another namespace's", perfRecord(unix.PERF_RECORD_FORK, 0, 5, []uint32{0, 10, 0, 11}, eight), Birth{}, 0, false},
		{"nothing", nil, Birth{}, 0, false},
	} {
		x, lost, ok := parseBirth(c.b)
		if ok != c.ok || lost != c.lost || ok && x != c.want {
			t.Errorf("%s: %+v, %d, %v", c.what, x, lost, ok)
		}
	}
}

func FuzzParseBirth(f *testing.F) {
	f.Add(perfRecord(unix.PERF_RECORD_COMM, commExec, 7, []uint32{20, 20}, []byte("cc1\x00")))
	f.Add(perfRecord(unix.PERF_RECORD_FORK, 0, 5, []uint32{20, 10, 20, 11}, make([]byte, 8)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, _, ok := parseBirth(b); ok && x.PID <= 0 {
			t.Errorf("%+v", x)
		}
	})
}

// TestBirths: the kernel reports the child of a shell, its exec and its end.
func TestBirths(t *testing.T) {
	b, err := OpenBirths(0)
	if err != nil {
		testprog.Missing(t, "perf", err.Error())
	}
	defer b.Close()
	cmd := exec.Command("/bin/sh", "-c", "/bin/true; exit 3")
	_ = cmd.Run()
	sh, child := cmd.Process.Pid, 0
	var saw []BirthKind
	for begin := time.Now(); time.Since(begin) < 10*time.Second && len(saw) < 5; {
		for _, x := range b.Next(100 * time.Millisecond) {
			switch {
			case x.Kind == Born && x.PID == sh && x.Parent != os.Getpid():
				t.Errorf("%+v: not a child of %d", x, os.Getpid())
			case x.Kind == Born && x.Parent == sh:
				child = x.PID
				saw = append(saw, x.Kind)
			case x.PID == child && x.Kind == Execed && x.Comm != "true":
				t.Errorf("%+v", x)
			case x.PID == sh && x.Kind != Born, x.PID == child && child != 0:
				saw = append(saw, x.Kind)
			}
		}
	}
	if len(saw) < 4 || b.Lost() > 0 {
		t.Errorf("saw %v of %d and %d, lost %d", saw, sh, child, b.Lost())
	}
}
