package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/trace"
)

// IO is the I/O of a recording (--io). Times are in ns, percentiles at most half too high.
type IO struct {
	Findings []IOFinding `json:"findings"`
	Files    []IOFile    `json:"files"` // those with the most time first
	Rings    []IORing    `json:"uring"` // through io_uring, which passes by the system calls of Files; of the whole recording
	// Part: the files are of the operations in the recording alone, without those that are in the sums
	// only, because a part of the recording was chosen.
	Part bool `json:"part,omitempty"`
}

// IOFinding is a slow or wasteful use of a file.
type IOFinding struct {
	Rule      string   `json:"rule"`
	Advice    string   `json:"advice"`
	Path      string   `json:"path"`
	TID       int32    `json:"tid"`
	Thread    string   `json:"thread"`
	At        int64    `json:"at_ns"` // since the recording began
	Ops       uint64   `json:"ops"`
	Requested uint64   `json:"requested_bytes"`
	Buffer    uint64   `json:"buffer_bytes"`
	Size      int64    `json:"size_bytes"` // -1: unknown
	Total     int64    `json:"total_ns"`
	Longest   int64    `json:"longest_ns"`
	Count     int      `json:"count"`
	Opened    []string `json:"opened"` // stack of the open, leaf first
	Stack     []string `json:"stack"`  // stack of the operation, leaf first
	// Also are other files for which the rule fired at the same place, at most maxAlso; AlsoMore is how many more
	// there are.
	Also     []string `json:"also,omitempty"`
	AlsoMore int      `json:"also_more,omitempty"`
}

// IOFile is the use of a file, or of several with alike names (iowatch.Alike), whose pattern is the path. Of several, the
// percentiles are 0.
type IOFile struct {
	Path    string   `json:"path"`
	Files   int      `json:"files,omitempty"` // of several: how many
	Kind    string   `json:"kind"`
	Opens   uint64   `json:"opens"`
	Open    int      `json:"open"` // descriptors at the end
	Ops     uint64   `json:"ops"`  // reads and writes
	Syncs   uint64   `json:"syncs"`
	Read    uint64   `json:"read_bytes"`
	Written uint64   `json:"written_bytes"`
	Total   int64    `json:"total_ns"` // in reads, writes and syncs
	P50     int64    `json:"p50_ns"`
	P99     int64    `json:"p99_ns"`
	Max     int64    `json:"max_ns"`
	Misses  uint64   `json:"misses"`     // reads that waited since the page cache did not have the data
	Missed  int64    `json:"missed_ns"`  // in those
	Faults  uint64   `json:"faults"`     // major page faults in the mapped file
	Faulted int64    `json:"faulted_ns"` // in those
	Stack   []string `json:"stack"`      // of the last open, from the innermost function of the program itself on
}

// IORing is the use of a file through io_uring.
type IORing struct {
	Path    string `json:"path"`
	Ops     uint64 `json:"ops"` // reads and writes
	Syncs   uint64 `json:"syncs"`
	Others  uint64 `json:"others"` // accepts, opens, polls …
	Errors  uint64 `json:"errors"`
	Read    uint64 `json:"read_bytes"`
	Written uint64 `json:"written_bytes"`
	Total   int64  `json:"total_ns"` // from submissions to completions
	Max     int64  `json:"max_ns"`
}

