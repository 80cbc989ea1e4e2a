package session

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/internal/limits"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// modules records every generation of the target's code and keeps the files open, so
// that names can be resolved when the process is gone or a file was replaced. Reading
// headers is slow: a separate goroutine does it, never a sampler.
type modules struct {
	proc   *target.Process
	rec    notebook
	queue  chan generation
	done   chan struct{}
	once   sync.Once
	whole  bool                             // jitDump will need all generations
	shared *live.Shared                     // opens files; nil: proc does
	noted  func(trace.Maps, []trace.Module) // called with everything recorded; may be nil
	// changed is signaled when there was a generation since the last receive.
	changed chan struct{}

	vdso vdsoNote

	sending sync.Mutex   // one change at a time goes into queue; guards the fields below
	recent  []generation // the last few, by time

	queued chan struct{} // signaled after each generation that was taken from queue
	waits  atomic.Int64  // mappings of the generations in queue

	mu    sync.Mutex // guards the fields below
	byKey map[moduleKey]int
	keys  map[int]moduleKey
	next  int                 // ID of the next module
	files map[int]target.File // by module ID
	times map[int]int64       // modification time of each file before it was opened
	mods  []trace.Module
	kept  []trace.Maps // generations, by time
	// dumped: jitDump has recorded more generations.
	dumped bool
}

// notebook receives the facts about the target other than samples: a trace.Recorder or
// a flight.Recorder.
type notebook interface {
	Maps(trace.Maps, []trace.Module)
	Replaced(comm, exe string, cmdline []string)
	Capture(trace.Captured)
	Waits([]trace.Wait)
}

type generation struct {
	maps   []stack.Mapping
	at     stack.Time
	exec   bool
	reused bool // generated code has replaced other code
}

// vdsoNote says which vDSO's image is in the recording: it is in no file.
type vdsoNote struct {
	met bool                   // used by the goroutine only
	id  atomic.Pointer[string] // its build ID; nil: none yet
	has func(id string) bool   // whether the file has it in a section that lends it: see trace.Recording.Borrow; nil: no
}

type moduleKey struct {
	dev, inode uint64
	path       string
	gen        uint32 // stack.Mapping.Gen
}

// backlog bounds the generations in the queue. Maps change as often as dlopen is
// called; if a target exceeds that, its changes are recorded a little late.
const (
	backlog = 256
	// maxWaiting and maxRecentMappings bound the mappings of all of them, some 150 bytes each.
	maxWaiting        = 1 << 18
	maxRecentMappings = 1 << 18
)

// openFiles counts the files that all processes' modules keep open, at most limits.Files.
var openFiles atomic.Int64

func newModules(p *target.Process, r notebook) *modules {
	return &modules{proc: p, rec: r, queue: make(chan generation, backlog), changed: make(chan struct{}, 1), done: make(chan struct{}), queued: make(chan struct{}, 1), byKey: map[moduleKey]int{}, keys: map[int]moduleKey{}, files: map[int]target.File{}, times: map[int]int64{}}
}

// generation is called with every change of the maps.
func (m *modules) generation(maps []stack.Mapping, at stack.Time, exec bool) {
	code := make([]stack.Mapping, 0, len(maps))
	for i := range maps {
		if maps[i].Exec {
			code = append(code, maps[i])
		}
	}
	m.sending.Lock()
	defer m.sending.Unlock()
	m.send(generation{maps: code, at: at, exec: exec})
}

// maxRecent bounds the generations kept for reused: those of the time between two looks
// at the program's JIT output.
const maxRecent = 64

