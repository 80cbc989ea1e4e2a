package symbol

import (
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	for _, p := range d.paths(q) {
		if p = filepath.Clean(p); seen[p] {
			continue
		}
		seen[p] = true
		src, err := openRegular(p)
		if err != nil {
			continue
		}
		if try(p, src) {
			return
		}
		src.Close()
	}
}

// openRegular opens p if it is a plain file. A pipe in its place must not
// block, so it is opened without waiting.
func openRegular(p string) (*os.File, error) {
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, os.ErrInvalid
	}
	return f, nil
}

// paths lists the places for q, the likeliest first. Places that a hostile file
// makes up are harmless: what is there is taken only if its build ID or
// checksum is the one asked for, and is used for names alone.
func (d Dirs) paths(q Query) []string {
	var out []string
	roots := []string{""}
	if d.Root != "" {
		roots = []string{d.Root, ""}
	}
	// under adds a path as the target names it.
	under := func(p string) {
		for _, r := range roots {
			out = append(out, r+p)
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
			out = append(out, filepath.Join(e, ".build-id", byID), filepath.Join(e, byID), filepath.Join(e, id, "debuginfo"),
				filepath.Join(e, id+".debug"))
		}
		under(filepath.Join(SystemDir, ".build-id", byID))
	}
	switch q.Kind {
	case KindDebug:
		for _, e := range d.Extra {
			if link != "" {
				out = append(out, filepath.Join(e, dir, link), filepath.Join(e, link))
			}
			out = append(out, filepath.Join(e, q.Path+".debug"), filepath.Join(e, q.Path), filepath.Join(e, base+".debug"),
				filepath.Join(e, base))
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
			out = append(out, filepath.Join(e, link), filepath.Join(e, ".dwz", link))
		}
		if filepath.IsAbs(q.Link) {
			under(q.Link)
		} else {
			from := q.From
			if real, err := filepath.EvalSymlinks(from); err == nil {
				out = append(out, filepath.Join(filepath.Dir(real), q.Link))
			}
			out = append(out, filepath.Join(filepath.Dir(from), q.Link))
			under(filepath.Join(dir, q.Link))
		}
		under(filepath.Join(SystemDir, ".dwz", link))
	case KindObject:
		full := q.Link
		if !filepath.IsAbs(full) {
			full = filepath.Join(q.Dir, full)
		}
		for _, e := range d.Extra {
			out = append(out, filepath.Join(e, full))
			if rel := filepath.Clean(q.Link); !filepath.IsAbs(rel) && !strings.HasPrefix(rel, "..") {
				out = append(out, filepath.Join(e, rel))
			}
			out = append(out, filepath.Join(e, link))
		}
		under(full)
		under(filepath.Join(dir, q.Link))
		under(filepath.Join(dir, link))
	case KindPackage:
		for _, e := range d.Extra {
			out = append(out, filepath.Join(e, q.Path+".dwp"), filepath.Join(e, base+".dwp"))
		}
		under(q.Path + ".dwp")
		if q.From != "" && q.From != q.Path {
			out = append(out, q.From+".dwp", strings.TrimSuffix(q.From, ".debug")+".dwp")
		}
		under(filepath.Join(SystemDir, q.Path+".dwp"))
	}
	return out
}