// io reports on I/O.
func (r *Report) io(v *view.View, top int) {
	x := v.Rec.IO
	if x == nil {
		return
	}
	out := &IO{Findings: []IOFinding{}, Rings: []IORing{}}
	for i := range x.Rings {
		f := &x.Rings[i]
		out.Rings = append(out.Rings, IORing{view.Text(f.Path, view.MaxName), f.Ops, f.Syncs, f.Others, f.Errors, f.Read, f.Written, int64(f.Time), int64(f.Max)})
	}
	list := func(lines []string, cut string) []string {
		if cut != "" {
			lines = append(lines, "… "+cut)
		}
		if lines == nil {
			lines = []string{}
		}
		return lines
	}
	text := func(stack int) []string { return list(v.IOStack(stack)) }
	begin := v.Begin()
	type place struct {
		rule          string
		opened, where int
	}
	places := map[place]int{} // in out.Findings
	v.Findings(func(f *trace.IOFinding, _ int) bool {
		at := place{f.Rule, f.Stack, f.Where}
		if i, ok := places[at]; ok && (f.Stack >= 0 || f.Where >= 0) {
			out.Findings[i].also(view.Text(f.Path, view.MaxName))
			return true
		}
		if len(out.Findings) == maxFindings {
			r.More.Findings++
			return true
		}
		places[at] = len(out.Findings)
		out.Findings = append(out.Findings, IOFinding{Rule: view.Text(f.Rule, 64), Advice: view.Text(f.Advice, view.MaxName), Path: view.Text(f.Path, view.MaxName),
			TID: int32(f.TID), Thread: view.Text(f.Thread, 256), At: int64(f.At - begin), Ops: f.Ops, Requested: f.Want, Buffer: f.Buffer, Size: f.Size, Total: f.Cost,
			Longest: f.Longest, Count: f.Count, Opened: text(f.Stack), Stack: text(f.Where)})
		return true
	})
	files := x.Files
	more := x.MoreFiles
	if out.Part = !v.Whole() || len(v.Threads) != len(v.Rec.Threads); out.Part {
		files, more = usedFiles(v), 0
	}
	rows, n := cutFiles(foldFiles(v, files), top, func(f *fileRow) int { return f.files })
	r.More.Files = n + more
	out.Files = make([]IOFile, len(rows))
	for i := range rows {
		f := &rows[i]
		out.Files[i] = IOFile{Path: f.path, Files: f.files, Kind: ioKind(v, f.File), Opens: f.Opens, Open: f.Open, Ops: f.Ops, Syncs: f.Syncs, Read: f.Read, Written: f.Written,
			Total: int64(f.Time), P50: f.P50, P99: f.P99, Max: int64(f.Max), Misses: f.Misses, Missed: int64(f.Missed), Faults: f.Faults,
			Faulted: int64(f.Faulted), Stack: list(v.IOCallers(f.Stack))}
	}
	r.IO = out
}

// ioKind is the kind of a file by its number.
func ioKind(v *view.View, file int) string {
	if file < 0 || file >= len(v.Rec.IONames.Files) {
		return ""
	}
	return view.Text(v.Rec.IONames.Files[file].Kind, 64)
}

// fileRow is a file, or several with alike names.
type fileRow struct {
	trace.IOFile
	path  string
	files int // of several: how many
}

// foldFiles adds up the regular files with alike names, and orders the rows as the files were.
func foldFiles(v *view.View, files []trace.IOFile) []fileRow {
	paths := make([]string, len(files))
	for i := range files {
		if k := ioKind(v, files[i].File); k == iowatch.KindFile.String() || k == iowatch.KindUnknown.String() {
			paths[i] = v.IOPath(files[i].File)
		}
	}
	var out []fileRow
	for _, r := range iowatch.Rows(paths) {
		first := &files[r.Files[0]]
		if r.Pattern == "" {
			out = append(out, fileRow{IOFile: *first, path: v.IOPath(first.File)})
			continue
		}
		sum := fileRow{IOFile: *first, path: r.Pattern, files: 1}
		for _, i := range r.Files[1:] {
			sum.include(&files[i])
		}
		out = append(out, sum)
	}
	slices.SortStableFunc(out, func(a, b fileRow) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Opens, a.Opens)) })
	return out
}

// include adds another file to a row.
func (r *fileRow) include(f *trace.IOFile) {
	r.files++
	r.Opens, r.Open, r.Ops, r.Syncs = r.Opens+f.Opens, r.Open+f.Open, r.Ops+f.Ops, r.Syncs+f.Syncs
	r.Read, r.Written, r.Time, r.Max = r.Read+f.Read, r.Written+f.Written, r.Time+f.Time, max(r.Max, f.Max)
	r.Misses, r.Missed, r.Faults, r.Faulted = r.Misses+f.Misses, r.Missed+f.Missed, r.Faults+f.Faults, r.Faulted+f.Faulted
	r.P50, r.P99 = 0, 0
	if r.Stack < 0 {
		r.Stack = f.Stack
	}
}

