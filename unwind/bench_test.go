package unwind

import (
	"io"
	"os"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

func benchmarkWarm(b *testing.B, chain string, flags ...string) {
	tc := toolchain{cc: "gcc", arch: rule.AMD64, flags: flags}
	d := runDump(b, tc, compile(b, tc, "chain.c"), chain)
	s := NewSpace(tc.arch, hostFiles{}, d)
	s.Update(d.maps)
	w := NewWalker(s)
	var th Thread
	frames, reason := w.Walk(&th, &d.regs, &d.mem)
	if reason != stack.ReasonNone {
		b.Fatalf("%d frames, %v", len(frames), reason)
	}
	n := len(frames)
	b.ReportAllocs()
	steps := 0
	for b.Loop() {
		w.Walk(&th, &d.regs, &d.mem)
		steps += n
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
	b.ReportMetric(float64(n), "steps")
}

// BenchmarkWarmStep walks stacks whose rules are cached.
func BenchmarkWarmStep(b *testing.B) {
	b.Run("short", func(b *testing.B) { benchmarkWarm(b, "busy", "-O2") })
	b.Run("deep", func(b *testing.B) { benchmarkWarm(b, "deep", "-O2") })
	b.Run("framepointer", func(b *testing.B) { benchmarkWarm(b, "deep", "-O0") })
	b.Run("signal", func(b *testing.B) { benchmarkWarm(b, "signal", "-O2") })
	b.Run("realigned", func(b *testing.B) { benchmarkWarm(b, "realigned", "-O2") })
}

// BenchmarkColdRule compiles every rule of a walk: the cost of an address that is seen first.
func BenchmarkColdRule(b *testing.B) {
	tc := toolchain{cc: "gcc", arch: rule.AMD64, flags: []string{"-O2"}}
	d := runDump(b, tc, compile(b, tc, "chain.c"), "sorted")
	s := NewSpace(tc.arch, hostFiles{}, d)
	s.Update(d.maps)
	w := NewWalker(s)
	var th Thread
	steps := 0
	for b.Loop() {
		w.forget()
		frames, _ := w.Walk(&th, &d.regs, &d.mem)
		steps += len(frames)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
}

type counter struct {
	r io.ReaderAt
	n int64
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.n += int64(n)
	return n, err
}

// BenchmarkLoad opens a file and looks up one rule. Nothing else may be read.
func BenchmarkLoad(b *testing.B) {
	for _, path := range []string{"/usr/bin/node", "/lib/x86_64-linux-gnu/libc.so.6"} {
		b.Run(path, func(b *testing.B) {
			f, err := os.Open(path)
			need(b, "node", err)
			defer f.Close()
			b.ReportAllocs()
			var c counter
			for b.Loop() {
				c = counter{r: f}
				t, err := cfi.Load(&c, rule.AMD64)
				if err != nil {
					b.Fatal(err)
				}
				e, err := cfi.OpenELF(f)
				if err != nil {
					b.Fatal(err)
				}
				var r rule.Rule
				if err := t.Rule(e.Entry, &r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(c.n), "read-bytes/op")
		})
	}
	b.Run("module/node", func(b *testing.B) {
		need(b, "node", func() error { _, err := os.Stat("/usr/bin/node"); return err }())
		for b.Loop() {
			s := NewSpace(rule.AMD64, opener{}, nil)
			s.Update([]stack.Mapping{{Start: 1 << 20, End: 2 << 20, Inode: 1, Exec: true, Path: "/usr/bin/node"}})
			if err := s.Preload(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type opener struct{}

func (opener) Open(m stack.Mapping) (io.ReaderAt, error) { return os.Open(m.Path) }
