// Package leak finds what holds the memory of a Java heap dump: suspects by the dominator
// tree, known kinds of leaks of Android and of servers, and growth between two dumps. It
// writes its report as text, JSON, one HTML file and pprof.
//
// What objects are to each other it asks of package graph; it opens no file and no process.
package leak

import (
	"context"
	"fmt"
	"strings"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/internal/plural"
)

// Version is of the report's JSON.
const Version = 1

// Report is what a dump's analysis found.
type Report struct {
	Version  int       `json:"version"`
	File     string    `json:"file"`
	Format   string    `json:"format"` // HPROF's version and the bytes of an ID
	Level    string    `json:"level"`  // how much of the dump was at hand
	Objects  int       `json:"objects"`
	Classes  int       `json:"classes"`
	Roots    int       `json:"roots"`
	Bytes    int64     `json:"bytes"`
	Held     []Held    `json:"held,omitempty"` // bytes by strength
	Dumps    int       `json:"dumps,omitempty"`
	Losses   []string  `json:"losses,omitempty"` // what the dump lacks, and what that does to the report
	Findings []Finding `json:"findings"`
	Largest  []Class   `json:"largest"` // classes
	Android  bool      `json:"android,omitempty"`

	Tree *Node `json:"-"` // retained sizes by dominator path; nil: not asked for, or the level has none
}

// Held is how much is held with one strength.
type Held struct {
	Strength string `json:"strength"`
	Bytes    int64  `json:"bytes"`
}

// Class is a line of the histogram.
type Class struct {
	Name     string `json:"name"`
	Count    uint64 `json:"count"`
	Bytes    int64  `json:"bytes"`
	Retained int64  `json:"retained"` // -1: not known
}

// Kinds of findings.
const (
	KindDominator    = "dominator"       // one object keeps much
	KindGroup        = "class-group"     // many objects of a class keep much together
	KindLoaders      = "class-loaders"   // a class was loaded by several loaders
	KindThreadLocals = "thread-locals"   // threads keep values of a ThreadLocal
	KindCollections  = "collections"     // capacity that is not used
	KindStrings      = "duplicates"      // the same content several times
	KindConstant     = "constant-arrays" // arrays of one value
	KindNulls        = "null-arrays"     // large arrays that are mostly null
	KindVirtual      = "virtual-threads" // what parked virtual threads keep
	KindFinalizers   = "finalizers"      // objects that wait for their finalizer
	KindInspector    = "android-object"  // an object whose life is over, by its fields
	KindLarge        = "android-large"   // a bitmap or array above KOOM's threshold
)

// Finding is one thing that holds memory.
type Finding struct {
	Kind      string   `json:"kind"`
	Title     string   `json:"title"`
	Class     string   `json:"class,omitempty"`
	Object    string   `json:"object,omitempty"` // ID of the one that the path leads to
	Count     int      `json:"count,omitempty"`
	Bytes     int64    `json:"bytes"`           // kept, or wasted
	Share     float64  `json:"share"`           // of all bytes
	Field     string   `json:"field,omitempty"` // the last one on the path that a program\'s class declares
	Path      []Step   `json:"path,omitempty"`
	Content   []Class  `json:"content,omitempty"` // retained objects by class
	Notes     []string `json:"notes,omitempty"`
	Library   string   `json:"library,omitempty"` // a known leak of Android's or a library's own code
	Signature string   `json:"signature,omitempty"`

	object graph.Object
}

// Step is an object on the way from a root.
type Step struct {
	// Ref is how the step before leads here: a field with its class, "[3]", or for the
	// first one why it is a root.
	Ref      string `json:"ref"`
	Class    string `json:"class"`
	Object   string `json:"object"`
	Static   bool   `json:"static,omitempty"`
	Retained int64  `json:"retained,omitempty"`
}

// Options are what to look for.
type Options struct {
	Share float64 // part of all bytes from which on something is a suspect; 0: DefaultShare
	Tree  bool    // make Report.Tree
	Now   func(what string)
}

// DefaultShare is the part of all bytes from which on one object, or the objects of one
// class, are a suspect: that of the Eclipse Memory Analyzer's report.
const DefaultShare = 0.10

// maxClasses bounds the lines of the histogram in a report.
const maxClasses = 2000

// maxFindings bounds the findings of one kind.
const maxFindings = 12