// cutFiles limits the rows, and counts the files of the others. files is how many files a row is of; 0: one.
func cutFiles[T any](rows []T, top int, files func(*T) int) (kept []T, more int) {
	kept, n := cut(rows, top)
	for i := range n {
		more += max(files(&rows[len(kept)+i]), 1)
	}
	return kept, more
}

// Name is the path, with the number of files if there are several; the kind where the path is unknown.
func (f *IOFile) Name() string {
	switch {
	case f.Path == "":
		return f.Kind
	case f.Files > 0:
		return fmt.Sprintf("%s (%s)", f.Path, plural.Of(f.Files, "file"))
	}
	return f.Path
}

// Percentile is one of the file's as text; "": of several files it is not known.
func (f *IOFile) Percentile(ns int64) string {
	if f.Files > 0 {
		return ""
	}
	return duration(ns)
}

// maxFindings limits the findings of a report, and maxAlso the other files of one.
const maxFindings, maxAlso = 200, 20

// also adds a file for which the rule fired at the same place.
func (f *IOFinding) also(path string) {
	switch {
	case path == f.Path || slices.Contains(f.Also, path):
	case len(f.Also) == maxAlso:
		f.AlsoMore++
	default:
		f.Also = append(f.Also, path)
	}
}

// AlsoText names the other files for HTML; "": there are none.
func (f *IOFinding) AlsoText() string {
	if len(f.Also) == 0 {
		return ""
	}
	text := "the same of " + strings.Join(f.Also, ", ")
	if f.AlsoMore > 0 {
		text += fmt.Sprintf(" and %d more", f.AlsoMore)
	}
	return text
}

// usedFiles adds up the recorded operations of a view by file.
func usedFiles(v *view.View) []trace.IOFile {
	type use struct {
		trace.IOFile
		times [iowatch.Buckets]uint64
	}
	all := map[int]*use{}
	v.Ops(func(o *view.Op) bool {
		u, took := all[o.File], uint64(o.Busy())
		if u == nil {
			u = &use{IOFile: trace.IOFile{File: o.File, Stack: -1}}
			all[o.File] = u
		}
		switch o.Op {
		case iowatch.OpOpen, iowatch.OpMake:
			if u.Opens++; o.Stack >= 0 {
				u.Stack = o.Stack
			}
			return true
		case iowatch.OpClose, iowatch.OpConnect:
			return true
		case iowatch.OpFault:
			u.Faults, u.Faulted = u.Faults+1, u.Faulted+took
			return true
		case iowatch.OpSync:
			u.Syncs++
		case iowatch.OpCall:
		case iowatch.OpWrite:
			u.Ops, u.Written = u.Ops+1, u.Written+uint64(max(o.Ret, 0))
		default:
			u.Ops, u.Read = u.Ops+1, u.Read+uint64(max(o.Ret, 0))
		}
		if o.Missed {
			u.Misses, u.Missed = u.Misses+1, u.Missed+took
		}
		u.Time += took
		u.Max = max(u.Max, took)
		u.times[iowatch.Bucket(took)]++
		return true
	})
	var out []trace.IOFile
	for _, u := range all {
		u.P50, u.P99 = iowatch.Percentile(&u.times, .5), iowatch.Percentile(&u.times, .99)
		out = append(out, u.IOFile)
	}
	slices.SortFunc(out, func(a, b trace.IOFile) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Opens, a.Opens), cmp.Compare(a.File, b.File))
	})
	return out
}

