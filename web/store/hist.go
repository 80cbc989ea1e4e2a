package store

import "github.com/sliverprof/sliver/stack"

// hist sums a quantity over time in at most histLen buckets. Their width doubles when the
// time exceeds them.
type hist struct {
	from  stack.Time
	width int64 // ns; 0: nothing added yet
	n     [histLen]float32
}

const (
	histLen   = 2048
	histWidth = 1 << 20 // initial width, ns
)

// add spreads v evenly over [a, b).
func (h *hist) add(a, b stack.Time, v int64) {
	if b <= a {
		a = b - 1
	}
	if h.width == 0 {
		h.width, h.from = histWidth, a-a%histWidth
	}
	a = max(a, h.from)
	b = max(b, a+1)
	for int64(b-h.from) > histLen*h.width {
		for i := range histLen / 2 {
			h.n[i] = h.n[2*i] + h.n[2*i+1]
		}
		clear(h.n[histLen/2:])
		h.width *= 2
	}
	i, j := int64(a-h.from)/h.width, int64(b-1-h.from)/h.width
	if i == j {
		h.n[i] += float32(v)
		return
	}
	per := float64(v) / float64(b-a)
	for k := i; k <= j; k++ {
		lo := max(a, h.from+stack.Time(k*h.width))
		hi := min(b, h.from+stack.Time((k+1)*h.width))
		h.n[k] += float32(per * float64(hi-lo))
	}
}

// into adds h to bins of equal width over [t0, t1).
func (h *hist) into(t0, t1 stack.Time, bins []float64) {
	if h.width == 0 || t1 <= t0 {
		return
	}
	w := float64(t1-t0) / float64(len(bins))
	for k, v := range h.n {
		if v == 0 {
			continue
		}
		lo := float64(h.from-t0) + float64(int64(k)*h.width)
		hi := lo + float64(h.width)
		for b := max(int(lo/w), 0); b < len(bins); b++ {
			l, r := max(lo, float64(b)*w), min(hi, float64(b+1)*w)
			if r <= l {
				if float64(b)*w >= hi {
					break
				}
				continue
			}
			bins[b] += float64(v) * (r - l) / float64(h.width)
		}
	}
}
