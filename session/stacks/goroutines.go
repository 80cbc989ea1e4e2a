package stacks

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
)

// alike is a set of goroutines with the same stack and state.
type alike struct {
	first    *Goroutine
	ids      []uint64
	min, max int64 // ns that they have waited; -1: unknown
}

// group groups goroutines that are at the same place, largest group first.
func (s *Snapshot) group() []*alike {
	var out []*alike
	seen := map[string]*alike{}
	var key strings.Builder
	for i := range s.Goroutines {
		g := &s.Goroutines[i]
		key.Reset()
		fmt.Fprint(&key, g.Status, g.Wait, g.Thread, g.Locked, g.Truncated)
		if g.CreatedBy != nil {
			fmt.Fprint(&key, " ", g.CreatedBy.Addr)
		}
		for j := range g.Frames {
			fmt.Fprint(&key, " ", g.Frames[j].Addr)
		}
		a := seen[key.String()]
		if a == nil {
			a = &alike{first: g, min: g.For, max: g.For}
			seen[key.String()] = a
			out = append(out, a)
		}
		a.ids = append(a.ids, g.ID)
		a.max = max(a.max, g.For)
		if g.For >= 0 && (a.min < 0 || g.For < a.min) {
			a.min = g.For
		}
	}
	slices.SortStableFunc(out, func(a, b *alike) int { return cmp.Compare(len(b.ids), len(a.ids)) })
	return out
}

func (s *Snapshot) goroutines(b *bufio.Writer) {
	if s.Goroutines == nil && s.Unread == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s", plural.Of(len(s.Goroutines), "goroutine"))
	if s.Unread > 0 {
		fmt.Fprintf(b, ", %d more could not be read", s.Unread)
	}
	b.WriteByte('\n')
	for _, a := range s.group() {
		g := a.first
		if len(a.ids) == 1 {
			fmt.Fprintf(b, "\ngoroutine %d, %s", g.ID, g.Status)
		} else {
			fmt.Fprintf(b, "\n%s, %s", plural.Of(len(a.ids), "goroutine"), g.Status)
		}
		if g.Wait != "" {
			fmt.Fprintf(b, ": %s", plain(g.Wait))
		}
		switch {
		case a.max < 0:
		case a.min == a.max:
			fmt.Fprintf(b, ", for %v at least", round(a.max))
		default:
			fmt.Fprintf(b, ", for %v to %v at least", round(a.min), round(a.max))
		}
		if g.Thread != 0 {
			fmt.Fprintf(b, ", on TID %d", g.Thread)
		}
		if g.Locked {
			b.WriteString(", locked to its thread")
		}
		b.WriteByte('\n')
		if len(a.ids) > 1 {
			list(b, a.ids)
		}
		if g.Truncated == stack.ReasonEmpty && len(g.Frames) == 0 {
			b.WriteString("      stack not available: it is running\n")
		} else {
			s.frames(b, g.Frames, g.Truncated)
		}
		if g.CreatedBy != nil {
			fmt.Fprintf(b, "      created by %s", plain(g.CreatedBy.Func))
			if g.CreatedBy.File != "" {
				fmt.Fprintf(b, " at %s:%d", plain(g.CreatedBy.File), g.CreatedBy.Line)
			}
			if g.Parent != 0 && len(a.ids) == 1 {
				fmt.Fprintf(b, ", in goroutine %d", g.Parent)
			}
			b.WriteByte('\n')
		}
	}
}

func list(b *bufio.Writer, ids []uint64) {
	b.WriteString("   ")
	for i, id := range ids {
		if i == maxListed {
			fmt.Fprintf(b, " and %d more", len(ids)-i)
			break
		}
		fmt.Fprintf(b, " %d", id)
	}
	b.WriteByte('\n')
}

func round(ns int64) time.Duration {
	d := time.Duration(ns)
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
