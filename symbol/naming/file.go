package naming

import (
	"io"
	"maps"
	"slices"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
)

// Source names locations of one file for callers with few lookups: known ones from the
// cache, the others from the file. It keeps little of its decoded data. A Source
// belongs to one goroutine at a time; a nil Source has no names.
type Source struct {
	f       *symbol.File
	o       Options
	buildID string
	known   cache.Table
	fresh   int // number of entries in known that the cache lacks
	fns     functions
}

// Open returns a Source of the file in r, whose path in the target is path, on a
// machine named as in GOARCH. Close it before r.
func Open(r io.ReaderAt, path, machine string, o Options) (*Source, error) {
	f, err := symbol.Open(r, symbol.Options{Path: path, Finder: o.Finder, FullNames: o.FullNames, Budget: liveBudget, Sections: o.sections(),
		GoTable: func(r io.ReaderAt) (symbol.GoTable, error) { return goTable(r, archOf(machine)) }})
	if err != nil {
		return nil, err
	}
	s := &Source{f: f, o: o, fns: functions{path: path, r: r, arch: archOf(machine)}}
	if o.Cache != nil {
		if s.buildID, _ = symbol.BuildID(r); s.buildID != "" {
			if s.known = o.Cache.Load(s.buildID, o.FullNames); s.known == nil {
				s.known = cache.Table{}
			}
		}
	}
	return s, nil
}

// Frames is symbol.File.Frames. It also names functions without a symbol by the address
// at which they start, if the file contains that.
func (s *Source) Frames(vaddr uint64, buf []symbol.Frame) []symbol.Frame {
	if s == nil {
		return buf
	}
	from := len(buf)
	if buf = s.symbols(vaddr, buf); len(buf) == from {
		if fr, ok := s.fns.frame(vaddr); ok {
			buf = append(buf, fr)
		}
	}
	return buf
}

// symbols is Frames for functions with a symbol.
func (s *Source) symbols(vaddr uint64, buf []symbol.Frame) []symbol.Frame {
	if frames, ok := s.known[vaddr]; ok {
		return append(buf, frames...)
	}
	from := len(buf)
	buf = s.f.Frames(vaddr, buf)
	if s.known != nil && len(s.known) < maxCached {
		s.known[vaddr] = slices.Clone(buf[from:])
		s.fresh++
	}
	return buf
}

// EachFunction is symbol.File.EachFunction.
func (s *Source) EachFunction(yield func(raw string, readable func() string, vaddr uint64) bool) {
	if s != nil {
		s.f.EachFunction(yield)
	}
}

// File is the file itself: its functions, without what the cache knows. It is nil if s is.
func (s *Source) File() *symbol.File {
	if s == nil {
		return nil
	}
	return s.f
}

// Problems returns what could not be read so far. Each problem loses names.
func (s *Source) Problems() []error {
	if s == nil {
		return nil
	}
	return s.f.Problems()
}

// Close closes the debug files. It adds the results to the cache, whose file others may
// have changed; a failure only costs time.
func (s *Source) Close() error {
	if s == nil {
		return nil
	}
	if s.fresh > 0 && len(s.f.Problems()) == 0 {
		if now := s.o.Cache.Load(s.buildID, s.o.FullNames); len(now)+len(s.known) <= maxCached {
			maps.Copy(s.known, now)
		}
		_ = s.o.Cache.Store(s.buildID, s.o.FullNames, s.known)
		s.fresh = 0
	}
	return s.f.Close()
}
