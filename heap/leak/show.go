package leak

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/plural"
)

// Shown is all about one object.
type Shown struct {
	Object    string       `json:"object"`
	Class     string       `json:"class"`
	Kind      string       `json:"kind"`
	Heap      string       `json:"heap,omitempty"` // ART's
	Bytes     int64        `json:"bytes"`
	Retained  int64        `json:"retained"`
	Strength  string       `json:"strength"`
	Text      string       `json:"text,omitempty"` // of a string
	Length    int          `json:"length,omitempty"`
	Dominator string       `json:"dominator,omitempty"`
	Roots     []string     `json:"roots,omitempty"`
	Fields    []ShownField `json:"fields,omitempty"`
	Elements  []ShownField `json:"elements,omitempty"`
	Holders   []ShownField `json:"holders"` // objects that refer to it
	Held      int          `json:"holder_count"`
	Dominates []Class      `json:"dominates,omitempty"` // by class
	Path      []Step       `json:"path"`
}

// ShownField is a field, an element or a holder.
type ShownField struct {
	Name     string `json:"name"`
	Type     string `json:"type,omitempty"`
	Value    string `json:"value"`
	Retained int64  `json:"retained,omitempty"`
}

// Show collects all about an object, with at most top elements and holders.
func Show(g *graph.Graph, o graph.Object, top int) *Shown {
	s := &Shown{Object: hex(g.ID(o)), Class: Name(g, o), Kind: g.Kind(o).String(), Heap: g.Heap(o), Bytes: g.Size(o),
		Strength: g.Strength(o).String(), Length: g.Length(o), Holders: []ShownField{}}
	if s.Retained = g.Retained(o); s.Retained < 0 {
		s.Retained, _ = g.RetainedBy(o)
	}
	s.Text, _ = g.Text(o, 1000)
	if g.HasTree() {
		if d := g.Dominator(o); d != 0 {
			s.Dominator = Name(g, d)
			if _, holder := g.Holder(d); !holder {
				s.Dominator += " " + hex(g.ID(d))
			}
		}
		var all []graph.Object
		for _, c := range g.Dominated(o) {
			all = append(all, graph.Object(c))
		}
		s.Dominates = (&search{g: g}).contentOf(all)
	}
	for _, r := range g.RootsOf(o) {
		text := rootText(g, r)
		if r.Thread != 0 {
			text += fmt.Sprintf(" of thread %q", g.ThreadName(r.Thread))
		}
		if c, ok := g.CallOf(r); ok {
			text += " in " + c.String()
		}
		s.Roots = append(s.Roots, text)
	}
	value := func(name string, v graph.Value) ShownField {
		f := ShownField{Name: name, Type: v.Type.String(), Value: v.String()}
		if v.Type != hprof.TypeObject || v.Bits == 0 {
			return f
		}
		if t := g.Find(v.Bits); t != 0 {
			f.Value = Name(g, t) + " " + hex(v.Bits)
			if text, ok := g.Text(t, 80); ok {
				f.Value = fmt.Sprintf("%q %s", short(text, 80), hex(v.Bits))
			}
			f.Retained = max(g.Retained(t), 0)
		} else {
			f.Value += " (not in the dump)"
		}
		return f
	}
	for _, d := range g.Fields(o) {
		name := d.Class.Name + "." + d.Name
		if g.Kind(o) == graph.KindClass {
			name = "static " + d.Name
		}
		s.Fields = append(s.Fields, value(name, d.Value))
	}
	g.Elements(o, top, func(i int, v graph.Value) bool {
		s.Elements = append(s.Elements, value(fmt.Sprintf("[%d]", i), v))
		return true
	})
	holders, n := g.Referrers(o, top)
	s.Held = n
	for _, h := range holders {
		ref, _ := refText(g, g.NameRef(h, o))
		s.Holders = append(s.Holders, ShownField{Name: ref, Value: Name(g, h) + " " + hex(g.ID(h)), Retained: max(g.Retained(h), 0)})
	}
	for _, h := range g.WeakReferrers(o, top) {
		ref, _ := refText(g, g.NameRef(h, o))
		s.Holders = append(s.Holders, ShownField{Name: ref, Value: Name(g, h) + " " + hex(g.ID(h)), Retained: max(g.Retained(h), 0)})
	}
	s.Path = PathTo(g, o)
	return s
}