// search is one analysis.
type search struct {
	ctx    context.Context
	g      *graph.Graph
	opts   Options
	report *Report
	total  int64
	hist   []graph.Line
}

// Find looks for everything that the graph's level allows.
func Find(ctx context.Context, g *graph.Graph, file string, o Options) (*Report, error) {
	if o.Share == 0 {
		o.Share = DefaultShare
	}
	s := &search{ctx: ctx, g: g, opts: o}
	contents, stop := s.countContents()
	defer stop()
	s.hist = g.Histogram()
	for _, l := range s.hist {
		s.total += l.Bytes
	}
	h := g.Header()
	s.report = &Report{Version: Version, File: file, Format: fmt.Sprintf("HPROF %s, identifiers of %d bytes", h.Version, h.IDSize),
		Level: g.Level().String(), Objects: g.Len(), Classes: len(g.Classes()), Roots: len(g.Roots()), Bytes: s.total,
		Findings: []Finding{}, Android: h.Version == "1.0.3" || g.ClassByName("android.app.Activity") != nil}
	s.losses()
	s.largest()
	if g.HasTree() {
		for w := graph.Strong; w <= graph.Garbage; w++ {
			if n := g.Held(w); n > 0 {
				s.report.Held = append(s.report.Held, Held{w.String(), n})
			}
		}
		if o.Tree {
			s.report.Tree = Tree(g)
		}
	}
	steps := []func() error{contents}
	if g.Level() != graph.LevelHistogram {
		steps = append([]func() error{s.suspects, s.android, s.loaders, s.threadLocals, s.virtualThreads, s.finalizers, s.collections}, steps...)
	}
	for _, f := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := f(); err != nil {
			return nil, err
		}
	}
	return s.report, nil
}

func (s *search) losses() {
	g, r := s.g, s.report
	lose := func(format string, args ...any) { r.Losses = append(r.Losses, fmt.Sprintf(format, args...)) }
	if g.Damage != nil {
		lose("the dump is damaged: %v; this report covers the part before the damage", g.Damage)
	}
	if g.Dangled > 0 {
		lose("%s to objects that the dump does not have", plural.Either(g.Dangled, "reference leads", "references lead"))
	}
	if g.LostRoots > 0 {
		lose("%s objects that the dump does not have", plural.Either(g.LostRoots, "root names", "roots name"))
	}
	if g.Twice > 0 {
		lose("%s in the dump more than once; the first counts", plural.Either(g.Twice, "object is", "objects are"))
	}
	if g.Dumps() > 1 {
		r.Dumps = g.Dumps()
		lose("the file has %d heap dumps; this report is of number %d", g.Dumps(), g.Dump())
	}
	if g.HasTree() {
		if n := g.Held(graph.Garbage); n*4 > s.total && s.total > 0 {
			lose("%s of %s are unreachable: the dump was made without a collection, or lacks roots", Bytes(n), Bytes(s.total))
		}
	}
	if g.Level() == graph.LevelHistogram {
		lose("the memory allowed is enough for the histogram and duplicates alone: no paths, no retained sizes")
	} else if g.Level() == graph.LevelPaths {
		lose("the memory allowed is not enough for the dominator tree: retained sizes are of chosen objects")
	}
}

func (s *search) largest() {
	for _, l := range sortedBy(s.hist, func(l graph.Line) int64 { return l.Bytes }) {
		if len(s.report.Largest) == maxClasses {
			break
		}
		s.report.Largest = append(s.report.Largest, Class{l.Class.Name, l.Count, l.Bytes, l.Retained})
	}
}

// add records a finding.
func (s *search) add(f Finding) {
	if s.total > 0 {
		f.Share = float64(f.Bytes) / float64(s.total)
	}
	if f.object != 0 && f.Path == nil {
		f.Path, f.Object = PathTo(s.g, f.object), hex(s.g.ID(f.object))
		if o := owner(f.Path); o != "" {
			f.Field = o
			f.Notes = append(f.Notes, "held by the field "+o)
		}
	}
	s.report.Findings = append(s.report.Findings, f)
}

// worth reports whether bytes are enough for a finding: 1 % of the heap, or a megabyte.
func (s *search) worth(bytes int64) bool {
	return bytes > 0 && (bytes >= 1<<20 || bytes*100 >= s.total)
}

