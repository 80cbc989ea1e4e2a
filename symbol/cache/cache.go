// Package cache stores data about files that are expensive to compute or fetch: the frames of
// addresses, by build ID, decompressed sections, by their content, and downloaded debug files. A Dir is a folder of bounded
// size; it evicts the least recently used files first.
//
// Several programs may share one folder: files appear complete, by a rename, and a
// damaged file is removed and created again. Nothing depends on the cache: its failures
// only cost time.
//
// A Dir may be used by several goroutines.
package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Dir is a folder of files.
type Dir struct {
	path string
	max  int64

	mu    sync.Mutex
	total int64 // bytes in the folder at the last look, and of the files put after it
	puts  int   // since the last look; 0: there was none
}

// lookEvery is how many files are put between two looks at the whole folder, which take 1 to 2 ms for 1,000 files. Other
// programs may put files too.
const lookEvery = 64

// temporary is the name prefix of incomplete files. Those of a program that died are
// removed after stale.
const (
	temporary = ".new-"
	stale     = time.Hour
)

// Open uses the folder path for at most max bytes, and creates it if needed.
func Open(path string, max int64) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &Dir{path: path, max: max}, nil
}

// valid accepts only names of plain files in the folder.
func valid(name string) bool {
	return name != "" && !strings.ContainsAny(name, "/\x00") && name[0] != '.' && len(name) < 200
}

// File opens a stored file and marks it as used.
func (d *Dir) File(name string) (*os.File, error) {
	if !valid(name) {
		return nil, fs.ErrNotExist
	}
	p := filepath.Join(d.path, name)
	f, err := safefile.Named(p)
	if errors.Is(err, safefile.ErrNotRegular) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	now := time.Now()
	_ = os.Chtimes(p, now, now) // a failure only affects the order of eviction
	return f, nil
}

// Put creates a file with what fill writes, and opens it. If fill fails, nothing is
// left of it.
func (d *Dir) Put(name string, fill func(io.Writer) error) (*os.File, error) {
	if !valid(name) {
		return nil, fmt.Errorf("cache: invalid name %q", name)
	}
	f, err := os.CreateTemp(d.path, temporary)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	err = fill(&limited{f, d.max})
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(d.path, name))
	}
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	if fi, err := f.Stat(); err == nil {
		d.added(name, fi.Size())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Remove removes a file.
func (d *Dir) Remove(name string) {
	if valid(name) {
		os.Remove(filepath.Join(d.path, name))
	}
}

// ErrFull reports that one file is larger than the bound of the whole folder.
var ErrFull = errors.New("larger than the cache may be")

type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		return 0, ErrFull
	}
	return l.w.Write(b)
}

// added notes a new file, and removes others if the folder exceeds its bound.
func (d *Dir) added(name string, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total += size
	if d.puts++; d.puts > 1 && d.puts <= lookEvery && d.total <= d.max {
		return
	}
	d.total, d.puts = d.evict(name), 1
}

// evict removes the least recently used files until the folder is within its bound, and returns its size. It
// never removes keep.
func (d *Dir) evict(keep string) (total int64) {
	es, err := os.ReadDir(d.path)
	if err != nil {
		return 0
	}
	type file struct {
		name string
		size int64
		used time.Time
	}
	var files []file
	for _, e := range es {
		fi, err := e.Info()
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if strings.HasPrefix(e.Name(), temporary) {
			if time.Since(fi.ModTime()) > stale {
				os.Remove(filepath.Join(d.path, e.Name()))
			}
			continue
		}
		total += fi.Size()
		files = append(files, file{e.Name(), fi.Size(), fi.ModTime()})
	}
	sort.Slice(files, func(i, j int) bool { return files[i].used.Before(files[j].used) })
	for _, f := range files {
		if total <= d.max {
			return total
		}
		if f.name != keep && os.Remove(filepath.Join(d.path, f.name)) == nil {
			total -= f.size
		}
	}
	return total
}
