package managed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sort"
	"sync"
)

const (
	// maxFunctions bounds a Table.
	maxFunctions = 1 << 17
	// others is the size of the function that stands for all that have no room.
	others = 16
	// maxRuns bounds the lines of a function that are kept.
	maxRuns = 1 << 16
	// maxSize bounds one function, in bytes.
	maxSize = 1 << 30
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

// Key is what tells a function from all others: what it is called, where it
// stands, its lines.
type Key struct {
	Name, File string
	First      int    // line of its beginning
	Size       uint64 // bytes of its code
	Lines      uint64 // of Table.Hash: what tells its lines
}

// Table gives functions their addresses, by what they are and not by where
// their code is in memory. It may be used by several goroutines at once.
type Table struct {
	rng   Range
	seed  maphash.Seed
	fresh chan<- struct{}

	mu   sync.Mutex // guards what follows
	ids  map[Key]int
	list []Function
	next uint64
}

// NewTable makes one for the addresses of r that has nothing but the function of
// all that have no room. fresh, if not nil, has something to receive when there are
// functions that Since has not given; it is to have room for one, and may be that of
// several tables.
func NewTable(r Range, fresh chan<- struct{}) *Table {
	t := &Table{rng: r, seed: maphash.MakeSeed(), fresh: fresh, ids: map[Key]int{}, next: r.Start}
	t.add(Function{Size: others, Name: "(more functions than are kept)"})
	return t
}

func (t *Table) add(f Function) *Function {
	f.Addr = t.next
	t.next += (f.Size + 15) &^ 15
	t.list = append(t.list, f)
	return &t.list[len(t.list)-1]
}

// Range is where the table's addresses are.
func (t *Table) Range() Range { return t.rng }

// Hash makes a Key's Lines.
func (t *Table) Hash(b []byte) uint64 { return maphash.Bytes(t.seed, b) }

// Add gives the function of k: where it stands, and how many bytes it has. each is
// asked for its lines where the table does not have it yet: it calls yield with the
// line (0: none) of the bytes up to end, in the order of their places, until that is
// false.
func (t *Table) Add(k Key, each func(yield func(end uint64, line int) bool)) (addr, size uint64) {
	k.Size = min(max(k.Size, 1), maxSize)
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.ids[k]; ok {
		return t.list[i].Addr, t.list[i].Size
	}
	if len(t.list) >= maxFunctions || t.next+k.Size+16 > t.rng.End {
		return t.rng.Start, others
	}
	t.ids[k] = len(t.list)
	f := Function{Size: k.Size, Name: k.Name, File: k.File, First: k.First}
	each(func(end uint64, line int) bool {
		end = min(end, k.Size)
		if n := len(f.Runs); n > 0 && f.Runs[n-1].Line == line {
			f.Runs[n-1].End = end
		} else {
			f.Runs = append(f.Runs, Run{end, line})
		}
		return end < k.Size && len(f.Runs) < maxRuns
	})
	addr = t.add(f).Addr
	select {
	case t.fresh <- struct{}{}:
	default:
	}
	return addr, k.Size
}

// Since encodes the functions from the n-th on, and gives how many there are by
// now.
func (t *Table) Since(n int) ([]byte, int) {
	t.mu.Lock()
	list := t.list[n:len(t.list):len(t.list)]
	t.mu.Unlock()
	var b []byte
	for i := range list {
		b = list[i].append(b, t.rng.Start)
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
//	address minus the beginning of the range, size, name, file, first line
//	n runs: bytes, line
func (f *Function) append(b []byte, base uint64) []byte {
	put := func(v uint64) { b = binary.AppendUvarint(b, v) }
	str := func(s string) { put(uint64(len(s))); b = append(b, s...) }
	put(f.Addr - base)
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

var errTable = errors.New("a table of functions is damaged")

// Parse decodes what Since gave of a table of r, and appends it to list. What
// comes after the first damage is left out.
func Parse(r Range, b []byte, list []Function) ([]Function, error) {
	size := len(b)
	fail := func() error { return fmt.Errorf("%s: %w at byte %d", r.Module, errTable, size-len(b)) }
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
		f := Function{Addr: r.Start + next(), Size: next(), Name: str(), File: str(), First: int(min(next(), math.MaxInt32))}
		n := next()
		if !ok || n > uint64(len(b))/2 || f.Size == 0 || f.Size > maxSize || f.Addr < r.Start || f.Addr >= r.End ||
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
