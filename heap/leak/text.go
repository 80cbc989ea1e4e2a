package leak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/sliverprof/sliver/internal/plural"
)

// WriteText writes a report for a terminal.
func (r *Report) WriteText(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%s: %s, %s, %s, %s, %s\n", r.File, r.Format, plural.Of(r.Objects, "object"), plural.Of(r.Classes, "class"), plural.Of(r.Roots, "root"), Bytes(r.Bytes))
	fmt.Fprintf(w, "level %s\n", r.Level)
	if len(r.Held) > 0 {
		for i, h := range r.Held {
			if i > 0 {
				fmt.Fprint(w, ", ")
			}
			fmt.Fprintf(w, "%s %s", Bytes(h.Bytes), h.Strength)
		}
		fmt.Fprintln(w)
	}
	for _, l := range r.Losses {
		fmt.Fprintf(w, "note: %s\n", l)
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(w, "\nno suspects: nothing keeps as much as the report's share of the heap")
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(w, "\n%d. %s (%.1f %%)\n", i+1, f.Title, f.Share*100)
		if f.Library != "" {
			fmt.Fprintf(w, "   a known leak: %s\n", f.Library)
		}
		for _, n := range f.Notes {
			fmt.Fprintf(w, "   %s\n", n)
		}
		for _, c := range f.Content {
			fmt.Fprintf(w, "   %9s  %8d  %s\n", Bytes(max(c.Retained, c.Bytes)), c.Count, c.Name)
		}
		writePath(w, f.Path, "   ")
	}
	fmt.Fprintf(w, "\nclasses with most bytes\n  %9s  %9s  %9s\n", "bytes", "objects", "retained")
	for i, c := range r.Largest {
		if i == 15 {
			break
		}
		retained := "?"
		if c.Retained >= 0 {
			retained = Bytes(c.Retained)
		}
		fmt.Fprintf(w, "  %9s  %9d  %9s  %s\n", Bytes(c.Bytes), c.Count, retained, c.Name)
	}
	return w.Flush()
}

// WritePath writes the steps of a path, one a line.
func WritePath(w io.Writer, path []Step) error {
	b := bufio.NewWriter(w)
	writePath(b, path, "")
	return b.Flush()
}

func writePath(w *bufio.Writer, path []Step, indent string) {
	for i, s := range path {
		if s.Class == "" {
			fmt.Fprintf(w, "%s  %s\n", indent, s.Ref)
			continue
		}
		ref := s.Ref
		if s.Static {
			ref = "static " + ref
		}
		arrow := "→ "
		if i == 0 {
			arrow = ""
			ref = "root: " + ref
		}
		fmt.Fprintf(w, "%s%s%s%s: %s %s", indent, strings.Repeat(" ", min(i, 12)), arrow, ref, s.Class, s.Object)
		if s.Retained > 0 {
			fmt.Fprintf(w, " keeps %s", Bytes(s.Retained))
		}
		fmt.Fprintln(w)
	}
}

// WriteJSON writes a report as JSON; docs/heap.md has its fields.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}