// textFindings writes the findings of I/O.
func (r *Report) textFindings(w io.Writer) {
	if r.IO == nil || len(r.IO.Findings) == 0 {
		return
	}
	fmt.Fprintf(w, "\nFindings of I/O%s\n", more(r.More.Findings))
	for i := range r.IO.Findings {
		f := &r.IO.Findings[i]
		fmt.Fprintf(w, "  %s  %s\n    %s\n    thread %s (%d) at %s", f.Rule, cell(f.Path), f.Advice, cell(f.Thread), f.TID, duration(f.At))
		if f.Ops > 0 {
			fmt.Fprintf(w, "; %s, %s requested, %s", plural.Of(f.Ops, "operation"), Amount(f.Requested), duration(f.Total))
		}
		fmt.Fprintln(w)
		for i, path := range f.Also {
			if i == textAlso {
				fmt.Fprintf(w, "    and of %d more\n", len(f.Also)-i+f.AlsoMore)
				break
			}
			fmt.Fprintf(w, "    the same of %s\n", cell(path))
		}
		textStack(w, "opened in", f.Opened)
		if !slices.Equal(f.Stack, f.Opened) {
			textStack(w, "called in", f.Stack)
		}
	}
}

// ioFrames is how many frames of a stack the text has, textAlso how many other files of a finding.
const ioFrames, textAlso = 14, 5

func textStack(w io.Writer, title string, stack []string) {
	for i, f := range stack {
		switch {
		case i == ioFrames:
			fmt.Fprintf(w, "      … %d more\n", len(stack)-i)
			return
		case i == 0:
			fmt.Fprintf(w, "    %s %s\n", title, cell(f))
		default:
			fmt.Fprintf(w, "      %s\n", cell(f))
		}
	}
}

// textFiles writes the table of files.
func (r *Report) textFiles(w io.Writer) {
	if r.IO == nil {
		return
	}
	defer r.textRings(w)
	if len(r.IO.Files) == 0 {
		return
	}
	fmt.Fprintf(w, "\nFiles%s\n", more(r.More.Files))
	t := newTable(w, "opens", "open", "ops", "syncs", "read", "written", "total", "p50", "p99", "longest", "missed", "faults", "opened in", "file")
	for i := range r.IO.Files {
		f := &r.IO.Files[i]
		t.row(fmt.Sprint(f.Opens), fmt.Sprint(f.Open), fmt.Sprint(f.Ops), fmt.Sprint(f.Syncs), Amount(f.Read), Amount(f.Written), duration(f.Total), f.Percentile(f.P50),
			f.Percentile(f.P99), duration(f.Max), waits(f.Misses, f.Missed), waits(f.Faults, f.Faulted), cell(opener(f.Stack)), cell(f.Name()))
	}
	t.end()
}

// textRings writes the table of files that io_uring used.
func (r *Report) textRings(w io.Writer) {
	if len(r.IO.Rings) == 0 {
		return
	}
	fmt.Fprintln(w, "\nThrough io_uring")
	t := newTable(w, "ops", "syncs", "others", "errors", "read", "written", "total", "longest", "file")
	for i := range r.IO.Rings {
		f := &r.IO.Rings[i]
		t.row(fmt.Sprint(f.Ops), fmt.Sprint(f.Syncs), fmt.Sprint(f.Others), fmt.Sprint(f.Errors), Amount(f.Read), Amount(f.Written), duration(f.Total), duration(f.Max), cell(f.Path))
	}
	t.end()
}

// waits is a number of waits and their time, such as 12 in 3 ms; "": none.
func waits(n uint64, ns int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d in %s", n, duration(ns))
}

// opener returns the function of the first line of a stack without its place; "": there is none.
func opener(stack []string) string {
	if len(stack) == 0 {
		return ""
	}
	name := stack[0]
	if i := strings.LastIndex(name, " ("); i > 0 && strings.HasSuffix(name, ")") {
		return name[:i]
	}
	return name
}

// Amount is a number of bytes with at most four digits.
func Amount(n uint64) string {
	const units = "BkMGTPE"
	x, i := float64(n), 0
	for x >= 1000 && i < len(units)-1 {
		x /= 1000
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %cB", x, units[i])
}
