package iowatch

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// leastAlike is how many files must have alike names to be shown as one: fewer are read faster by themselves.
const leastAlike = 8

// Names in which the kernel or a library has put something random (mkstemp, sessions) are alike if they have the
// same directory, length, first bytes and ending.
const (
	alikeFirst = 3 // bytes
	alikeName  = 6 // least length, in bytes
	alikeEnd   = 8 // greatest length of an ending such as .json, in bytes
)

// Alike finds files whose paths differ in numbers only, or in the middle of the name. It returns for each path the
// pattern of its group, such as /tmp/sess_*.json; "": the path belongs to none, or is "".
func Alike(paths []string) []string {
	out := make([]string, len(paths))
	groups := map[string][]int{}
	add := func(i int, key string) {
		if key != "" {
			groups[key] = append(groups[key], i)
		}
	}
	for i, p := range paths {
		add(i, numberless(p))
	}
	for key, g := range groups {
		if len(g) >= leastAlike {
			for _, i := range g {
				out[i] = key
			}
		}
	}
	clear(groups)
	for i, p := range paths {
		if out[i] == "" {
			add(i, outline(p))
		}
	}
	for _, g := range groups {
		if len(g) < leastAlike {
			continue
		}
		same := paths[g[0]]
		for _, i := range g {
			n := 0
			for n < len(same) && same[n] == paths[i][n] { // their lengths are equal
				n++
			}
			same = same[:n]
		}
		for same != "" && !utf8.ValidString(same) {
			same = same[:len(same)-1]
		}
		for _, i := range g {
			out[i] = same + "*" + ending(paths[i][strings.LastIndexByte(paths[i], '/')+1:])
		}
	}
	return out
}

// numberless is a path with * for each number; "" if it has none.
func numberless(p string) string {
	if !strings.ContainsAny(p, "0123456789") {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch digit := p[i] >= '0' && p[i] <= '9'; {
		case !digit:
			b.WriteByte(p[i])
		case i == 0 || p[i-1] < '0' || p[i-1] > '9':
			b.WriteByte('*')
		}
	}
	return b.String()
}

// outline is what the paths of files with random names in a directory have in common; "": the name is too short.
func outline(p string) string {
	dir := strings.LastIndexByte(p, '/') + 1
	name := p[dir:]
	if len(name) < alikeName {
		return ""
	}
	return p[:dir] + name[:alikeFirst] + strings.Repeat("?", len(name)) + ending(name)
}

// ending is the last part of a name, from its dot on; "": it has none.
func ending(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= alikeFirst && len(name)-i <= alikeEnd {
		return name[i:]
	}
	return ""
}

// Row is a row of a table of files: one file, or several with alike names.
type Row struct {
	Pattern string // of several; "": it is one file
	Files   []int  // their numbers
}

// Rows groups files by their paths, in the order of the first file of each row. A file whose path is "" is a row.
func Rows(paths []string) []Row {
	var out []Row
	at := map[string]int{}
	for i, pattern := range Alike(paths) {
		if k, ok := at[pattern]; ok && pattern != "" {
			out[k].Files = append(out[k].Files, i)
			continue
		}
		at[pattern] = len(out)
		out = append(out, Row{pattern, []int{i}})
	}
	return out
}

// Fold adds up the regular files with alike names, such as temporary ones, which would fill a table: none of them
// takes long, and all together do. A row of several has their pattern as its path. The rows are in the order of Files.
func Fold(files []File) []File {
	paths := make([]string, len(files))
	for i := range files {
		if k := files[i].Kind; k == KindFile || k == KindUnknown { // the kind of a file that was open at the begin is known at its first use
			paths[i] = files[i].Path
		}
	}
	var out []File
	for _, r := range Rows(paths) {
		if r.Pattern == "" {
			out = append(out, files[r.Files[0]])
			continue
		}
		sum := File{Path: r.Pattern, Kind: KindFile}
		for _, i := range r.Files {
			sum.include(&files[i])
		}
		out = append(out, sum)
	}
	slices.SortStableFunc(out, func(a, b File) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Opens, a.Opens)) })
	return out
}

// include adds another file to a row.
func (f *File) include(x *File) {
	f.Files++
	f.Opens += x.Opens
	f.Open += x.Open
	f.Ops += x.Ops
	f.Syncs += x.Syncs
	f.Want += x.Want
	f.Got += x.Got
	f.Written += x.Written
	f.Time += x.Time
	f.Longest = max(f.Longest, x.Longest)
	f.Misses += x.Misses
	f.Missed += x.Missed
	f.Faults += x.Faults
	f.Faulted += x.Faulted
	for i, n := range x.Hist {
		f.Hist[i] += n
	}
	if f.Stack == 0 {
		f.Stack = x.Stack
	}
}
