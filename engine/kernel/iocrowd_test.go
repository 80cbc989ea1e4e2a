package kernel

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sliverprof/sliver/iowatch"
)

// TestIOCrowded does not read the ring: once it is three quarters full, opens have records without stacks, and
// no record is lost for a while.
func TestIOCrowded(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := openIO(t, IOOptions{Slow: time.Minute, Gap: time.Millisecond, SmallOps: 20, Ring: 1 << 20})
	const opens = 60
	for range opens {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if l := e.Losses(); l.Records != 0 || l.Stacks == 0 || l.Stacks > opens {
		t.Errorf("%+v", l)
	}
	stacks, all := 0, 0
	e.Read(func(r *IORecord) {
		if r.Op == iowatch.OpOpen && r.Path == path {
			all++
		}
		if len(r.Memory) > 0 { // also of the programs that this process has loaded
			stacks++
		}
	})
	if all != opens || stacks < 15 || stacks > 30 { // of 36 KiB each
		t.Errorf("%d records of %d opens, %d with a stack", all, opens, stacks)
	}
}
