// Package dumps keeps the folder that a flight recorder writes to within its
// bounds: it makes the names of dumps, lists them, and removes the oldest ones.
// What is in them is not its business. A Store may be used from several
// goroutines; two programs may use one folder, if their names differ.
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

// Store is the dumps of one name in a folder.
type Store struct {
	Dir      string
	Max      int   // how many are kept; 0: any number
	MaxBytes int64 // how large they are together; 0: any size

	mu sync.Mutex
}

// Dump is one moment that was kept, in one or several files.
type Dump struct {
	Stem   string // path without the ending
	Target string
	Reason string
	At     time.Time // of the last file's writing
	Files  []string
	Bytes  int64
}

const stamp = "20060102-150405.000"

// parts are the target, time and reason of a dump's name.
var parts = regexp.MustCompile(`^(.+)-(\d{8}-\d{6}\.\d{3})-([a-z][a-z0-9-]*)$`)

// Stem is the path of a new dump, without an ending: NAME-TIME-REASON.
func (s *Store) Stem(target string, at time.Time, reason string) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%s-%s-%s", Clean(target), at.Format(stamp), reason))
}

// Clean makes a name fit for a file.
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

// List returns the dumps of the folder,
// oldest first. Other files are left alone.
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
			continue // it was removed meanwhile
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
		if slices.Contains(d.Files, d.Stem+".sliver") { // else it is no dump of ours
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

// stemOf takes the ending off a file of a dump: the reason has no dots.
func stemOf(name string) (string, bool) {
	for i := len(name) - 1; i > 0; i-- {
		if name[i] == '.' && parts.MatchString(name[:i]) {
			return name[:i], true
		}
	}
	return "", false
}

// Trim removes the oldest dumps until what is left, with more bytes to come in
// news more dumps, is within the bounds. It returns those that it removed.
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
