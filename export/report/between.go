package report

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/wait/kind"
)

// Between sums the waits of the processes of one program for those of another.
type Between struct {
	Process string    `json:"process"` // with its PID, if there is one
	For     string    `json:"for"`
	Kind    kind.Wait `json:"kind"`
	Waits   int       `json:"waits"`
	Ended   int       `json:"ended"` // of these, the ones for which the process that ended them is known
	Total   int64     `json:"total_ns"`
	Longest int64     `json:"longest_ns"`
}

// betweenKey identifies a row of Between.
type betweenKey struct {
	process, waitsFor string
	kind              kind.Wait
}

// between adds the waits of the processes for each other, and completes the facts of the longest waits.
func (r *Report) between(b *between.Between, views []*view.View) {
	rows := map[betweenKey]*Between{}
	for i := range b.Waits {
		w := &b.Waits[i]
		waiter := views[w.View].Process()
		names := b.Text(w)
		program := ""
		switch {
		case w.Waker >= 0:
			p := &b.Processes[w.Waker]
			names, program = p.String(), p.Name
		case len(w.For) > 0:
			program = programs(b, w)
		}
		k := betweenKey{view.Text(views[w.View].Rec.Process.Comm, 256), program, w.Kind}
		x := rows[k]
		if x == nil {
			x = &Between{Process: waiter, For: names, Kind: w.Kind}
			rows[k] = x
		}
		if x.Process != waiter {
			x.Process = k.process
		}
		if x.For != names {
			x.For = program
		}
		ns := int64(w.End - w.Begin)
		x.Waits, x.Total, x.Longest = x.Waits+1, x.Total+ns, max(x.Longest, ns)
		if w.Waker >= 0 {
			x.Ended++
		}
	}
	for _, x := range rows {
		r.Between = append(r.Between, *x)
	}
	slices.SortFunc(r.Between, func(a, b Between) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Process, b.Process), cmp.Compare(a.For, b.For), cmp.Compare(a.Kind, b.Kind))
	})
	r.Between, r.More.Between = cut(r.Between, maxBetween)
	for n, v := range views {
		if r.Recording.Others > 0 || v.PID() == r.Recording.PID {
			r.waitFacts(b, n, v)
		}
	}
}

// maxBetween bounds the rows.
const maxBetween = 1000

// programs names the programs that w was for, each once.
func programs(b *between.Between, w *between.Wait) string {
	var names []string
	for _, i := range w.For {
		if name := b.Processes[i].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// waitFacts adds to the longest waits which processes they were for, and which one ended them.
func (r *Report) waitFacts(b *between.Between, n int, v *view.View) {
	for i := range r.Longest {
		x := &r.Longest[i]
		if x.Process != "" && x.Process != v.Process() {
			continue
		}
		th, ok := v.ByTID(x.TID)
		if !ok {
			continue
		}
		w := b.At(n, th.Index, x.at)
		if w == nil {
			continue
		}
		if s := b.Text(w); s != "" {
			x.Facts = append(x.Facts, Fact{"waits_for", s})
		}
		if s := b.Woken(w); s != "" && !slices.ContainsFunc(x.Facts, func(f Fact) bool { return f.Name == view.DetailWoken }) {
			x.Facts = append(x.Facts, Fact{view.DetailWoken, s})
		}
	}
}

// textBetween prints the longest rows.
func (r *Report) textBetween(b *bufio.Writer, top int) {
	if len(r.Between) == 0 {
		return
	}
	shown := r.Between[:min(len(r.Between), top)]
	fmt.Fprintf(b, "\nWaits of processes for each other%s\n", more(len(r.Between)-len(shown)+r.More.Between))
	t := newTable(b, "total", "waits", "longest", "kind", "process", "waits for")
	for _, x := range shown {
		t.row(duration(x.Total), fmt.Sprint(x.Waits), duration(x.Longest), string(x.Kind), cell(x.Process), cell(x.For))
	}
	t.end()
}
