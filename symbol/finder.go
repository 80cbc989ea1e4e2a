package symbol

import (
	"encoding/hex"
	"io"
	"path/filepath"
	"strings"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Kind is the kind of file to find.
type Kind uint8

// Kinds of files.
const (
	KindDebug   Kind = iota // the separate debug file of Path
	KindAlt                 // the parts that dwz moved out of Path: .gnu_debugaltlink
	KindObject              // one split unit, .dwo
	KindPackage             // all split units of Path, .dwp
)

// Query describes a file to find.
type Query struct {
	Kind    Kind
	Path    string // of the module, in the target
	From    string // KindAlt, KindPackage: of the file that refers to it, named by a Finder or Path
	BuildID string // of the file to find, hexadecimal; "" if unknown
	Link    string // its name in the file that refers to it; "" if none
	Dir     string // KindObject: the compiler's working directory
}

// Source is an open file.
type Source interface {
	io.ReaderAt
	io.Closer
}

// Finder finds debug files.
type Finder interface {
	// Find calls try with each file that may match, the likeliest first, until try
	// returns true. Then the caller must close that Source; Find closes all others.
	// name is the file's path, for messages and to find files next to it.
	Find(q Query, try func(name string, src Source) bool)
}

// Finders queries several Finders in order.
type Finders []Finder

// Find implements Finder.
func (fs Finders) Find(q Query, try func(name string, src Source) bool) {
	found := false
	for _, f := range fs {
		f.Find(q, func(name string, src Source) bool {
			found = try(name, src)
			return found
		})
		if found {
			return
		}
	}
}

// SystemDir is where distributions install debug files.
const SystemDir = "/usr/lib/debug"

// Dirs finds files on disk. It may be used by several goroutines at once.
type Dirs struct {
	// Root is a prefix of the target's paths, "/proc/PID/root" for a process in another
	// mount namespace; "": the target has our mount namespace. With a Root, the paths
	// under it are tried first, then the same ones without.
	Root string
	// Extra are the user's own folders (--debug-dir), tried first. They may contain
	// files by build ID (.build-id/xx/yyy.debug, xx/yyy.debug, or ID/debuginfo as in
	// debuginfod's cache), by path or by name.
	Extra []string
}

// Find implements Finder.
func (d Dirs) Find(q Query, try func(name string, src Source) bool) {
	seen := make(map[string]bool)
	for _, c := range d.places(q) {
		p := c.name()
		if seen[p] {
			continue
		}
		seen[p] = true
		src, err := c.place(d.Root).Open(c.path)
		if err != nil {
			continue
		}
		if try(p, src) {
			return
		}
		src.Close()
	}
}

// candidate is a path in a root or in one of the user's folders.
type candidate struct {
	root, extra string // at most one of them is set
	path        string
}

// name is the candidate's name in messages, and in a Query that refers to it.
func (c candidate) name() string {
	if c.extra != "" {
		return filepath.Join(c.extra, c.path)
	}
	return filepath.Clean(c.root + "/" + c.path)
}

// place returns where to look up the candidate. A file system that hangs only affects
// the target whose root it is in.
func (c candidate) place(owner string) safefile.Place {
	p := safefile.Root(c.root)
	if c.extra != "" {
		p = safefile.Under(c.extra)
	}
	return p.For(owner)
}

// places returns the candidates for q, the likeliest first. Paths chosen by a hostile
// file are harmless: a file found there is used only if its build ID or checksum
// matches, and only for names.
func (d Dirs) places(q Query) []candidate {
	var out []candidate
	roots := []string{""}
	if d.Root != "" {
		roots = []string{d.Root, ""}
	}
	// under adds a path as named in the target.
	under := func(p string) {
		for _, r := range roots {
			out = append(out, candidate{root: r, path: p})
		}
	}
	// in adds paths in a user's folder. They cannot leave it with "..".
	in := func(extra string, paths ...string) {
		for _, p := range paths {
			out = append(out, candidate{extra: extra, path: filepath.Clean("/" + p)})
		}
	}
	base := filepath.Base(q.Path)
	dir := filepath.Dir(q.Path)
	id := q.BuildID
	if _, err := hex.DecodeString(id); err != nil || len(id) < 6 {
		id = ""
	}
	link := ""
	if q.Link != "" {
		link = filepath.Base(q.Link)
	}
	if id != "" {
		byID := filepath.Join(id[:2], id[2:]+".debug")
		for _, e := range d.Extra {
			in(e, filepath.Join(".build-id", byID), byID, filepath.Join(id, "debuginfo"), id+".debug")
		}
		under(filepath.Join(SystemDir, ".build-id", byID))
	}
	switch q.Kind {
	case KindDebug:
		for _, e := range d.Extra {
			if link != "" {
				in(e, filepath.Join(dir, link), link)
			}
			in(e, q.Path+".debug", q.Path, base+".debug", base)
		}
		if link != "" {
			under(filepath.Join(dir, link))
			under(filepath.Join(dir, ".debug", link))
			under(filepath.Join(SystemDir, dir, link))
		}
		under(q.Path + ".debug")
		under(filepath.Join(dir, ".debug", base+".debug"))
		under(filepath.Join(SystemDir, q.Path+".debug"))
	case KindAlt:
		for _, e := range d.Extra {
			in(e, link, filepath.Join(".dwz", link))
		}
		if filepath.IsAbs(q.Link) {
			under(q.Link)
		} else {
			from := d.candidate(q.From)
			if real, err := from.place(d.Root).Real(from.path); err == nil {
				if from.extra != "" {
					from.extra = "" // paths from Real start at the root
				}
				out = append(out, candidate{root: from.root, path: filepath.Join(filepath.Dir(real), q.Link)})
			}
			from = d.candidate(filepath.Join(filepath.Dir(q.From), q.Link))
			out = append(out, from)
			under(filepath.Join(dir, q.Link))
		}
		under(filepath.Join(SystemDir, ".dwz", link))
	case KindObject:
		full := q.Link
		if !filepath.IsAbs(full) {
			full = filepath.Join(q.Dir, full)
		}
		for _, e := range d.Extra {
			in(e, full)
			if rel := filepath.Clean(q.Link); !filepath.IsAbs(rel) && !strings.HasPrefix(rel, "..") {
				in(e, rel)
			}
			in(e, link)
		}
		under(full)
		under(filepath.Join(dir, q.Link))
		under(filepath.Join(dir, link))
	case KindPackage:
		for _, e := range d.Extra {
			in(e, q.Path+".dwp", base+".dwp")
		}
		under(q.Path + ".dwp")
		if q.From != "" && q.From != q.Path {
			out = append(out, d.candidate(q.From+".dwp"), d.candidate(strings.TrimSuffix(q.From, ".debug")+".dwp"))
		}
		under(filepath.Join(SystemDir, q.Path+".dwp"))
	}
	return out
}

// candidate returns the candidate of a file that Find named, or of one next to it.
func (d Dirs) candidate(name string) candidate {
	for _, e := range d.Extra {
		if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(e, "/")+"/"); ok && e != "" {
			return candidate{extra: e, path: "/" + rest}
		}
	}
	if rest, ok := strings.CutPrefix(name, d.Root+"/"); ok && d.Root != "" {
		return candidate{root: d.Root, path: "/" + rest}
	}
	return candidate{path: name}
}
