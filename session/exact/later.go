package exact

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/engine/breakpoint"
	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// later looks for functions in files that the process maps while it is traced: a library that it loads, or another
// program that it becomes.
type later struct {
	names *Names // the patterns; nil: none
	files images // that were looked through, as they are mapped now
	next  time.Time
	said  map[string]bool // Stats.Untraced
}

const (
	lookEvery = 20 * time.Millisecond // the list of mappings is read at most this often: see Options.Every
	lookShare = 50                    // divisor of the time that may be spent on that
	findShare = 5                     // divisor of the time that may be spent on reading the functions of new files
	// maxMoves bounds the places where one function was mapped in turn.
	maxMoves   = 64
	maxReasons = 1000 // why functions are not traced
)

func (l *later) begin(names *Names) {
	if l.names = names; names != nil {
		l.files, l.said = names.files, map[string]bool{}
	}
}

// idle is the engine while no function is known.
type idle struct{}

func (idle) Wait(d time.Duration)              { time.Sleep(d) }
func (idle) Read(stack.Time, calls.Sink, bool) {}
func (idle) Detach(int)                        {}
func (idle) Stop() error                       { return nil }
func (idle) Close() error                      { return nil }

// Known returns the functions that are traced, by number. It may be called from any goroutine.
func (t *Tracer) Known() []Function {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.Functions)
}

// lookLater looks for functions in files that are mapped by now.
func (t *Tracer) lookLater() {
	l := &t.later
	begin := time.Now()
	if l.names == nil || begin.Before(l.next) {
		return
	}
	list, err := t.proc.Maps()
	looked := time.Now()
	defer func() {
		now := time.Now()
		l.next = now.Add(max(cmp.Or(t.o.Every, lookEvery), lookShare*looked.Sub(begin), findShare*now.Sub(looked)))
	}()
	if err != nil {
		return // it has ended
	}
	now, before := mapped(list), l.files
	if maps.Equal(now, before) {
		return
	}
	t.unmapped(now)
	l.files = now
	found, err := find(t.proc, list, l.names.patterns, l.names.o, before)
	if err != nil {
		t.added(nil, []string{err.Error()})
		return
	}
	problems := found.Problems
	found.Functions = slices.DeleteFunc(found.Functions, func(f Function) bool {
		if f.Why != "" {
			problems = append(problems, f.Name+": "+f.Why)
		}
		return f.Why != ""
	})
	fns, more := t.add(found.Functions)
	t.added(fns, append(problems, more...))
}

// added reports functions, and keeps the reasons why others are not traced.
func (t *Tracer) added(fns []Function, untraced []string) {
	t.mu.Lock()
	for _, why := range untraced {
		if !t.later.said[why] && len(t.later.said) < maxReasons {
			t.later.said[why] = true
			t.stats.Untraced = append(t.stats.Untraced, why)
		}
	}
	t.mu.Unlock()
	if t.o.Added != nil && len(fns) > 0 {
		t.o.Added(fns)
	}
}

// unmapped ends the calls of functions whose file is not mapped where it was. The kernel engine keeps their places,
// which are those of the file; breakpoints are removed, for other functions.
func (t *Tracer) unmapped(now images) {
	for i := range t.Functions {
		f := &t.Functions[i]
		if at, ok := now[imageOf(&f.mod)]; ok && at == t.later.files[imageOf(&f.mod)] || f.gone {
			continue
		}
		t.mu.Lock()
		f.gone = true
		t.mu.Unlock()
		if t.Engine == CPU {
			t.e.Detach(i)
		}
		t.pair.Detach(i, target.Now())
	}
}

// add traces further functions, and those that are mapped at another place by now. It returns the ones that are traced.
func (t *Tracer) add(fns []Function) (traced []Function, problems []string) {
	first := len(t.Functions)
	numbers := map[code]int{}
	for i := range t.Functions {
		numbers[codeOf(&t.Functions[i])] = i
	}
	for _, f := range fns {
		f.Since = target.Now()
		i, err := t.keep(&f, numbers)
		if e, ok := t.e.(*breakpoint.Engine); ok && err == nil && !t.off[i] {
			if err = t.addBreakpoints(e, i); err != nil && i >= first {
				t.drop(i)
				delete(numbers, codeOf(&f))
			}
		}
		if err != nil {
			problems = append(problems, f.Name+": "+err.Error())
			continue
		}
		traced = append(traced, f)
	}
	if len(t.Functions) == first {
		return traced, problems // the places of the kernel engine are those of the file
	}
	var err error
	switch e := t.e.(type) {
	case *kernel.Engine:
		probes, done, why := t.uprobesOf(first)
		defer done()
		if err = why; err == nil {
			err = e.Add(probes)
		}
	case idle:
		if err = t.open(); err != nil {
			t.e = e
		}
	}
	if err != nil {
		t.drop(first)
		return nil, append(problems, err.Error())
	}
	return traced, problems
}

// code identifies a function wherever its file is mapped.
type code struct {
	file  image
	entry uint64
}

func codeOf(f *Function) code { return code{imageOf(&f.mod), f.Code.Entry} }

// keep makes f one of the functions, and returns its number. f gets the places where it was mapped before.
func (t *Tracer) keep(f *Function, numbers map[code]int) (int, error) {
	i, again := numbers[codeOf(f)]
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case again && len(t.Functions[i].Ranges) >= maxMoves:
		return 0, fmt.Errorf("its file was mapped at %d places in turn", maxMoves)
	case again:
		f.Ranges, f.Since = append(slices.Clone(t.Functions[i].Ranges), f.Ranges...), t.Functions[i].Since
		t.Functions[i] = *f
		return i, nil
	case len(t.Functions) >= MaxFunctions:
		return 0, fmt.Errorf("more than %d functions", MaxFunctions)
	}
	t.Functions = append(t.Functions, *f)
	t.stats.Funcs = append(t.stats.Funcs, FuncStats{})
	t.off = append(t.off, false)
	t.rate.resize(len(t.off))
	i = len(t.off) - 1
	numbers[codeOf(f)] = i
	return i, nil
}

// drop removes the functions from a number on, of which no call was seen.
func (t *Tracer) drop(first int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Functions, t.stats.Funcs, t.off = t.Functions[:first], t.stats.Funcs[:first], t.off[:first]
	t.rate.resize(first)
}
