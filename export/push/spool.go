package push

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Spool stores unsent items as files in a folder of limited size, so that they outlive
// the program. Several programs may share a folder: an item is claimed by a rename before
// it is sent.
//
// A Spool may be used by several goroutines.
type Spool struct {
	dir string
	max int64

	mu      sync.Mutex
	seq     int
	dropped int

	// names is held while an item is renamed, and while items are counted: a directory
	// read at that moment may list neither name, or an old one.
	names sync.Mutex
}

// Item is one request to send.
type Item struct {
	To   string    `json:"to"` // Sink.Key
	At   time.Time `json:"at"`
	Type string    `json:"type"` // content type
	// Processes is how many processes have a window in it; 0: one.
	Processes int    `json:"processes,omitempty"`
	Body      []byte `json:"-"` // gzip-compressed

	name string
}

// windows returns how many windows of a process the item has. A file of the folder may have any number.
func (it *Item) windows() int { return min(max(it.Processes, 1), maxTogether) }

const (
	suffix    = ".push"
	claimed   = ".claimed"
	unwritten = ".new"
	// staleClaim is the age at which a claim belongs to a dead program.
	staleClaim = 10 * time.Minute
	// maxHead limits the first line of an item, maxBody the rest.
	maxHead = 4096
	maxBody = 256 << 20
)

// OpenSpool opens the folder dir, creating it if necessary, for at most max bytes.
func OpenSpool(dir string, max int64) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := &Spool{dir: dir, max: max}
	return s, s.bound(0)
}

// Dropped returns how many windows were dropped, oldest first, to stay within the limit.
func (s *Spool) Dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Put stores an item.
func (s *Spool) Put(it *Item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.bound(int64(len(it.Body)) + maxHead); err != nil {
		return err
	}
	s.seq++
	// Names sort by time.
	name := fmt.Sprintf("%020d-%06d-%08x%s", it.At.UnixNano(), s.seq%1e6, rand.Uint32(), suffix)
	path := filepath.Join(s.dir, name)
	head, err := json.Marshal(it)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+unwritten, append(append(head, '\n'), it.Body...), 0o600); err != nil {
		os.Remove(path + unwritten)
		return fmt.Errorf("spool: %w", err)
	}
	return os.Rename(path+unwritten, path)
}

// bound drops the oldest items until extra bytes fit.
func (s *Spool) bound(extra int64) error {
	if extra > s.max {
		return fmt.Errorf("spool: an item of %d bytes is larger than all it may hold, %d", extra, s.max)
	}
	es, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	type file struct {
		name string
		size int64
	}
	var files []file
	total := extra
	for _, e := range es {
		fi, err := e.Info()
		if err != nil || !fi.Mode().IsRegular() || !strings.Contains(e.Name(), suffix) {
			continue
		}
		total += fi.Size()
		name := e.Name()
		if old := time.Since(fi.ModTime()) > staleClaim; old && strings.HasSuffix(name, claimed) {
			// The program that claimed it died, so release it.
			if os.Rename(filepath.Join(s.dir, name), filepath.Join(s.dir, strings.TrimSuffix(name, claimed))) == nil {
				name = strings.TrimSuffix(name, claimed)
			}
		} else if old && strings.HasSuffix(name, unwritten) {
			total -= fi.Size()
			os.Remove(filepath.Join(s.dir, name))
			continue
		}
		if strings.HasSuffix(name, suffix) {
			files = append(files, file{name, fi.Size()})
		}
	}
	for _, f := range files { // ReadDir sorts by name
		if total <= s.max {
			break
		}
		path, n := filepath.Join(s.dir, f.name), 1
		if head, err := readHead(path); err == nil {
			n = head.windows()
		}
		if err := os.Remove(path); err == nil {
			s.dropped += n
			total -= f.size
		}
	}
	return nil
}

// Claim claims the oldest item for a sink; nil if there is none. The caller must call
// Done or Release.
func (s *Spool) Claim(to string) (*Item, error) {
	es, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	for _, e := range es {
		if !strings.HasSuffix(e.Name(), suffix) || !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(s.dir, e.Name())
		if head, err := readHead(path); err != nil || head.To != to {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.damaged(path)
			}
			continue
		}
		if s.rename(path, path+claimed) != nil {
			continue // another program claimed it first
		}
		now := time.Now()
		_ = os.Chtimes(path+claimed, now, now)
		it, err := readItem(path + claimed)
		if err != nil {
			s.damaged(path + claimed)
			continue
		}
		it.name = path
		return it, nil
	}
	return nil, nil
}

func (s *Spool) damaged(path string) {
	if os.Remove(path) == nil {
		s.mu.Lock()
		s.dropped++
		s.mu.Unlock()
	}
}

// Done deletes a claimed item.
func (s *Spool) Done(it *Item) { os.Remove(it.name + claimed) }

// Release releases a claimed item.
func (s *Spool) Release(it *Item) { _ = s.rename(it.name+claimed, it.name) }

func (s *Spool) rename(from, to string) error {
	s.names.Lock()
	defer s.names.Unlock()
	return os.Rename(from, to)
}

// Waiting counts the windows for one of the sinks.
func (s *Spool) Waiting(to ...string) int {
	s.names.Lock()
	defer s.names.Unlock()
	es, err := os.ReadDir(s.dir)
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range es {
		if strings.HasSuffix(e.Name(), suffix) || strings.HasSuffix(e.Name(), suffix+claimed) {
			if head, err := readHead(filepath.Join(s.dir, e.Name())); err == nil && slices.Contains(to, head.To) {
				n += head.windows()
			}
		}
	}
	return n
}

func readHead(path string) (*Item, error) {
	f, err := safefile.Named(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	it, _, err := parseHead(f)
	return it, err
}

func readItem(path string) (*Item, error) {
	f, err := safefile.Named(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseItem(f)
}

func parseHead(r io.Reader) (*Item, *bufio.Reader, error) {
	b := bufio.NewReaderSize(r, maxHead)
	line, err := b.ReadSlice('\n')
	if err != nil {
		return nil, nil, fmt.Errorf("byte 0: no head of an item: %w", err)
	}
	it := &Item{}
	if err := json.Unmarshal(line, it); err != nil {
		return nil, nil, fmt.Errorf("byte 0: head: %w", err)
	}
	return it, b, nil
}

func parseItem(r io.Reader) (*Item, error) {
	it, b, err := parseHead(r)
	if err != nil {
		return nil, err
	}
	if it.Body, err = io.ReadAll(io.LimitReader(b, maxBody+1)); err != nil {
		return nil, err
	}
	if len(it.Body) > maxBody || len(it.Body) == 0 {
		return nil, fmt.Errorf("a body of %d bytes", len(it.Body))
	}
	return it, nil
}
