package export

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/trace"
)

func TestZZMem(t *testing.T) {
	f, _ := os.Open("/tmp/exportwork/mem/big.sliver")
	fi, _ := f.Stat()
	for _, fm := range Formats() {
		if fm.Recording() {
			continue
		}
		rec, err := trace.Open(f, fi.Size())
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		for _, th := range rec.Threads {
			n += rec.Count(th.Seq)
		}
		runtime.GC()
		var peak atomic.Uint64
		stop := make(chan bool)
		go func() {
			s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				metrics.Read(s)
				if v := s[0].Value.Uint64() + s[1].Value.Uint64(); v > peak.Load() {
					peak.Store(v)
				}
			}
		}()
		var a, b syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &a)
		files, err := Write(Output{filepath.Join(t.TempDir(), "x"), fm}, rec, Options{})
		syscall.Getrusage(syscall.RUSAGE_SELF, &b)
		close(stop)
		cpu := time.Duration(b.Utime.Nano() + b.Stime.Nano() - a.Utime.Nano() - a.Stime.Nano())
		sz := int64(0)
		for _, x := range files {
			sz += x.Bytes
		}
		t.Logf("%-14s events %d, peak heap %d MB, cpu %v, %.2f M/s, %d MB, %v", fm.Name, n, peak.Load()>>20, cpu, float64(n)/cpu.Seconds()/1e6, sz>>20, err)
	}
}
