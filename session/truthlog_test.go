package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Messages of a test whose timeline differs from its program's log.

// samplesNear prints the samples next to the start of a slice.
func samplesNear(rec *trace.Recording, s *seen) string {
	n := trace.NewNames(rec)
	var b strings.Builder
	for i := range rec.Threads {
		if int(rec.Threads[i].TID) == s.tid {
			rec.Replay(rec.Threads[i].Seq, n, &stackLog{n: n, from: s.notYet - 30e6, to: s.first + 60e6, out: &b})
		}
	}
	return b.String()
}

// stackLog prints each sample of a time range, with its stack.
type stackLog struct {
	n        *trace.Names
	from, to stack.Time
	stack    []string
	told     int // samples
	out      *strings.Builder
}

// ends returns both ends of the stack, if it is deep.
func (l *stackLog) ends() string {
	in := l.stack
	if n := len(in); n > 30 {
		in = slices.Concat(in[:10], []string{fmt.Sprintf("(%d more)", n-30)}, in[n-20:])
	}
	return strings.Join(in, " > ")
}

func (l *stackLog) Begin(_ stack.Time, depth int, s *trace.Slice) {
	l.stack = append(l.stack[:depth], l.n.Func(&s.Frame).Name)
}

func (l *stackLog) End(_ stack.Time, depth int, _ *trace.Slice) { l.stack = l.stack[:depth] }

func (l *stackLog) Other(e event.Event) {
	if e.Time < l.from || e.Time > l.to || l.told == nearest {
		return
	}
	switch e.Kind() {
	case event.Seen:
		way, n, cpu := event.SeenFields(e.Payload())
		fmt.Fprintf(l.out, "\n  %d %d of %v, %d ns on a CPU: %s", e.Time, n, way, cpu, l.ends())
		l.told++
	case event.Gap:
		why, ns := event.GapFields(e.Payload())
		fmt.Fprintf(l.out, "\n  %d gap of %d ns: %v", e.Time, ns, why)
	}
}

// errorFrames prints a few of the stacks that ended early.
func errorFrames(rec *trace.Recording) string {
	n := trace.NewNames(rec)
	l := &errorLog{n: n, count: map[string]int{}}
	for i := range rec.Threads {
		l.stack = nil
		rec.Replay(rec.Threads[i].Seq, n, l)
	}
	var keys []string
	for k, c := range l.count {
		keys = append(keys, fmt.Sprintf("\n  %4d %s", c, k))
	}
	slices.Sort(keys)
	slices.Reverse(keys)
	return strings.Join(keys[:min(len(keys), 8)], "")
}

// gapList prints where samples are missing, and why.
func gapList(rec *trace.Recording) string {
	var b strings.Builder
	n := trace.NewNames(rec)
	for i := range rec.Threads {
		l := gapLog{}
		rec.Replay(rec.Threads[i].Seq, n, &l)
		for _, g := range l {
			fmt.Fprintf(&b, "\n  thread %d: %s", rec.Threads[i].TID, g)
		}
	}
	return b.String()
}

type gapLog []string

func (l *gapLog) Begin(stack.Time, int, *trace.Slice) {}
func (l *gapLog) End(stack.Time, int, *trace.Slice)   {}
func (l *gapLog) Other(e event.Event) {
	if e.Kind() == event.Gap && len(*l) < 10 {
		why, ns := event.GapFields(e.Payload())
		*l = append(*l, fmt.Sprintf("%v before %d: %s", time.Duration(ns), e.Time, why))
	}
}

type errorLog struct {
	n     *trace.Names
	stack []string
	bad   bool
	count map[string]int
}

func (l *errorLog) Begin(_ stack.Time, depth int, s *trace.Slice) {
	l.stack = append(l.stack[:depth], l.n.Func(&s.Frame).Name)
	l.bad = l.bad || s.Loc.Word.Kind() == stack.KindError
}

func (l *errorLog) End(_ stack.Time, depth int, _ *trace.Slice) {
	if l.bad && depth == len(l.stack)-1 {
		l.count[strings.Join(l.stack, " > ")]++
		l.bad = false
	}
	l.stack = l.stack[:depth]
}

func (l *errorLog) Other(event.Event) {}
