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
	p := places{Dirs: d, q: q, dir: filepath.Dir(q.Path), base: filepath.Base(q.Path)}
	if q.Link != "" {
		p.link = filepath.Base(q.Link)
	}
	p.byID()
	switch q.Kind {
	case KindDebug:
		p.debug()
	case KindAlt:
		p.alt()
	case KindObject:
		p.object()
	case KindPackage:
		p.pack()
	}
	return p.out
}

// places collects the candidates for a query.
type places struct {
	Dirs
	q         Query
	dir, base string // of q.Path
	link      string // file name of q.Link; "": there is none
	out       []candidate
}

// under adds a path as named in the target.
func (p *places) under(path string) {
	if p.Root != "" {
		p.out = append(p.out, candidate{root: p.Root, path: path})
	}
	p.out = append(p.out, candidate{path: path})
}

// in adds paths in a user's folder. They cannot leave it with "..".
func (p *places) in(extra string, paths ...string) {
	for _, path := range paths {
		p.out = append(p.out, candidate{extra: extra, path: filepath.Clean("/" + path)})
	}
}

// byID adds where a file is found by its build ID.
func (p *places) byID() {
	id := p.q.BuildID
	if _, err := hex.DecodeString(id); err != nil || len(id) < 6 {
		return
	}
	path := filepath.Join(id[:2], id[2:]+".debug")
	for _, e := range p.Extra {
		p.in(e, filepath.Join(".build-id", path), path, filepath.Join(id, "debuginfo"), id+".debug")
	}
	p.under(filepath.Join(SystemDir, ".build-id", path))
}

// debug adds where a separate debug file is found by a .gnu_debuglink or by the file's path.
func (p *places) debug() {
	for _, e := range p.Extra {
		if p.link != "" {
			p.in(e, filepath.Join(p.dir, p.link), p.link)
		}
		p.in(e, p.q.Path+".debug", p.q.Path, p.base+".debug", p.base)
	}
	if p.link != "" {
		p.under(filepath.Join(p.dir, p.link))
		p.under(filepath.Join(p.dir, ".debug", p.link))
		p.under(filepath.Join(SystemDir, p.dir, p.link))
	}
	p.under(p.q.Path + ".debug")
	p.under(filepath.Join(p.dir, ".debug", p.base+".debug"))
	p.under(filepath.Join(SystemDir, p.q.Path+".debug"))
}

// alt adds where a file of common debug data (.gnu_debugaltlink) is found.
func (p *places) alt() {
	for _, e := range p.Extra {
		p.in(e, p.link, filepath.Join(".dwz", p.link))
	}
	if filepath.IsAbs(p.q.Link) {
		p.under(p.q.Link)
	} else {
		p.nextTo(p.candidate(p.q.From))
		p.out = append(p.out, p.candidate(filepath.Join(filepath.Dir(p.q.From), p.q.Link)))
		p.under(filepath.Join(p.dir, p.q.Link))
	}
	p.under(filepath.Join(SystemDir, ".dwz", p.link))
}

// nextTo adds the link relative to the file that from leads to.
func (p *places) nextTo(from candidate) {
	real, err := from.place(p.Root).Real(from.path)
	if err != nil {
		return
	}
	// With a user's folder too, paths from Real start at the root.
	p.out = append(p.out, candidate{root: from.root, path: filepath.Join(filepath.Dir(real), p.q.Link)})
}

// object adds where an object or .dwo file is found, whose path the compiler recorded.
func (p *places) object() {
	full := p.q.Link
	if !filepath.IsAbs(full) {
		full = filepath.Join(p.q.Dir, full)
	}
	for _, e := range p.Extra {
		p.in(e, full)
		if rel := filepath.Clean(p.q.Link); !filepath.IsAbs(rel) && !strings.HasPrefix(rel, "..") {
			p.in(e, rel)
		}
		p.in(e, p.link)
	}
	p.under(full)
	p.under(filepath.Join(p.dir, p.q.Link))
	p.under(filepath.Join(p.dir, p.link))
}

// pack adds where a .dwp file is found.
func (p *places) pack() {
	for _, e := range p.Extra {
		p.in(e, p.q.Path+".dwp", p.base+".dwp")
	}
	p.under(p.q.Path + ".dwp")
	if p.q.From != "" && p.q.From != p.q.Path {
		p.out = append(p.out, p.candidate(p.q.From+".dwp"), p.candidate(strings.TrimSuffix(p.q.From, ".debug")+".dwp"))
	}
	p.under(filepath.Join(SystemDir, p.q.Path+".dwp"))
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
