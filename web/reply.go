package web

import (
	"math"

	"github.com/sliverprof/sliver/web/store"
)

// Replies of queries over the whole timeline.

type callsReply struct {
	Count   int    `json:"count"`
	Total   int64  `json:"total"` // ns
	Min     int64  `json:"min"`
	Median  int64  `json:"median"`
	Max     int64  `json:"max"`
	Hist    []int  `json:"hist"` // bucket i: 2^(i/2) ns and more
	Prev    *where `json:"prev"`
	Next    *where `json:"next"`
	Longest *where `json:"longest"`
}

type hitsReply struct {
	Count int            `json:"count"`
	Total int64          `json:"total"` // ns
	First *where         `json:"first"`
	Last  *where         `json:"last"`
	Prev  *where         `json:"prev"`
	Next  *where         `json:"next"`
	Funcs map[uint32]int `json:"funcs"`
}

type treeReply struct {
	Parent  []int32      `json:"parent"`
	Func    []uint32     `json:"func"`
	Count   []uint32     `json:"count"`
	Samples []uint32     `json:"samples"`
	Wall    []float64    `json:"wall"` // ns
	CPU     []float64    `json:"cpu"`
	Wait    []float64    `json:"wait"`
	Folded  int          `json:"folded"`
	Names   []store.Func `json:"names,omitempty"`
}

func newTree(f *feed, t *store.Tree, names bool) treeReply {
	round := func(vs []float64) []float64 {
		for i := range vs {
			vs[i] = math.Round(vs[i])
		}
		return vs
	}
	r := treeReply{t.Parent, t.Func, t.Count, t.Samples, round(t.Wall), round(t.CPU), round(t.Wait), t.Folded, nil}
	if names {
		r.Names = f.st.Names.Since(0)
	}
	return r
}