func (m *modules) send(g generation) {
	m.recent = append(m.recent, g)
	if len(m.recent) > 2*maxRecent {
		m.recent = append(m.recent[:0], m.recent[maxRecent:]...)
	}
	for n := len(g.maps) * len(m.recent); n > maxRecentMappings && len(m.recent) > 1; n -= len(g.maps) {
		m.recent[0].maps = nil
		m.recent = m.recent[1:]
	}
	for m.waits.Load() > maxWaiting {
		<-m.queued
	}
	m.waits.Add(int64(len(g.maps)))
	m.queue <- g
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// reused is called when generated code replaced other code at the time at: from then on
// the same memory is a new module. Generations reported since then are reported again
// with that module.
func (m *modules) reused(at stack.Time) {
	m.sending.Lock()
	defer m.sending.Unlock()
	n := len(m.recent)
	for n > 1 && m.recent[n-1].at >= at {
		n--
	}
	later := slices.Clone(m.recent[n:])
	g := m.recent[n-1]
	m.recent = m.recent[:n]
	m.send(generation{maps: g.maps, at: at, reused: true})
	for _, g := range later {
		m.send(g)
	}
}

func (m *modules) run() {
	defer close(m.done)
	first := true
	for g := range m.queue {
		if first {
			g.at, first = 0, false // the time before the first look had these maps too
		}
		m.note(g)
		m.waits.Add(-int64(len(g.maps)))
		select {
		case m.queued <- struct{}{}:
		default:
		}
	}
}

func (m *modules) note(g generation) {
	out := trace.Maps{At: g.at, Exec: g.exec}
	var fresh []trace.Module
	if g.exec || g.reused {
		m.mu.Lock()
		for key := range m.byKey {
			if key.inode == 0 && key.path != "[vdso]" {
				delete(m.keys, m.byKey[key])
				delete(m.byKey, key) // a new module from here on
			}
		}
		m.mu.Unlock()
	}
	for i := range g.maps {
		mp := &g.maps[i]
		key := moduleKey{mp.Dev, mp.Inode, mp.Path, mp.Gen}
		m.mu.Lock()
		id, ok := m.byKey[key]
		m.mu.Unlock()
		if !ok {
			mod, f := m.open(mp)
			m.mu.Lock()
			id = m.next
			m.next++
			if f != nil {
				m.files[id], m.times[id] = f, target.Modified(f)
				openFiles.Add(1)
			}
			m.byKey[key], m.keys[id] = id, key
			m.mu.Unlock()
			fresh = append(fresh, mod)
		}
		out.Mappings = append(out.Mappings, trace.Mapping{Start: mp.Start, End: mp.End, Off: mp.Off, Module: id})
	}
	if g.exec {
		m.replaced()
	}
	m.rec.Maps(out, fresh)
	m.keep(out, fresh)
	if m.noted != nil {
		m.noted(out, fresh)
	}
}

// replaced records which program the process now runs. If it is already gone and cannot
// be read, nothing is recorded.
func (m *modules) replaced() {
	comm, err := m.proc.Comm()
	if err != nil {
		return
	}
	exe, err := m.proc.Exe()
	if err != nil {
		return
	}
	if cmdline, err := m.proc.Cmdline(); err == nil {
		m.rec.Replaced(comm, exe, cmdline)
	}
}

// renamed records which program the process runs if it is another one than when it was
// opened. The sampler reports each exec after its New.
func (m *modules) renamed() {
	if m.proc.Renamed() {
		m.replaced()
	}
}

// open describes the file of a mapping and keeps it open.
func (m *modules) open(mp *stack.Mapping) (trace.Module, target.File) {
	mod := trace.Module{Path: mp.Path, Dev: mp.Dev, Inode: mp.Inode, Deleted: mp.Deleted}
	if mod.Path == "" {
		mod.Path = "[anon]"
	}
	if mp.Inode == 0 && mp.Path != "[vdso]" {
		return mod, nil
	}
	if openFiles.Load() > limits.Files() {
		return mod, nil
	}
	f, err := m.file(mp)
	if err != nil {
		return mod, nil
	}
	var segs [][3]uint64
	if shared, ok := f.(*live.SharedFile); ok {
		segs, mod.BuildID, err = shared.Head()
	} else {
		segs, mod.BuildID, err = m.shared.HeadOf(f)
	}
	if err != nil {
		return mod, f // not ELF: only the program's perf map can name its code
	}
	for _, s := range segs {
		mod.Segments = append(mod.Segments, trace.Segment{Off: s[0], Vaddr: s[1], Size: s[2]})
	}
	if mp.Path == "[vdso]" && !m.vdso.met {
		m.vdso.met = true
		if m.vdso.has == nil || !m.vdso.has(mod.BuildID) { // nil: that of a Flight
			m.captureVDSO(mod.BuildID, f)
		}
	}
	return mod, f
}

func (m *modules) captureVDSO(id string, f target.File) {
	b := make([]byte, f.Size())
	if _, err := f.ReadAt(b, 0); err == nil || err == io.EOF {
		m.rec.Capture(trace.Captured{What: trace.VDSO, At: target.Now(), Data: b})
		m.vdso.id.Store(&id)
	}
}

func (m *modules) file(mp *stack.Mapping) (target.File, error) {
	if m.shared == nil || mp.Inode == 0 {
		return m.proc.OpenMapping(*mp)
	}
	return m.shared.Open(m.proc, *mp)
}

// catchUp waits until all generations so far are recorded, or until the limit. More may come during that time.
func (m *modules) catchUp(limit time.Duration) {
	for end := time.Now().Add(limit); m.waits.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// settle waits until all generations so far are recorded. No more may come.
func (m *modules) settle() {
	m.once.Do(func() { close(m.queue) })
	<-m.done
}

// retire drops what only a running recording needs: its rings. Open and Key still work. It returns the generations and
// modules that were recorded; whole is false if they are too many, or not all are known.
func (m *modules) retire() (maps []trace.Maps, mods []trace.Module, whole bool) {
	m.settle()
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for i := range m.kept {
		n += len(m.kept[i].Mappings)
	}
	if maps, mods, whole = m.kept, m.mods, m.whole && !m.dumped && n <= maxRetired && len(m.mods) <= maxRetired; !whole {
		maps, mods = nil, nil
	}
	m.rec, m.noted, m.recent, m.mods, m.kept = nil, nil, nil, nil, nil
	return maps, mods, whole
}

// maxRetired bounds the mappings and the modules of a process that has ended that stay in memory, some 30 and 150 bytes each.
const maxRetired = 256

func (m *modules) close() {
	m.settle()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.files {
		f.Close()
	}
	openFiles.Add(-int64(len(m.files)))
	clear(m.files)
}

// drop closes the files of unreferenced modules. A file that is mapped again gets a new
// ID.
func (m *modules) drop(ids []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if f := m.files[id]; f != nil {
			f.Close()
			openFiles.Add(-1)
			delete(m.files, id)
		}
		if key, ok := m.keys[id]; ok {
			delete(m.byKey, key)
			delete(m.keys, id)
		}
	}
}

// Key implements naming.KeyedModules.
func (m *modules) Key(i int) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.files[i].(*live.SharedFile); ok {
		return f
	}
	return nil
}

// Open implements naming.Modules.
func (m *modules) Open(i int, _ *trace.Module) (io.ReaderAt, io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[i]
	if f == nil {
		return nil, nil, fmt.Errorf("its file could not be opened")
	}
	if target.Modified(f) != m.times[i] {
		return nil, nil, fmt.Errorf("its file was overwritten while it was recorded")
	}
	if shared, ok := f.(*live.SharedFile); ok {
		return f, shared.Hold(), nil // readers may keep it longer than this process does
	}
	return f, nil, nil
}
