package graph

import (
	"context"
	"io"
	"slices"

	"github.com/sliverprof/sliver/heap/hprof"
)

// partSurvey is what a survey finds out of a part of a Memory.
type partSurvey struct {
	taking
	chunk chunk
	first hprof.Item
	whole []int // by tally: that of the survey of all parts
}

// takeMemory surveys a dump that is encoded where it is read: names, classes and roots from the encoded form, the
// objects by several goroutines.
func takeMemory(ctx context.Context, m Memory, workers int, o surveyOptions) (*survey, error) {
	parts := m.Parts()
	s, err := take(ctx, io.NewSectionReader(m, 0, parts[0]), o)
	if err != nil {
		return nil, err
	}
	if o.ids {
		s.ids = slices.Grow(s.ids, int(min(m.Len(), maxObjects)))
	}
	err = ordered(ctx, workers, len(parts)-1, func(i int, p *partSurvey) error {
		return p.take(m.Part(i), chunk{offset: parts[i], bytes: parts[i+1] - parts[i], part: i + 1}, o)
	}, func(i int, p *partSurvey) {
		s.join(p)
		if o.step != nil {
			o.step(parts[i+1])
		}
	})
	if err != nil {
		return nil, err
	}
	return s, s.checkCount()
}

// take reads the objects of a part.
func (p *partSurvey) take(r hprof.ObjectReader, c chunk, o surveyOptions) error {
	*p = partSurvey{taking: taking{survey: &survey{ids: p.ids(o)}, o: o, last: -1}, chunk: c, whole: p.whole[:0]}
	for {
		it, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if p.chunk.objects == 0 {
			p.first = *it
		}
		switch it.Tag {
		case hprof.SubInstance:
			p.object(&p.chunk, it, KindInstance, it.Ref)
		case hprof.SubObjectArray:
			p.object(&p.chunk, it, KindObjectArray, it.Ref)
		case hprof.SubPrimitiveArray:
			p.object(&p.chunk, it, KindPrimitiveArray, uint64(it.Type))
		}
		if o.references {
			for err == nil && it.Tag != hprof.SubPrimitiveArray {
				if _, err = r.Refs(); it.Tag == hprof.SubInstance {
					break
				}
			}
			if err != nil && err != io.EOF {
				return err
			}
		}
	}
}

// ids returns the list of IDs to use again.
func (p *partSurvey) ids(o surveyOptions) []uint64 {
	if p.survey == nil || !o.ids {
		return nil
	}
	return p.survey.ids[:0]
}

// join adds the survey of the part that follows.
func (s *survey) join(p *partSurvey) {
	s.chunks = append(s.chunks, p.chunk)
	if p.chunk.objects == 0 {
		return
	}
	for i := range p.tallies {
		p.whole = append(p.whole, s.tally(p.tallies[i].kind, p.tallies[i].id))
	}
	s.measure(&p.first, p.whole[0]) // how far the object before is from it
	for i := range p.tallies {
		s.tallies[p.whole[i]].add(&p.tallies[i])
	}
	for e := range p.near.arrays {
		a := &s.near.arrays[e]
		*a = append(*a, p.near.arrays[e][:min(len(p.near.arrays[e]), maxSamples-len(*a))]...)
	}
	s.near.id, s.near.tally, s.near.length = p.near.id, p.whole[p.near.tally], p.near.length
	s.span.join(&p.span)
	s.ids = append(s.ids, p.survey.ids...)
}

// add adds the counts of another tally of the same class.
func (y *tally) add(x *tally) {
	y.count += x.count
	y.elements += x.elements
	if x.lengths != nil {
		for i, n := range x.lengths {
			y.lengths[i] += n
		}
	}
	switch {
	case x.gap == 0:
	case y.gap == 0 || x.gap < y.gap:
		y.gap, y.agree = x.gap, x.agree
	case x.gap == y.gap:
		y.agree += x.agree
	}
}

// join adds the IDs of another span.
func (s *span) join(x *span) {
	if s.n == 0 {
		*s = *x
		return
	}
	s.n += x.n
	s.min, s.max = min(s.min, x.min), max(s.max, x.max)
	s.differ |= x.differ | x.first ^ s.first
}
