package leak

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hprof"
)

// Any bytes: all detectors and reports, without a panic.
func FuzzFind(f *testing.F) {
	d := androidDump()
	leak := d.Instance("app.Main", map[string]any{"mDestroyed": true})
	hold(d, "app.A", leak, d.Bytes(make([]byte, 100)), d.Instance("app.List", map[string]any{"mCalled": true}))
	d.Root(hprof.SubRootThread, leak, 1, 1)
	f.Add(d.Encode(), uint8(0))
	if b, err := os.ReadFile(os.Getenv("SLIVER_HPROF_SEED")); err == nil {
		f.Add(b, uint8(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, level uint8) {
		g, err := graph.New(t.Context(), bytes.NewReader(b), int64(len(b)), graph.Options{Level: graph.Level(level%4 + 1), Partial: true, Workers: 1, Temp: t.TempDir()})
		if err != nil {
			return
		}
		defer g.Close()
		r, err := Find(t.Context(), g, "fuzz", Options{Tree: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, write := range []func(io.Writer) error{r.WriteText, r.WriteJSON, r.WriteHTML} {
			if err := write(io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		if r.Tree != nil {
			if err := r.Tree.WriteProfile(io.Discard, true); err != nil {
				t.Fatal(err)
			}
		}
		for version := 1; version <= 2; version++ {
			if k, err := FindKOOM(t.Context(), g, version); err == nil {
				k.WriteJSON(io.Discard)
			}
		}
		if g.Level() != graph.LevelHistogram {
			for o := graph.Object(1); int(o) <= min(g.Len(), 5); o++ {
				ShowObject(io.Discard, g, o, 3, false)
			}
		}
	})
}
