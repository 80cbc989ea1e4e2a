package unwind

import (
	"debug/elf"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/sliverprof/sliver/stack"
)

// What languages use of a Space to find their runtimes.

// firstFile is the number of regions that may belong to the program's own file.
const firstFile = 4

// Code is one executable mapping of a file.
type Code struct {
	Path string
	// Own: it may be the program's own file.
	Own bool
	// Again: another mapping of the file came before.
	Again bool

	r *region
}

// Code returns the executable mappings of files, by address.
func (s *Space) Code() iter.Seq[Code] {
	return func(yield func(Code) bool) {
		snap := s.snap.Load()
		seen := map[*module]bool{}
		for i := range snap.regions {
			r := &snap.regions[i]
			if !r.exec || r.mod == nil || r.mod.mapping.Inode == 0 {
				continue
			}
			if !yield(Code{Path: r.mod.mapping.Path, Own: i < firstFile, Again: seen[r.mod], r: r}) {
				return
			}
			seen[r.mod] = true
		}
	}
}

// Opened reports whether the file was opened, because it is on a stack or for another reason.
func (c *Code) Opened() bool { return c.r.mod.loaded.Load() }

// Bias opens the file and returns the offset from the file's vaddrs to the mapping's addresses. ok is
// false if the mapping is not of a segment of the file.
func (c *Code) Bias() (bias uint64, ok bool) {
	c.r.mod.load()
	return c.r.mod.bias(c.r)
}

// Mapping returns the mapping of the file that was seen first.
func (c *Code) Mapping() stack.Mapping { return c.r.mod.mapping }

// File opens the file and returns it with its loaded segments; nil if it cannot be opened.
func (c *Code) File() (file io.ReaderAt, segments []elf.ProgHeader) {
	c.r.mod.load()
	return c.r.mod.file, c.r.mod.progs
}

// Epoch returns a number that changes when code may have been replaced.
func (s *Space) Epoch() uint64 { return s.snap.Load().epoch }

// Memory reads the target's memory, nil if it cannot be read.
func (s *Space) Memory() Memory { return s.mem }

// ErrUnopened says that a mapped file could not be opened.
var ErrUnopened = errors.New("the file could not be opened")

// A Fact is what a language reads once of each file. The language declares it as a package variable.
type Fact[T any] struct {
	// Read reads it. A file that cannot be opened has no facts: Of returns the zero value and ErrUnopened.
	Read func(io.ReaderAt) (T, error)
}

// facts are the facts of an Image.
type facts struct {
	mu  sync.Mutex // guards the list, not its elements
	all []*fact
}

type fact struct {
	key   any // *Fact[T]
	once  sync.Once
	value any // T
	err   error
}

func (f *facts) of(key any) *fact {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.all {
		if x.key == key {
			return x
		}
	}
	x := &fact{key: key}
	f.all = append(f.all, x)
	return x
}

// Of opens the file and returns its fact, which is read at the first call. Images that Spaces share
// share the facts.
func (k *Fact[T]) Of(c *Code) (T, error) {
	m := c.r.mod
	m.load()
	var none T
	if m.file == nil {
		return none, ErrUnopened
	}
	x := m.facts.of(k)
	x.once.Do(func() { x.value, x.err = k.Read(m.file) })
	return x.value.(T), x.err
}