// retained returns what an object keeps, at any level.
func (s *search) retained(o graph.Object) int64 {
	if s.g.HasTree() {
		return s.g.Retained(o)
	}
	n, _ := s.g.RetainedBy(o)
	return n
}

func hex(id uint64) string { return fmt.Sprintf("0x%x", id) }

// Name returns how an object is called in a report.
func Name(g *graph.Graph, o graph.Object) string {
	if w, ok := g.Holder(o); ok {
		return "(" + w.String() + ")"
	}
	if o == 0 {
		return "(roots)"
	}
	c := g.Class(o)
	if g.Kind(o) == graph.KindClass {
		return "class " + c.Name
	}
	return c.Name
}

// maxSteps bounds a path in a report: the middle of a longer one is left out.
const maxSteps = 60

// PathTo returns the steps of a shortest path from a root to an object.
func PathTo(g *graph.Graph, o graph.Object) []Step {
	p, ok := g.Path(o)
	steps := make([]Step, 0, len(p.Steps))
	for i, s := range p.Steps {
		t := Step{Class: Name(g, s.Object), Object: hex(g.ID(s.Object)), Retained: max(g.Retained(s.Object), 0)}
		switch {
		case i == 0 && ok:
			t.Ref = rootText(g, p.Root)
		case i == 0:
			t.Ref = "no root leads here"
		default:
			t.Ref, t.Static = refText(g, s.Ref)
		}
		steps = append(steps, t)
	}
	steps = collapse(steps)
	if len(steps) > maxSteps {
		cut := len(steps) - maxSteps
		gap := Step{Ref: fmt.Sprintf("… %s left out …", plural.Of(cut, "step"))}
		steps = append(append(steps[:maxSteps/2:maxSteps/2], gap), steps[maxSteps/2+cut:]...)
	}
	return steps
}

// minRun is from how many steps on of the same kind, as along a list, all but the first
// and the last are left out.
const minRun = 5

// collapse shortens runs of steps with the same reference and class.
func collapse(steps []Step) []Step {
	out := steps[:0:0]
	for i := 0; i < len(steps); {
		j := i + 1
		for j < len(steps) && steps[j].Ref == steps[i].Ref && steps[j].Class == steps[i].Class {
			j++
		}
		if j-i < minRun {
			out = append(out, steps[i:j]...)
		} else {
			out = append(out, steps[i], Step{Ref: fmt.Sprintf("… %d more of these …", j-i-2)}, steps[j-1])
		}
		i = j
	}
	return out
}

// owner returns the last field on a path that a program's own class declares.
func owner(steps []Step) string {
	for i := len(steps) - 1; i > 0; i-- {
		s := &steps[i]
		dot := strings.LastIndexByte(s.Ref, '.')
		if dot <= 0 || strings.ContainsAny(s.Ref, " <[…") || platform(s.Ref[:dot]) {
			continue
		}
		return s.Ref
	}
	return ""
}

func rootText(g *graph.Graph, r graph.Root) string {
	s := r.Kind.String()
	if r.Kind == graph.RootThread {
		if n := g.ThreadName(r.Object); n != "" {
			s += fmt.Sprintf(" %q", n)
		}
	}
	return s
}

func refText(g *graph.Graph, r graph.Ref) (text string, static bool) {
	switch {
	case r.Local:
		for _, root := range g.RootsOf(r.To) {
			if root.Thread != r.From {
				continue
			}
			if c, ok := g.CallOf(root); ok {
				return "local variable in " + c.String(), false
			}
		}
		return "local variable (" + r.Name + ")", false
	case r.Class != nil:
		text = r.Class.Name + "." + r.Name
	default:
		text = r.String()
	}
	if r.Strength != graph.Strong {
		text += " (" + r.Strength.String() + ")"
	}
	return text, r.Static
}

// Bytes writes a size with three figures.
func Bytes(n int64) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	const units = "kMGTP"
	if n < 1000 {
		return fmt.Sprintf("%s%d B", sign, n)
	}
	v, u := float64(n)/1000, 0
	for v >= 999.5 && u < len(units)-1 {
		v, u = v/1000, u+1
	}
	s := fmt.Sprintf("%.3g", v)
	if v >= 100 {
		s = fmt.Sprintf("%.0f", v)
	}
	return sign + s + " " + units[u:u+1] + "B"
}

// short cuts a text to n characters and makes it one line.
func short(text string, n int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text))
	if len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return string(runes)
}
