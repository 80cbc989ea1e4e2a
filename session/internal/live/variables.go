package live

import (
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/sliverprof/sliver/lang/golang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/data"
)

// Variables names a process's variables by address, and those of its functions that
// identify a wait. It reads a file when the first address in it is looked up. It may be
// used by several goroutines at once.
type Variables struct {
	t    *Target
	dirs symbol.Dirs

	mu    sync.Mutex
	files map[FileKey]*variables // guarded by mu
	wg    sync.WaitGroup
}

// variables are those of one file. Its fields are valid when ready is closed.
type variables struct {
	ready chan struct{}
	load  *data.Load // nil: unreadable
	table *data.Table
}

// Variables returns the variables of the process; debugDirs are additional directories
// of separate debug files.
func (t *Target) Variables(debugDirs []string) *Variables {
	return &Variables{t: t, dirs: symbol.Dirs{Root: fmt.Sprintf("/proc/%d/root", t.proc.PID()), Extra: debugDirs},
		files: map[FileKey]*variables{}}
}

// Preload starts to read the files that most waits are in: the program, the C library,
// and what runs Java.
func (v *Variables) Preload() {
	program := false
	for _, mp := range v.t.Maps() {
		if !mp.Exec || mp.Inode == 0 {
			continue
		}
		base := path.Base(mp.Path)
		if !program || base == "libjvm.so" || strings.HasPrefix(base, "libc.so") || strings.HasPrefix(base, "libc-2.") ||
			strings.HasPrefix(base, "ld-musl-") || strings.HasPrefix(base, "libpthread") {
			v.file(&mp)
			program = true // the kernel maps it below the libraries
		}
	}
}

// Close waits until no file is being read.
func (v *Variables) Close() { v.wg.Wait() }

// Lookup returns the variable that contains addr, or at least the file. It implements
// wait.Config.Data.
func (v *Variables) Lookup(addr uint64) (wait.Symbol, bool) {
	s, ok, _ := v.lookup(addr, true)
	return s, ok
}

// Known is Lookup without waiting. pending says that the file is still being read, and
// that a later call may return a result.
func (v *Variables) Known(addr uint64) (s wait.Symbol, ok, pending bool) {
	return v.lookup(addr, false)
}

func (v *Variables) lookup(addr uint64, patient bool) (s wait.Symbol, ok, pending bool) {
	f, mp, vaddr, pending := v.find(addr, patient)
	if f == nil {
		return s, false, pending
	}
	name, off, ok := f.table.Lookup(vaddr)
	if !ok {
		// No name, but a location that is the same next time.
		return wait.Symbol{Offset: vaddr, Module: mp.Path}, f.load.Spans(vaddr), false
	}
	return wait.Symbol{Name: symbol.Demangle(name, true), Offset: off, Module: mp.Path}, true, false
}

// Function returns the function that contains addr if its name identifies a wait, and
// "" otherwise. It implements wait.Look.Function.
func (v *Variables) Function(addr uint64) string {
	name, _ := v.function(addr, true)
	return name
}

// KnownFunction is Function without waiting, like Known.
func (v *Variables) KnownFunction(addr uint64) (name string, pending bool) {
	return v.function(addr, false)
}

func (v *Variables) function(addr uint64, patient bool) (name string, pending bool) {
	f, _, vaddr, pending := v.find(addr, patient)
	if f == nil {
		return "", pending
	}
	if name, ok := f.table.Function(vaddr); ok {
		return symbol.Demangle(name, true), false
	}
	// A stripped Go program keeps the names of its functions.
	if rt := golang.Of(v.t.space); rt != nil {
		if name, ok := rt.Func(addr); ok && wait.Tells(name) {
			return name, false
		}
	}
	return "", false
}

// path returns the path of the file that contains addr; "": there is none.
func (v *Variables) path(addr uint64) string {
	if mp := behind(v.t.Maps(), addr); mp != nil {
		return mp.Path
	}
	return ""
}

