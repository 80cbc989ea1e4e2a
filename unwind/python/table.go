package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sort"
	"sync"
)

// Functions of a recording have addresses of their own, as if their bytecode
// stood in one place one after the other: a function keeps its address whatever
// becomes of its code object, and of another one at the same place. The range is
// none of a program: above what it may use on amd64, and on arm64 between where
// programs and libraries are put.
const (
	TableBase = 0x8000_0000_0000
	TableEnd  = 0x8100_0000_0000

	// Module is what the range is called among the files of a recording.
	Module = "[python]"
)

const (
	// maxFunctions bounds a Table.
	maxFunctions = 1 << 17
	// others is the size of the function that stands for all that have no room.
	others = 16
	// maxRuns bounds the lines of a function that are kept.
	maxRuns = 1 << 16
)

// Function is one function of a Table.
type Function struct {
	Addr, Size uint64 // where its bytecode stands in the range, in bytes
	Name, File string
	First      int   // line of its beginning
	Runs       []Run // by End
}

// Run is bytecode of one line.
type Run struct {
	End  uint64 // where it ends, in bytes from the function's beginning
	Line int    // 0: it belongs to none
}

// Line is the line of the instruction at addr; 0: it belongs to none.
func (f *Function) Line(addr uint64) int {
	off := addr - f.Addr
	i := sort.Search(len(f.Runs), func(i int) bool { return f.Runs[i].End > off })
	if i == len(f.Runs) {
		return 0
	}
	return f.Runs[i].Line
}

// function is what c says, from addr on.
func (c *Code) function(addr uint64) Function {
	f := Function{Addr: addr, Size: c.Size, Name: c.Name, File: c.File, First: c.First}
	c.Each(func(end uint64, line int) bool {
		end = min(end, c.Size)
		if n := len(f.Runs); n > 0 && f.Runs[n-1].Line == line {
			f.Runs[n-1].End = end
		} else {
			f.Runs = append(f.Runs, Run{end, line})
		}
		return end < c.Size && len(f.Runs) < maxRuns
	})
	return f
}

// identity of a function: what it is called, where it stands, its lines.
type identity struct {
	name, file string
	first      int
	size       uint64
	lines      uint64 // hash
}

// Table gives functions their addresses, by what they are and not by where
// their code is in memory. It may be used by several goroutines at once.
type Table struct {
	mu    sync.Mutex
	seed  maphash.Seed
	ids   map[identity]int
	list  []Function
	next  uint64
	fresh chan struct{}
}

// NewTable makes one that has nothing but the function of all that have no room.
func NewTable() *Table {
	t := &Table{seed: maphash.MakeSeed(), ids: map[identity]int{}, next: TableBase, fresh: make(chan struct{}, 1)}
	t.add(Function{Size: others, Name: "(more functions than are kept)"})
	return t
}

func (t *Table) add(f Function) *Function {
	f.Addr = t.next
	t.next += (f.Size + 15) &^ 15
	t.list = append(t.list, f)
	return &t.list[len(t.list)-1]
}

// Add gives the function of c: where it stands, and how many bytes it has.
func (t *Table) Add(c *Code) (addr, size uint64) {
	id := identity{c.Name, c.File, c.First, c.Size, maphash.Bytes(t.seed, c.lines)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.ids[id]; ok {
		return t.list[i].Addr, t.list[i].Size
	}
	if len(t.list) >= maxFunctions || t.next+c.Size+16 > TableEnd {
		return TableBase, others
	}
	t.ids[id] = len(t.list)
	f := t.add(c.function(t.next))
	select {
	case t.fresh <- struct{}{}:
	default:
	}
	return f.Addr, f.Size
}

// Fresh has something to receive when there are functions that Since has not given.
func (t *Table) Fresh() <-chan struct{} { return t.fresh }

// Since encodes the functions from the n-th on, and gives how many there are by
// now.
func (t *Table) Since(n int) ([]byte, int) {
	t.mu.Lock()
	list := t.list[n:len(t.list):len(t.list)]
	t.mu.Unlock()
	var b []byte
	for i := range list {
		b = list[i].append(b)
	}
	return b, n + len(list)
}

// Find is the function at addr; nil: there is none.
func (t *Table) Find(addr uint64) *Function {
	t.mu.Lock()
	list := t.list[:len(t.list):len(t.list)]
	t.mu.Unlock()
	return Find(list, addr)
}

// Find is the function at addr of functions in the order of their addresses;
// nil: there is none.
func Find(list []Function, addr uint64) *Function {
	i := sort.Search(len(list), func(i int) bool { return list[i].Addr > addr }) - 1
	if i < 0 || addr-list[i].Addr >= list[i].Size {
		return nil
	}
	return &list[i]
}

// append encodes f: uvarints but for the strings, which follow their lengths.
//
//	address minus TableBase, size, name, file, first line
//	n runs: bytes, line
func (f *Function) append(b []byte) []byte {
	put := func(v uint64) { b = binary.AppendUvarint(b, v) }
	str := func(s string) { put(uint64(len(s))); b = append(b, s...) }
	put(f.Addr - TableBase)
	put(f.Size)
	str(f.Name)
	str(f.File)
	put(uint64(max(f.First, 0)))
	put(uint64(len(f.Runs)))
	from := uint64(0)
	for _, r := range f.Runs {
		put(r.End - from)
		put(uint64(max(r.Line, 0)))
		from = r.End
	}
	return b
}

var errTable = errors.New("the table of Python's functions is damaged")

// ParseTable decodes what Since gave, and appends it to list. What comes after
// the first damage is left out.
func ParseTable(b []byte, list []Function) ([]Function, error) {
	size := len(b)
	fail := func() error { return fmt.Errorf("%w at byte %d", errTable, size-len(b)) }
	ok := true
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			ok, b = false, nil
			return 0
		}
		b = b[n:]
		return v
	}
	str := func() string {
		n := next()
		if n > uint64(len(b)) {
			ok = false
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	for len(b) > 0 {
		f := Function{Addr: TableBase + next(), Size: next(), Name: str(), File: str(), First: int(min(next(), math.MaxInt32))}
		n := next()
		if !ok || n > uint64(len(b))/2 || f.Size == 0 || f.Size > maxBytecode || f.Addr < TableBase || f.Addr >= TableEnd ||
			len(list) > 0 && f.Addr < list[len(list)-1].Addr+list[len(list)-1].Size {
			return list, fail()
		}
		from := uint64(0)
		for range n {
			from += next()
			f.Runs = append(f.Runs, Run{from, int(min(next(), math.MaxInt32))})
			if !ok || from > f.Size {
				return list, fail()
			}
		}
		list = append(list, f)
	}
	return list, nil
}
