package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

const (
	// maxJITObjects bounds the length of the list of GDB's JIT interface; maxJITObject
	// and maxJITBytes bound the size of one file and of all, in bytes.
	maxJITObjects = 1 << 14
	maxJITObject  = 16 << 20
	maxJITBytes   = 96 << 20
	// walkRarely is how often the whole list is read. Otherwise it is read from its
	// head to the first known entry. A long list takes a twentieth of the time at most.
	walkRarely = time.Second
	walkShare  = 20
	// maxTries bounds how often an invalid file is read again: the program may be
	// removing it.
	maxTries = 3
)

// gdbJIT follows the list of in-memory ELF files that describe a compiler's code to
// debuggers: __jit_debug_descriptor and its entries (the manual of GDB, "JIT
// Compilation Interface").
type gdbJIT struct {
	proc *target.Process
	mods *modules

	searched    map[[2]uint64]bool // modules, by ID and address
	descriptors []uint64           // addresses in the target
	last        map[uint64][24]byte
	walked      stack.Time
	walkNS      stack.Time
	objects     map[live.GDBEntry]*jitObject
	bytes       int
	long        bool // the list exceeds the bound
	dropped     int  // files that did not fit
	bad         int  // not an ELF file with code
	// kept are the files found, if they are stored here. Files that left the list are
	// stored for the duration keep.
	keep  *time.Duration
	kept  []*jitObject
	reuse symbol.Reuse
}

type jitObject struct {
	captured trace.Captured
	sum      uint32            // of the file
	code     *symbol.JITObject // until look has compared it with the previous code
	tries    int               // how often it was invalid
	seen     stack.Time
}

// newGDBJIT returns a gdbJIT. keep is how long it stores files that left the list; nil:
// the caller stores files.
func newGDBJIT(p *target.Process, m *modules, keep *time.Duration) *gdbJIT {
	return &gdbJIT{keep: keep, proc: p, mods: m, searched: map[[2]uint64]bool{}, last: map[uint64][24]byte{}, objects: map[live.GDBEntry]*jitObject{}}
}

// look reads new entries of the list, and reports whether any of them replaced other
// code.
func (g *gdbJIT) look(now stack.Time) (fresh []*jitObject, again bool) {
	g.descriptors = append(g.descriptors, g.mods.variables(live.GDBDescriptor, g.searched)...)
	if len(g.descriptors) == 0 {
		return nil, false
	}
	whole := now >= g.walked+max(stack.Time(walkRarely), walkShare*g.walkNS)
	complete := true
	for i := 0; i < len(g.descriptors); i++ {
		d := g.descriptors[i]
		var b [24]byte
		if n, _ := g.proc.ReadAt(b[:], d); n < len(b) {
			g.descriptors = append(g.descriptors[:i], g.descriptors[i+1:]...) // it is gone, or the process is
			i--
			continue
		}
		if b == g.last[d] && !whole {
			continue
		}
		g.last[d] = b
		le := binary.LittleEndian
		if le.Uint32(b[:]) != 1 { // the only version
			continue
		}
		f, all := g.walk(le.Uint64(b[16:]), le.Uint64(b[8:]), now, whole)
		fresh = append(fresh, f...)
		complete = complete && all
	}
	if whole {
		g.walked, g.walkNS = now, target.Now()-now
		if complete {
			g.forget(now)
		}
	}
	for _, o := range fresh {
		if g.reuse.AddObject(o.code, strconv.FormatUint(uint64(o.sum), 16)) {
			again = true
		}
		o.code = nil
	}
	return fresh, again
}

// forget drops files that left the list, after the whole list has been read.
func (g *gdbJIT) forget(now stack.Time) {
	for key, o := range g.objects {
		if o.seen < now {
			delete(g.objects, key)
		}
	}
	if g.keep == nil || *g.keep == 0 {
		return
	}
	g.kept = slices.DeleteFunc(g.kept, func(o *jitObject) bool {
		old := o.seen < now-stack.Time(*g.keep)
		if old {
			g.bytes -= len(o.captured.Data)
		}
		return old
	})
}