// find returns the file that contains addr, and the address in it; nil: there is none,
// or (pending) it is still being read.
func (v *Variables) find(addr uint64, patient bool) (f *variables, mp *stack.Mapping, vaddr uint64, pending bool) {
	maps := v.t.Maps()
	if mp = behind(maps, addr); mp == nil {
		return nil, nil, 0, false
	}
	f = v.file(mp)
	select {
	case <-f.ready:
	default:
		if !patient {
			return nil, nil, 0, true
		}
		<-f.ready
	}
	if f.load == nil {
		return nil, nil, 0, false
	}
	bias, ok := f.bias(maps, mp)
	if !ok {
		return nil, nil, 0, false
	}
	return f, mp, addr - bias, false
}

// identifies reports whether the name of a function, as in the file, identifies a wait.
func identifies(name []byte) bool {
	return wait.MayTell(name) && wait.Tells(symbol.Demangle(string(name), true))
}

// search returns the index of the first mapping that ends above addr.
func search(maps []stack.Mapping, addr uint64) int {
	lo, hi := 0, len(maps)
	for lo < hi {
		if mid := (lo + hi) / 2; maps[mid].End <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// behind returns the mapping of the file that addr may be a variable of: zeroed
// variables are in memory without a file, right after the file's own mappings.
func behind(maps []stack.Mapping, addr uint64) *stack.Mapping {
	i := search(maps, addr)
	if i == len(maps) || maps[i].Start > addr {
		return nil
	}
	for ; i >= 0; i-- {
		mp := &maps[i]
		switch {
		case mp.Inode != 0 && strings.HasPrefix(mp.Path, "/"):
			return mp
		case mp.Path != "" || i == 0 || maps[i-1].End != mp.Start:
			return nil
		}
	}
	return nil
}

// file starts to read a file unless that was done before.
func (v *Variables) file(mp *stack.Mapping) *variables {
	k := keyOf(mp)
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.files[k]
	if f == nil {
		if x := v.t.shares.file(mp); x != nil {
			path := mp.Path
			f = x.variables(func(to *variables, r target.File) { v.readFile(to, r, path) })
			v.files[k] = f
			return f
		}
		f = &variables{ready: make(chan struct{})}
		v.files[k] = f
		m := *mp
		v.wg.Go(func() { v.read(f, m) })
	}
	return f
}

func (v *Variables) read(f *variables, mp stack.Mapping) {
	r, err := v.t.proc.OpenMapping(mp)
	if err != nil {
		close(f.ready)
		return
	}
	defer r.Close()
	v.readFile(f, r, mp.Path)
}

func (v *Variables) readFile(f *variables, r target.File, path string) {
	defer close(f.ready)
	var err error
	if f.load, err = data.ReadLoad(r); err != nil {
		f.load = nil
		return
	}
	f.table = v.table(r, path)
}

// table reads the variables of a file, or of its separate debug file if it is stripped.
func (v *Variables) table(r target.File, path string) *data.Table {
	t, err := data.Read(r, identifies)
	if err == nil && !t.Exported() {
		return t
	}
	id, err := symbol.BuildID(r)
	if err != nil {
		return t
	}
	v.dirs.Find(symbol.Query{Path: path, BuildID: id}, func(_ string, src symbol.Source) bool {
		if x, err := symbol.BuildID(src); err != nil || x != id {
			return false
		}
		d, err := data.Read(src, identifies)
		if err != nil || d.Exported() {
			return false
		}
		t = d
		src.Close()
		return true
	})
	return t
}

// near is how many mappings around one of a file's are searched for its code.
const near = 16

// bias returns the difference between run-time addresses and vaddrs of the file mapped at mp.
func (f *variables) bias(maps []stack.Mapping, mp *stack.Mapping) (uint64, bool) {
	at := search(maps, mp.Start)
	for i := max(at-near, 0); i < min(at+near, len(maps)); i++ {
		c := &maps[i]
		if c.Exec && c.Dev == mp.Dev && c.Inode == mp.Inode && c.Path == mp.Path {
			if b, ok := f.load.Bias(c.Off, c.Start); ok && f.load.Spans(mp.Start-b) {
				return b, true
			}
		}
	}
	return 0, false
}
