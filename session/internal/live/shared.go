package live

import (
	"maps"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/engine/ptrace"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
	"github.com/sliverprof/sliver/wait"
)

// Shared keeps what several Targets read of the same files: the open file, its unwind tables and
// its variables. Opening and reading these takes longer than many processes live.
//
// A file is identified by device, inode number, size and modification time. It stays open while it
// is shared, so no other file gets its number. A file that no Target uses is kept for the next
// process, up to maxUnused of them. Methods may be called from any goroutine.
type Shared struct {
	reading sync.WaitGroup // of variables

	mu     sync.Mutex
	files  map[FileKey][]*SharedFile // by the numbers in maps
	unused []*SharedFile             // least recently used first
	memory []*inMemory
	closed bool

	ends wait.Later  // the descriptors of all processes
	pids map[int]int // Targets, by process

	tracers *ptrace.Tracers

	engines map[*ptrace.Engine]bool // of all processes that are sampled
	helped  int64                   // CPU time in ns of the helpers of earlier ones
}

// maxUnused limits the files that are kept without a user: a compiler, the C library and the other
// libraries of a build are some 30.
const maxUnused = 64

// SharedFile is a file of a Shared, held by one caller of Shared.Open. It implements target.File;
// Close ends the use.
type SharedFile struct {
	of   *Shared
	key  FileKey
	file target.File
	id   target.Identity
	uses int // guarded by of.mu

	image struct {
		once sync.Once
		img  *unwind.Image
	}
	head fileHead
	vars *variables // guarded by of.mu; nil: not requested yet
}

// NewShared returns an empty Shared. Close it after all Targets.
func NewShared() *Shared {
	s := &Shared{tracers: ptrace.NewTracers(), files: map[FileKey][]*SharedFile{}, engines: map[*ptrace.Engine]bool{}, pids: map[int]int{}}
	s.ends = wait.Later{Open: openSystem, Near: s.processes, Skip: target.SharesFiles}
	return s
}

// processes returns the processes of the Targets.
func (s *Shared) processes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.pids))
}

// joins counts the Targets of a process: n is 1 for a new one, -1 for the end of one.
func (s *Shared) joins(pid, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pids[pid] += n; s.pids[pid] <= 0 {
		delete(s.pids, pid)
	}
}

// with begins to count the helpers of an engine.
func (s *Shared) with(e *ptrace.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engines[e] = true
}

// helpers returns the CPU time in ns of the helpers of all engines.
func (s *Shared) helpers() (ns int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.engines {
		ns += e.CPU()
	}
	return ns + s.helped
}

// without keeps the sums of engines that sample no more.
func (s *Shared) without(engines []*ptrace.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range engines {
		if s.engines[e] {
			s.helped += e.CPU()
			delete(s.engines, e)
		}
	}
}

// Open returns the file of a mapping. It opens the file only if no other process has it mapped, or
// if the numbers in the maps do not identify it. The caller closes the result.
func (s *Shared) Open(p *target.Process, m stack.Mapping) (*SharedFile, error) {
	key := keyOf(&m)
	if f := s.known(key); f != nil {
		return f, nil
	}
	file, err := p.OpenMapping(m)
	if err != nil {
		return nil, err
	}
	id, ok := target.IdentityOf(file, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		for _, f := range s.files[key] {
			if f.id == id {
				file.Close()
				s.use(f)
				return f, nil
			}
		}
	}
	f := &SharedFile{of: s, key: key, file: file, id: id}
	if ok && !s.closed { // memory is not shared
		s.files[key] = append(s.files[key], f)
	}
	s.use(f)
	return f, nil
}

// known returns a file that is open and unchanged, nil if there is none. Only a file whose numbers
// in the maps are those of stat(2) is found: on btrfs and overlayfs different files may have the
// same numbers in maps.
func (s *Shared) known(key FileKey) *SharedFile {
	s.mu.Lock()
	var f *SharedFile
	if all := s.files[key]; len(all) > 0 {
		f = all[len(all)-1]
	}
	if f == nil || !f.id.Local || f.id.Dev != key.Dev || f.id.Inode != key.Inode {
		s.mu.Unlock()
		return nil
	}
	s.use(f)
	s.mu.Unlock()
	if now, ok := target.IdentityOf(f.file, true); !ok || now != f.id {
		f.Close()
		return nil
	}
	return f
}

