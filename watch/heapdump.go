package watch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/snapshot"
	"github.com/sliverprof/sliver/target"
)

// wantsHeap reports whether a rule about the Java heap fired.
func (a *ask) wantsHeap() bool {
	for _, f := range a.fired {
		if f.Rule.Subject().Heap {
			return true
		}
	}
	return false
}

// heapEnding is that of a heap dump beside a dump: packed, which is the smallest form.
const heapEnding = ".spack"

// heapDump writes the Java heap of the process beside a dump, from a copy of the process or
// else through its attach socket.
func (t *watched) heapDump(ctx context.Context, stem string) (path string, err error) {
	path = stem + heapEnding
	out, err := hprof.Create(path)
	if err != nil {
		return "", err
	}
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := t.writeHeap(ctx, w)
		w.CloseWithError(err)
		wrote <- err
	}()
	err = hprof.Pack(out, r)
	r.CloseWithError(err)
	if e := <-wrote; e != nil {
		err = e
	}
	if err != nil {
		out.Abort()
		return "", fmt.Errorf("heap dump of process %d: %w", t.pid, err)
	}
	return path, out.Close()
}

func (t *watched) writeHeap(ctx context.Context, w io.Writer) error {
	b := bufio.NewWriterSize(w, 1<<20)
	j, err := snapshot.Take(ctx, t.proc, target.SnapshotOptions{})
	switch {
	case err == nil:
		_, err = j.WriteHPROF(ctx, b)
		if e := j.Close(); e != nil {
			t.w.log.Error("a copy of the process left something", "pid", t.pid, "error", e)
		}
		t.w.log.Info("copied for a heap dump", "pid", t.pid, "stopped", j.Frozen, "objects", j.Heap.Objects, "dropped", j.Heap.Nulled, "skipped", j.Heap.Skipped)
	case snapshot.Fallback(err):
		t.w.log.Warn("no copy for a heap dump: through the attach socket", "pid", t.pid, "error", err)
		_, err = snapshot.Stream(ctx, t.proc, b)
	}
	return errors.Join(err, b.Flush())
}
