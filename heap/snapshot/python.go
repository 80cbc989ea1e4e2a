package snapshot

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/sliverprof/sliver/heap/python"
	"github.com/sliverprof/sliver/target"
)

// Python are the objects of a CPython process at one moment.
type Python struct {
	*python.Census
	Frozen time.Duration // the time that the process was stopped for
	Scan   time.Duration
	Left   error // describes a zombie that could not be removed, or nil
}

// IsPython reports whether a process has CPython, by the names of the files that it has mapped.
func IsPython(p *target.Process) bool {
	maps, err := p.Maps()
	if err != nil {
		return false
	}
	for _, m := range maps {
		if name := filepath.Base(m.Path); strings.HasPrefix(name, "python") || strings.HasPrefix(name, "libpython") {
			return true
		}
	}
	return false
}

// TakePython copies a process and counts its Python objects. See target.Process.Snapshot for
// errors; python.ErrNone: it has none.
func TakePython(ctx context.Context, p *target.Process, o target.SnapshotOptions) (*Python, error) {
	s, err := p.Snapshot(o)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	c, err := python.Take(ctx, s, s.Maps())
	left := s.Close()
	if err != nil {
		return nil, errors.Join(err, left)
	}
	return &Python{Census: c, Frozen: s.Frozen, Scan: time.Since(begin), Left: left}, nil
}

// HoldersOf copies a process and finds what holds its Python objects of a class, conservatively.
// Errors are those of TakePython.
func HoldersOf(ctx context.Context, p *target.Process, name string, o target.SnapshotOptions) (h *python.Holdings, frozen time.Duration, err error) {
	s, err := p.Snapshot(o)
	if err != nil {
		return nil, 0, err
	}
	h, err = python.Holders(ctx, s, s.Maps(), name)
	return h, s.Frozen, errors.Join(err, s.Close())
}