// use adds a user; the caller holds mu.
func (s *Shared) use(f *SharedFile) {
	if f.uses++; f.uses > 1 {
		return
	}
	for i, x := range s.unused {
		if x == f {
			s.unused = append(s.unused[:i], s.unused[i+1:]...)
			return
		}
	}
}

// Hold adds a user of the file, who closes the result.
func (f *SharedFile) Hold() *SharedFile {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.of.use(f)
	return f
}

// Close implements target.File: it ends one use.
func (f *SharedFile) Close() error {
	s := f.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.uses--; f.uses > 0 {
		return nil
	}
	s.unused = append(s.unused, f)
	for len(s.unused) > maxUnused || s.closed && len(s.unused) > 0 {
		s.drop(s.unused[0])
		s.unused = s.unused[1:]
	}
	return nil
}

// drop forgets and closes a file; the caller holds mu. Its variables may still be read.
func (s *Shared) drop(f *SharedFile) {
	all := s.files[f.key]
	for i, x := range all {
		if x == f {
			all = append(all[:i:i], all[i+1:]...)
			break
		}
	}
	if s.files[f.key] = all; len(all) == 0 {
		delete(s.files, f.key)
	}
	f.file.Close()
}

// Close closes the files without users now, and the others when their last use ends.
func (s *Shared) Close() {
	s.reading.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, f := range s.unused {
		s.drop(f)
	}
	s.unused = nil
}

// ReadAt implements target.File.
func (f *SharedFile) ReadAt(b []byte, off int64) (int, error) { return f.file.ReadAt(b, off) }

// Size implements target.File.
func (f *SharedFile) Size() int64 { return f.id.Size }

// Modified is when the file was last written, in ns since 1970, as of now: see target.Modified.
func (f *SharedFile) Modified() int64 { return target.Modified(f.file) }

// Head returns the executable segments, as Segments does, and the build ID; "": none.
func (f *SharedFile) Head() (segs [][3]uint64, buildID string, err error) {
	return f.head.of(f.file)
}

func (f *SharedFile) imageFor(arch rule.Arch) *unwind.Image {
	f.image.once.Do(func() {
		f.image.img = unwind.NewImage(f.file, arch, stacks()...)
		f.image.img.Share()
	})
	return f.image.img
}

// variables returns the variables of the file, and starts to read them with read on first use.
func (f *SharedFile) variables(read func(to *variables, r target.File)) *variables {
	s := f.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.vars == nil {
		f.vars = &variables{ready: make(chan struct{})}
		s.use(f)
		s.reading.Go(func() {
			read(f.vars, f.file)
			f.Close()
		})
	}
	return f.vars
}

// shares are the shared files of one Target.
type shares struct {
	of *Shared // nil: the Target shares nothing

	mu   sync.Mutex // guards held
	held map[heldKey]*SharedFile
}

// heldKey identifies a file within one process: see stack.Mapping.Gen.
type heldKey struct {
	FileKey
	gen uint32
}

func heldKeyOf(m *stack.Mapping) heldKey { return heldKey{keyOf(m), m.Gen} }

// file returns the file of a mapping; nil: it is not shared.
func (x *shares) file(m *stack.Mapping) *SharedFile {
	if x.of == nil || m.Inode == 0 || m.Gen == 0 {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.held[heldKeyOf(m)]
}

// written is target.Process.Written. It keeps the file for file.
func (x *shares) written(p *target.Process, m stack.Mapping) uint32 {
	if x.of == nil {
		return p.Written(m)
	}
	f, err := x.of.Open(p, m)
	if err != nil {
		return p.Written(m)
	}
	m.Gen = f.id.Content()
	x.mu.Lock()
	defer x.mu.Unlock()
	key := heldKeyOf(&m)
	if x.held[key] != nil {
		f.Close()
		return m.Gen
	}
	if x.held == nil {
		x.held = map[heldKey]*SharedFile{}
	}
	x.held[key] = f
	return m.Gen
}

// release ends the use of all files.
func (x *shares) release() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.held {
		f.Close()
	}
	x.held = nil
}
