package oneshot

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind/managed"
)

// names maps addresses of one process to names. It looks up each address once.
type names struct {
	o        naming.Options
	mapped   *live.Mapped
	mods     map[*live.MappedFile]*module
	at       map[uint64]place // by lookup address
	made     naming.Made
	followed []followed // runtimes whose frames walks show
}

// module is a mapped file, or memory without one.
type module struct {
	*live.MappedFile
	buildID string
	asked   []question // addresses to resolve
}

type question struct{ addr, vaddr uint64 }

// place is the location of an address.
type place struct {
	mod    *module
	bias   uint64 // added to vaddrs to get addresses
	frames []symbol.Frame
}

func newNames(p *target.Process, t *live.Target, o *Options) *names {
	no := naming.Options{Finder: live.Finder(p, o.DebugDirs, o.Finder), FullNames: o.FullNames, Cache: o.Cache}
	return &names{made: live.Made(p, func() *live.Target { return t }, o.FullNames), o: no, mapped: live.NewMapped(p), mods: map[*live.MappedFile]*module{}, at: map[uint64]place{}}
}

func (n *names) close() { n.mapped.Close() }

func (n *names) module(mp *stack.Mapping) *module {
	f := n.mapped.Of(mp)
	m := n.mods[f]
	if m == nil {
		m = &module{MappedFile: f}
		if f.File != nil {
			m.buildID, _ = symbol.BuildID(f.File)
		}
		n.mods[f] = m
	}
	return m
}

// lookup returns the lookup address of a frame: inside the call.
func lookup(f *stack.Frame) uint64 {
	if f.Exact || f.PC == 0 {
		return f.PC
	}
	return f.PC - 1
}

// machine reports whether a frame is machine code.
func machine(f *stack.Frame) bool {
	_, made := managed.At(f.PC)
	return !made && !f.Kind.Managed() && f.Kind != stack.KindError
}

// ask queues the addresses of unknown frames.
func (n *names) ask(maps []stack.Mapping, frames []stack.Frame) {
	for i := range frames {
		if !machine(&frames[i]) {
			continue
		}
		a := lookup(&frames[i])
		if _, ok := n.at[a]; ok {
			continue
		}
		var pl place
		if j, ok := live.MappingAt(maps, a); ok {
			mp := &maps[j]
			pl.mod = n.module(mp)
			q := question{addr: a}
			if v, ok := pl.mod.Vaddr(mp, a); ok {
				q.vaddr, pl.bias = v, a-v
				pl.mod.asked = append(pl.mod.asked, q)
			} else if mp.Inode == 0 {
				pl.mod.asked = append(pl.mod.asked, q) // code generated at run time
			}
		}
		n.at[a] = pl
	}
}

// resolve resolves all queued addresses, the files concurrently.
func (n *names) resolve() (problems []string) {
	var mu sync.Mutex
	tell := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	for _, m := range n.mods { // before anything runs concurrently
		if len(m.asked) > 0 && !m.Code() {
			n.jit(m)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, m := range n.mods {
		if len(m.asked) == 0 || !m.Code() {
			continue
		}
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			answers, err := m.names(n.o, tell)
			if err != nil {
				tell("no names for %s: %v", m.Key.Path, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, q := range m.asked {
				pl := n.at[q.addr]
				pl.frames = answers[q.vaddr]
				n.at[q.addr] = pl
			}
			m.asked = nil
		}()
	}
	wg.Wait()
	slices.Sort(problems)
	return slices.Compact(problems)
}

// names resolves the module's addresses in its file.
func (m *module) names(o naming.Options, tell func(string, ...any)) (map[uint64][]symbol.Frame, error) {
	f, err := naming.Open(m.File, m.Key.Path, runtime.GOARCH, o)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	vaddrs := make([]uint64, 0, len(m.asked))
	for _, q := range m.asked {
		vaddrs = append(vaddrs, q.vaddr)
	}
	slices.Sort(vaddrs)
	vaddrs = slices.Compact(vaddrs)
	out := make(map[uint64][]symbol.Frame, len(vaddrs))
	for _, v := range vaddrs {
		out[v] = f.Frames(v, nil)
	}
	for _, p := range f.Problems() {
		tell("%v", p)
	}
	return out, nil
}

// jit names generated code from the program's own descriptions of it.
func (n *names) jit(m *module) {
	n.made.Read() // the first time
	for _, q := range m.asked {
		pl := n.at[q.addr]
		pl.frames = n.made.Frames(q.addr, nil)
		n.at[q.addr] = pl
	}
	m.asked = nil
}

// functions returns the names of a stack's functions, leaf first, without unnamed ones.
func (n *names) functions(frames []stack.Frame) []string {
	var out []string
	for i := range frames {
		if !machine(&frames[i]) {
			continue
		}
		for _, f := range n.at[lookup(&frames[i])].frames {
			out = append(out, f.Func)
		}
	}
	return out
}

// frames returns a stack's frames with their names.
func (n *names) frames(in []stack.Frame) []stacks.Frame {
	out := make([]stacks.Frame, 0, len(in))
	for i := range in {
		f := stacks.Frame{Addr: in[i].PC, Trust: in[i].Trust, Kind: in[i].Kind}
		if !machine(&in[i]) {
			out = append(out, n.managed(&in[i], f))
			continue
		}
		pl := n.at[lookup(&in[i])]
		if pl.mod != nil {
			f.Module, f.BuildID = pl.mod.Key.Path, pl.mod.buildID
		}
		if len(pl.frames) == 0 {
			out = append(out, f)
			continue
		}
		for j := range pl.frames {
			s := &pl.frames[j]
			f.Func, f.File, f.Line, f.Inlined = s.Func, s.File, s.Line, s.Inlined
			start := s.Start + pl.bias
			if s.Start == 0 {
				start = in[i].Func
			}
			if f.NoOffset = start == 0 || start > f.Addr; !f.NoOffset {
				f.Offset = f.Addr - start
			}
			out = append(out, f)
		}
	}
	return out
}
