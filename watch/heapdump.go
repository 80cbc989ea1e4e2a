package watch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sliverprof/sliver/heap/facts"
	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/leak"
	"github.com/sliverprof/sliver/heap/snapshot"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch/trigger"
)

// Endings of files about the Java heap beside a dump.
const (
	heapEnding  = ".spack" // the heap, packed, which is the smallest form
	leaksEnding = ".leaks.txt"
	koomEnding  = ".koom.json"
)

// reportMemory bounds the analysis of a heap: larger ones are analyzed in less detail, which
// the report says, or in an unlinked file in the folder of the dumps.
const reportMemory = 256 << 20

// reportShare is the smallest share of the heap of a suspect.
const reportShare = .1

// heapFiles returns what the fired rules want about the Java heap, and why.
func (a *ask) heapFiles() (want trigger.HeapFiles, why leak.DumpReason) {
	for _, f := range a.fired {
		if !f.Rule.Subject().Heap {
			continue
		}
		want = want.With(f.Rule.Heap)
		if why = leak.ReasonNearMax; f.Kind == trigger.JavaGrowth {
			why = leak.ReasonGrowth
		}
	}
	return want, why
}

// heapDump writes files about the Java heap beside a dump: from one copy of the process, or
// from the dump that HotSpot writes through its attach socket. It returns those that were written.
func (t *watched) heapDump(ctx context.Context, stem string, want trigger.HeapFiles, why leak.DumpReason) (paths []string, err error) {
	o := heapOutput{t: t, stem: stem, want: want, running: facts.Of(t.proc, why)}
	j, err := snapshot.Take(ctx, t.proc, target.SnapshotOptions{})
	switch {
	case err == nil:
		t.w.log.Info("copied for a heap dump", "pid", t.pid, "stopped", j.Frozen, "objects", j.Heap.Objects, "skipped", j.Heap.Skipped)
		err = o.copied(ctx, j)
		if e := j.Close(); e != nil {
			t.w.log.Error("a copy of the process left something", "pid", t.pid, "error", e)
		}
	case snapshot.Fallback(err):
		t.w.log.Warn("no copy for a heap dump: through the attach socket", "pid", t.pid, "error", err)
		err = o.streamed(ctx)
	}
	if err != nil {
		err = fmt.Errorf("heap of process %d: %w", t.pid, err)
	}
	return o.paths, err
}

// heapOutput writes the files about one heap.
type heapOutput struct {
	t       *watched
	stem    string
	want    trigger.HeapFiles
	running *leak.Running
	paths   []string
}

// copied writes the files from a copy.
func (o *heapOutput) copied(ctx context.Context, j *snapshot.Java) error {
	d, err := j.Dump(ctx)
	if err != nil {
		return err
	}
	if o.want.Dump {
		err = o.pack(func(w io.Writer) error { return d.Write(ctx, w) })
	}
	if !o.want.Leaks && !o.want.KOOM {
		return err
	}
	g, e := graph.New(ctx, d, d.Size(), o.options())
	if e != nil {
		return errors.Join(err, e)
	}
	defer g.Close()
	return errors.Join(err, o.reports(ctx, g))
}

// streamed writes the files from what HotSpot writes: packed first, then read back.
func (o *heapOutput) streamed(ctx context.Context) error {
	err := o.pack(func(w io.Writer) error {
		_, err := snapshot.Stream(ctx, o.t.proc, w, false)
		return err
	})
	if err != nil || !o.want.Leaks && !o.want.KOOM {
		return err
	}
	path := o.paths[0]
	g, err := graph.Open(ctx, path, o.options())
	if err == nil {
		err = o.reports(ctx, g)
		g.Close()
	}
	if !o.want.Dump {
		o.paths = o.paths[1:]
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (o *heapOutput) options() graph.Options {
	return graph.Options{Memory: reportMemory, Temp: o.t.w.o.Store.Dir, Report: o.want.Leaks}
}

// reports writes the reports that are wanted.
func (o *heapOutput) reports(ctx context.Context, g *graph.Graph) (err error) {
	if o.want.Leaks {
		r, e := leak.Find(ctx, g, fmt.Sprintf("process %d", o.t.pid), leak.Options{Share: reportShare})
		if e == nil {
			e = o.file(leaksEnding, r.WriteText)
		}
		err = e
	}
	if o.want.KOOM {
		const version = 2 // the current one
		k, e := leak.FindKOOM(ctx, g, version)
		if e == nil {
			k.Of(o.running)
			e = o.file(koomEnding, k.WriteJSON)
		}
		err = errors.Join(err, e)
	}
	return err
}

// pack writes the heap dump that write writes.
func (o *heapOutput) pack(write func(io.Writer) error) error {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		b := bufio.NewWriterSize(w, 1<<20)
		err := write(b)
		if err == nil {
			err = b.Flush()
		}
		w.CloseWithError(err)
		wrote <- err
	}()
	err := o.file(heapEnding, func(out io.Writer) error { return hprof.Pack(out, r) })
	r.CloseWithError(err)
	if e := <-wrote; e != nil && err == nil {
		err = e
	}
	return err
}

// file writes a file with an ending, of at most the bytes that all dumps may have.
func (o *heapOutput) file(ending string, write func(io.Writer) error) error {
	path := o.stem + ending
	out, err := hprof.Create(path)
	if err != nil {
		return err
	}
	if err := write(&bounded{w: out, left: o.t.w.o.Store.MaxBytes}); err != nil {
		out.Abort()
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := out.Close(); err != nil {
		return err
	}
	o.paths = append(o.paths, path)
	return nil
}

// errLarge says that a file would be larger than all dumps may be.
var errLarge = errors.New("larger than --max-bytes allows")

// bounded is a writer that ends after a number of bytes; 0: it does not.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left != 0 {
		if int64(len(p)) >= b.left {
			return 0, errLarge
		}
		b.left -= int64(len(p))
	}
	return b.w.Write(p)
}
