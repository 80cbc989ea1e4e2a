package leak

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/heap/graph"
)

// Growth is what two dumps of a program differ in.
type Growth struct {
	Version            int        `json:"version"`
	Old                string     `json:"old"`
	New                string     `json:"new"`
	OldBytes, NewBytes int64      `json:"-"`
	Bytes              int64      `json:"bytes"` // more than before
	Classes            []Change   `json:"classes"`
	Paths              []PathGrew `json:"paths"`
}

// Change is how a class grew; less than 0: it shrank.
type Change struct {
	Class    string `json:"class"`
	Objects  int64  `json:"objects"`
	Bytes    int64  `json:"bytes"`
	NewBytes int64  `json:"new_bytes"`
}

// PathGrew is a way of classes down the dominator tree below which more is kept than
// before.
type PathGrew struct {
	Path     []string `json:"path"`
	Objects  int64    `json:"objects"`  // of the last class, more than before
	Retained int64    `json:"retained"` // more than before
	Now      int64    `json:"now"`      // retained in the new dump
}

// Side is one dump of a comparison.
type Side struct {
	Name  string
	Lines []graph.Line
	Tree  *Node // nil where the level has none
}

// Compare returns what grew from old to new.
func Compare(old, new Side) *Growth {
	d := &Growth{Version: Version, Old: old.Name, New: new.Name, Classes: []Change{}, Paths: []PathGrew{}}
	changes := map[string]*Change{}
	add := func(lines []graph.Line, sign int64) (sum int64) {
		for _, l := range lines {
			c := changes[l.Class.Name]
			if c == nil {
				c = &Change{Class: l.Class.Name}
				changes[l.Class.Name] = c
			}
			c.Objects += sign * int64(l.Count)
			c.Bytes += sign * l.Bytes
			if sign > 0 {
				c.NewBytes += l.Bytes
			}
			sum += l.Bytes
		}
		return sum
	}
	d.OldBytes, d.NewBytes = add(old.Lines, -1), add(new.Lines, 1)
	d.Bytes = d.NewBytes - d.OldBytes
	for _, c := range changes {
		if c.Objects != 0 || c.Bytes != 0 {
			d.Classes = append(d.Classes, *c)
		}
	}
	slices.SortFunc(d.Classes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Class, b.Class))
	})
	if old.Tree != nil && new.Tree != nil {
		d.paths(old.Tree, new.Tree)
	}
	return d
}

// grewShare is the part of a node's growth that a child must have for the way to go on to
// it: below that, memory gathers at the node.
const grewShare = 0.5

// minGrowth is the least growth that is reported, since no two dumps are equal.
const minGrowth = 16 << 10

// paths follows what grew down to where it gathers.
func (d *Growth) paths(old, new *Node) {
	d.follow(grown{old, new}, nil)
	slices.SortStableFunc(d.Paths, func(a, b PathGrew) int { return cmp.Compare(b.Retained, a.Retained) })
	d.Paths = d.Paths[:min(len(d.Paths), 30)]
}

// grown is a node of the tree in both dumps.
type grown struct {
	old, new *Node // old nil: it was not there
}

// bytes returns how much more the node retains than before.
func (g grown) bytes() int64 {
	if g.old == nil {
		return g.new.Retained
	}
	return g.new.Retained - g.old.Retained
}

// count returns how many more objects the node has than before.
func (g grown) count() int64 {
	if g.old == nil {
		return g.new.Count
	}
	return g.new.Count - g.old.Count
}

// kids returns the children that grew, those that grew most first.
func (g grown) kids() []grown {
	before := map[string]*Node{}
	if g.old != nil {
		for _, k := range g.old.Kids {
			before[k.Name] = k
		}
	}
	var kids []grown
	for _, k := range g.new.Kids {
		if kid := (grown{before[k.Name], k}); kid.bytes() >= minGrowth {
			kids = append(kids, kid)
		}
	}
	slices.SortStableFunc(kids, func(a, b grown) int { return cmp.Compare(b.bytes(), a.bytes()) })
	return kids
}

// follow adds the paths from a node down to the nodes at which its growth gathers.
func (d *Growth) follow(at grown, path []string) {
	grew := at.bytes()
	if grew < minGrowth {
		return
	}
	gathers := func(bytes int64) bool { return float64(bytes) >= grewShare*float64(grew) }
	below := func(k grown) []string { return append(path[:len(path):len(path)], k.new.Name) }
	root := len(path) == 0
	kids, rest, went := at.kids(), grew, 0
	for _, k := range kids {
		if !root && k.count() >= manyNew && gathers(k.bytes()) {
			continue // many new objects in one place are the growth: report the place
		}
		if root && k.bytes()*20 >= grew || gathers(k.bytes()) {
			d.follow(k, below(k))
			rest -= k.bytes()
			went++
		}
	}
	if root || went > 0 && !gathers(rest) {
		return
	}
	g := PathGrew{Path: path, Objects: at.count(), Retained: grew, Now: at.new.Retained}
	if len(kids) > 0 && gathers(kids[0].bytes()) { // what it is that there is more of
		g.Path, g.Objects = below(kids[0]), kids[0].count()
	}
	d.Paths = append(d.Paths, g)
}

// manyNew is the least number of new objects that are reported as a group.
const manyNew = 50

// WriteText writes a comparison for a terminal.
func (d *Growth) WriteText(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%s → %s: %s → %s, %s\n", d.Old, d.New, Bytes(d.OldBytes), Bytes(d.NewBytes), signed(d.Bytes))
	fmt.Fprintf(w, "\nwhat keeps more than before, by the way down the dominator tree\n")
	if len(d.Paths) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
	for _, p := range d.Paths {
		fmt.Fprintf(w, "  %10s  %+d objects  %s\n", signed(p.Retained), p.Objects, strings.Join(p.Path, " → "))
	}
	fmt.Fprintf(w, "\nclasses\n  %10s  %10s  %9s\n", "bytes", "objects", "now")
	for i, c := range d.Classes {
		if i >= 20 && i < len(d.Classes)-5 { // those that grew most, and those that shrank most
			continue
		}
		fmt.Fprintf(w, "  %10s  %+10d  %9s  %s\n", signed(c.Bytes), c.Objects, Bytes(c.NewBytes), c.Class)
	}
	return w.Flush()
}

func signed(n int64) string {
	if n >= 0 {
		return "+" + Bytes(n)
	}
	return Bytes(n)
}

// WriteJSON writes a comparison as JSON.
func (d *Growth) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}