// ShowObject writes all about an object.
func ShowObject(to io.Writer, g *graph.Graph, o graph.Object, top int, asJSON bool) error {
	s := Show(g, o, top)
	if asJSON {
		return encode(to, s)
	}
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%s %s, %s", s.Class, s.Object, s.Kind)
	if s.Length > 0 {
		fmt.Fprintf(w, " of %d elements", s.Length)
	}
	if s.Heap != "" {
		fmt.Fprintf(w, ", heap %s", s.Heap)
	}
	fmt.Fprintf(w, "\n%d bytes, keeps %d (%s); %s\n", s.Bytes, s.Retained, Bytes(s.Retained), s.Strength)
	if s.Text != "" {
		fmt.Fprintf(w, "text %q\n", s.Text)
	}
	if s.Dominator != "" {
		fmt.Fprintf(w, "dominated by %s\n", s.Dominator)
	}
	for _, r := range s.Roots {
		fmt.Fprintf(w, "root: %s\n", r)
	}
	list := func(title string, all []ShownField) {
		if len(all) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n", title)
		for _, f := range all {
			fmt.Fprintf(w, "  %s: %s", f.Name, f.Value)
			if f.Retained > 0 {
				fmt.Fprintf(w, "  keeps %s", Bytes(f.Retained))
			}
			fmt.Fprintln(w)
		}
	}
	list("fields", s.Fields)
	list(fmt.Sprintf("elements (%d of %d)", len(s.Elements), s.Length), s.Elements)
	list(fmt.Sprintf("referred to by %s", plural.Of(s.Held, "object")), s.Holders)
	if len(s.Dominates) > 0 {
		fmt.Fprintf(w, "\ndominates directly\n")
		for _, c := range s.Dominates {
			fmt.Fprintf(w, "  %9s  %8d  %s\n", Bytes(c.Retained), c.Count, c.Name)
		}
	}
	fmt.Fprintf(w, "\nshortest path\n")
	writePath(w, s.Path, "  ")
	return w.Flush()
}

// ShownClass is all about a class.
type ShownClass struct {
	Class    string       `json:"class"`
	ID       string       `json:"id"`
	Super    string       `json:"super,omitempty"`
	Loader   string       `json:"loader"`
	Objects  uint64       `json:"objects"`
	Bytes    int64        `json:"bytes"`
	Retained int64        `json:"retained"`
	Statics  []ShownField `json:"statics,omitempty"`
	Largest  []ShownField `json:"largest"` // objects, by what they keep
}

// ShowClass writes all about the classes of a name.
func ShowClass(to io.Writer, g *graph.Graph, classes []*graph.Class, top int, asJSON bool) error {
	var all []*ShownClass
	lines := g.Histogram()
	for _, c := range classes {
		s := &ShownClass{Class: c.Name, ID: hex(c.ID), Loader: "the VM's own", Objects: c.Count, Retained: -1, Largest: []ShownField{}}
		for _, l := range lines {
			if l.Class == c {
				s.Objects, s.Bytes, s.Retained = l.Count, l.Bytes, l.Retained
			}
		}
		if c.Super != nil {
			s.Super = c.Super.Name
		}
		if c.Loader != 0 {
			s.Loader = hex(c.Loader)
			if o := g.Find(c.Loader); o != 0 {
				s.Loader = Name(g, o) + " " + s.Loader
			}
		}
		if c.Object != 0 && g.Level() != graph.LevelHistogram {
			s.Statics = Show(g, c.Object, 0).Fields
		}
		if g.HasTree() {
			s.Largest = largestOf(g, c, top)
		}
		all = append(all, s)
	}
	if asJSON {
		return encode(to, all)
	}
	w := bufio.NewWriter(to)
	for i, s := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "class %s %s", s.Class, s.ID)
		if s.Super != "" {
			fmt.Fprintf(w, " extends %s", s.Super)
		}
		fmt.Fprintf(w, "\nloaded by %s\n%s, %s", s.Loader, plural.Of(s.Objects, "object"), Bytes(s.Bytes))
		if s.Retained >= 0 {
			fmt.Fprintf(w, ", keep %s together", Bytes(s.Retained))
		}
		fmt.Fprintln(w)
		for _, f := range s.Statics {
			fmt.Fprintf(w, "  %s: %s\n", f.Name, f.Value)
		}
		if len(s.Largest) > 0 {
			fmt.Fprintf(w, "\nobjects that keep most\n")
			for _, f := range s.Largest {
				fmt.Fprintf(w, "  %9s  %s  %s\n", Bytes(f.Retained), f.Name, f.Value)
			}
		}
	}
	return w.Flush()
}

// largestOf returns the objects of a class that keep most.
func largestOf(g *graph.Graph, c *graph.Class, top int) []ShownField {
	var most []graph.Object
	for o := graph.Object(1); int(o) <= g.Len(); o++ {
		if g.Kind(o) == graph.KindClass || g.Class(o) != c {
			continue
		}
		if len(most) == top && top > 0 && g.Retained(o) <= g.Retained(most[top-1]) {
			continue
		}
		i, _ := slices.BinarySearchFunc(most, o, func(a, b graph.Object) int {
			return cmp.Or(cmp.Compare(g.Retained(b), g.Retained(a)), cmp.Compare(a, b))
		})
		if most = slices.Insert(most, i, o); len(most) > top {
			most = most[:top]
		}
	}
	out := []ShownField{}
	for _, o := range most {
		f := ShownField{Name: hex(g.ID(o)), Retained: g.Retained(o)}
		if text, ok := g.Text(o, 80); ok {
			f.Value = fmt.Sprintf("%q", short(text, 80))
		} else if n := g.Length(o); n > 0 {
			f.Value = plural.Of(n, "element")
		}
		out = append(out, f)
	}
	return out
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
