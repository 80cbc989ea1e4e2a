package symbol

import (
	"encoding/hex"
	"io"
	"path/filepath"
	"strings"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Kind is what sort of file is looked for.
type Kind uint8

// Kinds.
const (
	KindDebug   Kind = iota // the separate debug file of Path
	KindAlt                 // what dwz moved out of Path: .gnu_debugaltlink
	KindObject              // one split unit, .dwo
	KindPackage             // all split units of Path, .dwp
)

// Query describes a file that is looked for.
type Query struct {
	Kind    Kind
	Path    string // of the module, in the target
	From    string // KindAlt, KindPackage: of the file that refers to it, as a Finder named it or Path
	BuildID string // of the file looked for, hexadecimal; "" unknown
	Link    string // its name as the file that refers to it gives it; "" none
	Dir     string // KindObject: the compiler's working directory
}

// Source is an open file.
type Source interface {
	io.ReaderAt
	io.Closer
}

// Finder knows where debug files are.
type Finder interface {
	// Find calls try with each file that may be the one, the likeliest first,
	// until try says that it is: then the Source is try's to close, else Find
	// closes it. name is the file's path, for messages and for what is beside it.
	Find(q Query, try func(name string, src Source) bool)
}

// Finders asks one after the other.
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

// SystemDir is where distributions put debug files.
const SystemDir = "/usr/lib/debug"

// Dirs finds files on disk. It may be used by several goroutines at once.
type Dirs struct {
	// Root is put before the target's paths, "/proc/PID/root" for a process in
	// another mount namespace; "": the target sees what we see. With a Root, the
	// places under it are tried first, then the same ones without.
	Root string
	// Extra are the user's own folders (--debug-dir), tried first. Files may lie
	// in them by build ID (.build-id/xx/yyy.debug, xx/yyy.debug, ID/debuginfo as
	// debuginfod's cache has it), by path or by name.
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

// candidate is a path in a root or in a folder of the user's.
type candidate struct {
	root, extra string // at most one of them
	path        string
}

// name is how messages call it, and a Query that begins at it.
func (c candidate) name() string {
	if c.extra != "" {
		return filepath.Join(c.extra, c.path)
	}
	return filepath.Clean(c.root + "/" + c.path)
}

// place is where the candidate is looked up. A file system that hangs costs the
// target alone whose root it is in.
func (c candidate) place(owner string) safefile.Place {
	p := safefile.Root(c.root)
	if c.extra != "" {
		p = safefile.Under(c.extra)
	}
	return p.For(owner)
}

// places lists the places for q, the likeliest first. Places that a hostile file
// makes up are harmless: what is there is taken only if its build ID or
// checksum is the one asked for, and is used for names alone.
func (d Dirs) places(q Query) []candidate {
	var out []candidate
	roots := []string{""}
	if d.Root != "" {
		roots = []string{d.Root, ""}
	}
	// under adds a path as the target names it.
	under := func(p string) {
		for _, r := range roots {
			out = append(out, candidate{root: r, path: p})
		}
	}
	// in adds paths in a folder of the user's, which they do not leave by "..".
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
					from.extra = "" // what Real returns begins at the root
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

// candidate is the place of a file that Find named, or of one beside it.
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
