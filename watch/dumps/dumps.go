// Package dumps keeps a flight recorder's folder within its limits: it chooses the names
// of dumps, lists them, and removes the oldest ones. It does not read their contents. A
// Store may be used from several goroutines; two programs may share a folder if their
// names differ.
package dumps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Store is the set of dumps with one name in a folder.
type Store struct {
	Dir      string
	Max      int   // maximum number; 0: no limit
	MaxBytes int64 // maximum total size; 0: no limit

	mu sync.Mutex
}

// Dump is one kept moment, in one or several files.
type Dump struct {
	Stem   string // path without the extension
	Target string
	Reason string
	At     time.Time // when the last file was written
	Files  []string
	Bytes  int64
}

const stamp = "20060102-150405.000"

// parts matches the target, time and reason in a dump's name.
var parts = regexp.MustCompile(`^(.+)-(\d{8}-\d{6}\.\d{3})-([a-z][a-z0-9-]*)$`)

// Stem returns the path of a new dump without an extension: NAME-TIME-REASON.
func (s *Store) Stem(target string, at time.Time, reason string) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%s-%s-%s", Clean(target), at.Format(stamp), reason))
}

// Clean makes a name safe for a file name.
func Clean(name string) string {
	const most = 64
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, name)
	if name = strings.TrimLeft(name, ".-"); name == "" {
		name = "target"
	}
	return name[:min(len(name), most)]
}

// List returns the dumps in the folder, oldest first. Other files are ignored.
func (s *Store) List() ([]Dump, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	by := map[string]*Dump{}
	for _, e := range entries {
		name := e.Name()
		if !e.Type().IsRegular() || strings.HasPrefix(name, ".") {
			continue
		}
		stem, ok := stemOf(name)
		if !ok {
			continue
		}
		fi, err := e.Info()
		if err != nil {
			continue // removed in the meantime
		}
		d := by[stem]
		if d == nil {
			p := parts.FindStringSubmatch(stem)
			d = &Dump{Stem: filepath.Join(s.Dir, stem), Target: p[1], Reason: p[3]}
			by[stem] = d
		}
		d.Files = append(d.Files, filepath.Join(s.Dir, name))
		d.Bytes += fi.Size()
		if fi.ModTime().After(d.At) {
			d.At = fi.ModTime()
		}
	}
	out := make([]Dump, 0, len(by))
	for _, d := range by {
		if slices.Contains(d.Files, d.Stem+".sliver") { // otherwise it is not one of our dumps
			out = append(out, *d)
		}
	}
	slices.SortFunc(out, func(a, b Dump) int {
		if c := strings.Compare(timeOf(a.Stem), timeOf(b.Stem)); c != 0 {
			return c
		}
		return strings.Compare(a.Stem, b.Stem)
	})
	return out, nil
}

func timeOf(stem string) string {
	if p := parts.FindStringSubmatch(filepath.Base(stem)); p != nil {
		return p[2]
	}
	return ""
}

// stemOf removes the extension of a dump's file; the reason contains no dots.
func stemOf(name string) (string, bool) {
	for i := len(name) - 1; i > 0; i-- {
		if name[i] == '.' && parts.MatchString(name[:i]) {
			return name[:i], true
		}
	}
	return "", false
}

// Trim removes the oldest dumps until the rest, plus more bytes in news new dumps, is
// within the limits. It returns the removed ones.
func (s *Store) Trim(news int, more int64) (removed []Dump, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Max == 0 && s.MaxBytes == 0 {
		return nil, nil
	}
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	bytes := more
	for i := range all {
		bytes += all[i].Bytes
	}
	n := len(all) + news
	for len(all) > 0 && (s.Max > 0 && n > s.Max || s.MaxBytes > 0 && bytes > s.MaxBytes) {
		if err := all[0].remove(); err != nil {
			return removed, err
		}
		removed = append(removed, all[0])
		bytes -= all[0].Bytes
		n--
		all = all[1:]
	}
	return removed, nil
}

func (d *Dump) remove() error {
	for _, f := range d.Files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old dump: %w", err)
		}
	}
	return nil
}