// walk follows the list to the first known entry, or with whole to its end; complete
// reports that it reached the end.
func (g *gdbJIT) walk(entry, relevant uint64, now stack.Time, whole bool) (fresh []*jitObject, complete bool) {
	for n := 0; entry != 0; n++ {
		if n == maxJITObjects {
			g.long = true
			return fresh, false
		}
		key, next, ok := live.ReadGDBEntry(g.proc, entry)
		if !ok {
			return fresh, false // the list is changing: it is read again
		}
		o := g.objects[key]
		switch {
		case o == nil || o.tries > 0 && o.tries < maxTries || entry == relevant && o.tries == 0:
			// The entry reported last may be new, at the address of an earlier one.
			if f := g.read(key, o, now); f != nil {
				fresh = append(fresh, f)
			}
		case !whole:
			return fresh, false
		}
		if o := g.objects[key]; o != nil {
			o.seen = now
		}
		entry = next
	}
	return fresh, true
}

// read reads one file; nil: nothing new.
func (g *gdbJIT) read(key live.GDBEntry, was *jitObject, now stack.Time) *jitObject {
	if key.Size == 0 || key.Addr == 0 {
		return nil
	}
	if (was == nil || was.tries > 0) && (key.Size > maxJITObject || g.bytes+int(key.Size) > maxJITBytes) {
		g.dropped++
		g.objects[key] = &jitObject{tries: maxTries}
		return nil
	}
	b := make([]byte, key.Size)
	n, err := g.proc.ReadAt(b, key.Addr)
	if err == nil && n < len(b) {
		err = errors.New("short")
	}
	sum := crc32.ChecksumIEEE(b)
	if was != nil && was.tries == 0 && was.sum == sum {
		return nil
	}
	o := &jitObject{captured: trace.Captured{What: "gdb-jit", Data: b}, sum: sum}
	if err == nil {
		o.code, err = symbol.OpenJITObject(b, false)
	}
	if err != nil {
		o.captured.Data = nil
		if was != nil {
			o.tries = was.tries
		}
		if o.tries++; o.tries == maxTries {
			g.bad++
		}
		g.objects[key] = o
		return nil
	}
	g.bytes += len(b)
	g.objects[key] = o
	if g.keep != nil {
		g.kept = append(g.kept, o)
	}
	return o
}

func (g *gdbJIT) problems() (out []string) {
	if g.dropped > 0 {
		out = append(out, fmt.Sprintf("GDB's JIT interface: %s left out: larger than %d bytes, or than %d all together", plural.Of(g.dropped, "file"), maxJITObject, maxJITBytes))
	}
	if g.long {
		out = append(out, fmt.Sprintf("GDB's JIT interface: the list is longer than %d files", maxJITObjects))
	}
	if g.bad > 0 {
		out = append(out, fmt.Sprintf("GDB's JIT interface: %s could not be understood", plural.Of(g.bad, "file")))
	}
	return out
}

// variables returns the addresses in the target of a variable of that name in modules
// that were not searched yet.
func (m *modules) variables(name string, searched map[[2]uint64]bool) (out []uint64) {
	m.sending.Lock()
	var maps []stack.Mapping
	if n := len(m.recent); n > 0 {
		maps = m.recent[n-1].maps
	}
	m.sending.Unlock()
	for i := range maps {
		mp := &maps[i]
		if !mp.Exec || mp.Inode == 0 {
			continue
		}
		m.mu.Lock()
		id, ok := m.byKey[moduleKey{mp.Dev, mp.Inode, mp.Path, mp.Gen}]
		f := m.files[id]
		m.mu.Unlock()
		if !ok || searched[[2]uint64{uint64(id), mp.Start}] {
			continue // not opened yet, or already searched
		}
		searched[[2]uint64{uint64(id), mp.Start}] = true
		if f == nil {
			continue
		}
		segs, err := live.Segments(f)
		if err != nil {
			continue
		}
		for _, s := range segs {
			if s[0] < mp.Off+(mp.End-mp.Start) && mp.Off < s[0]+s[2] {
				if vaddr, ok := symbol.Variable(f, name); ok {
					out = append(out, vaddr+(mp.Start-mp.Off)-(s[1]-s[0]))
				}
				break
			}
		}
	}
	return out
}
