package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/leak"
	"github.com/sliverprof/sliver/internal/plural"
)

func writeJSON(e *env, v any) error {
	w := json.NewEncoder(e.stdout)
	w.SetIndent("", "  ")
	w.SetEscapeHTML(false)
	return w.Encode(v)
}

func heapHisto(ctx context.Context, e *env, f *heapFlags, args []string) error {
	g, err := f.open(ctx, e, args[0])
	if err != nil {
		return err
	}
	defer g.Close()
	lines := g.Histogram()
	slices.SortFunc(lines, func(a, b graph.Line) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Class.Name, b.Class.Name), cmp.Compare(a.Class.ID, b.Class.ID))
	})
	all := len(lines)
	var count uint64
	var bytes int64
	for _, l := range lines {
		count += l.Count
		bytes += l.Bytes
	}
	if f.json {
		doc := struct {
			Level   string       `json:"level"`
			Objects uint64       `json:"objects"`
			Bytes   int64        `json:"bytes"`
			Classes []leak.Class `json:"classes"`
		}{g.Level().String(), count, bytes, []leak.Class{}}
		for _, l := range lines {
			doc.Classes = append(doc.Classes, leak.Class{Name: l.Class.Name, Count: l.Count, Bytes: l.Bytes, Retained: l.Retained})
		}
		return writeJSON(e, doc)
	}
	w := bufio.NewWriter(e.stdout)
	fmt.Fprintf(w, "%12s  %12s  %14s  class\n", "objects", "bytes", "retained")
	for _, l := range lines[:min(f.top, all)] {
		fmt.Fprintf(w, "%12d  %12d  %14s  %s\n", l.Count, l.Bytes, known(l.Retained), printable(l.Class.Name))
	}
	fmt.Fprintf(w, "%12d  %12d  %14s  all %s with objects\n", count, bytes, "", plural.Of(all, "class"))
	return w.Flush()
}

// known formats a retained size, which not every level has.
func known(n int64) string {
	if n < 0 {
		return "?"
	}
	return strconv.FormatInt(n, 10)
}

func heapDiff(ctx context.Context, e *env, f *heapFlags, args []string) error {
	var sides [2]leak.Side
	for i, path := range args {
		g, err := f.open(ctx, e, path)
		if err != nil {
			return err
		}
		sides[i] = leak.Side{Name: filepath.Base(path), Lines: g.Histogram()}
		if g.HasTree() {
			sides[i].Tree = leak.Tree(g)
		}
		g.Close()
	}
	d := leak.Compare(sides[0], sides[1])
	if f.json {
		return d.WriteJSON(e.stdout)
	}
	return plainly(e.stdout, d.WriteText)
}

// findObject parses an object ID and returns the object.
func findObject(g *graph.Graph, word string) (graph.Object, error) {
	if g.Level() == graph.LevelHistogram {
		return 0, fmt.Errorf("objects need more --max-memory: this level has the histogram only")
	}
	id, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(word), "0x"), 16, 64)
	if err != nil {
		return 0, usagef("heap", "%q is not the ID of an object (example: 0x7f9f5d600018)", word)
	}
	o := g.Find(id)
	if o == 0 {
		return 0, fmt.Errorf("the dump has no object 0x%x", id)
	}
	return o, nil
}

func heapPath(ctx context.Context, e *env, f *heapFlags, args []string) error {
	if _, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(args[1]), "0x"), 16, 64); err != nil {
		return usagef("heap", "%q is not the ID of an object (example: 0x7f9f5d600018)", args[1])
	}
	g, err := f.open(ctx, e, args[0])
	if err != nil {
		return err
	}
	defer g.Close()
	o, err := findObject(g, args[1])
	if err != nil {
		return err
	}
	path := leak.PathTo(g, o)
	if f.json {
		return writeJSON(e, path)
	}
	return plainly(e.stdout, func(w io.Writer) error { return leak.WritePath(w, path) })
}

func heapShow(ctx context.Context, e *env, f *heapFlags, args []string) error {
	g, err := f.open(ctx, e, args[0])
	if err != nil {
		return err
	}
	defer g.Close()
	if all := g.ClassesByName(args[1]); len(all) > 0 {
		show := func(w io.Writer) error { return leak.ShowClass(w, g, all, f.top, f.json) }
		if f.json {
			return show(e.stdout)
		}
		return plainly(e.stdout, show)
	}
	if !strings.HasPrefix(strings.ToLower(args[1]), "0x") {
		return fmt.Errorf("%s: no class %q, and no object's ID (example: 0x7f9f5d600018)", args[0], args[1])
	}
	o, err := findObject(g, args[1])
	if err != nil {
		return err
	}
	show := func(w io.Writer) error { return leak.ShowObject(w, g, o, f.top, f.json) }
	if f.json {
		return show(e.stdout)
	}
	return plainly(e.stdout, show)
}
