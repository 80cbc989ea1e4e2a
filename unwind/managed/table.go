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
	// maxFunctions bounds the functions of a Table.
	maxFunctions = 1 << 17
	// others is the size of the function that represents all functions beyond the bounds.
	others = 16
	// maxRuns bounds the recorded lines of a function.
	maxRuns = 1 << 16
	// maxSize bounds one function, in bytes.
	maxSize = 1 << 30
)

// Function is one function of a Table.
type Function struct {
	Addr, Size uint64 // address in the range and size, in bytes
	Name, File string
	First      int   // first line
	Runs       []Run // by End
}

// Run is a run of bytecode of one line.
type Run struct {
	End  uint64 // end, in bytes from the function's beginning
	Line int    // 0: no line
}

// Line returns the line of the instruction at addr, or 0 if it has none.
func (f *Function) Line(addr uint64) int {
	off := addr - f.Addr
	i := sort.Search(len(f.Runs), func(i int) bool { return f.Runs[i].End > off })
	if i == len(f.Runs) {
		return 0
	}
	return f.Runs[i].Line
}

// Key identifies a function: its name, file and lines.
type Key struct {
	Name, File string
	First      int    // first line
	Size       uint64 // bytes of its code
	Lines      uint64 // Table.Hash of the lines
}

// Table assigns addresses to functions by their identity, independent of where their code is in
// memory. It may be used by several goroutines at once.
type Table struct {
	rng   Range
	seed  maphash.Seed
	fresh chan<- struct{}

	mu   sync.Mutex // guards ids, list and next
	ids  map[Key]int
	list []Function
	next uint64
}

// NewTable returns a table for the addresses of r that holds only the function for those without
// room. If fresh is not nil, it receives a value when there are functions that Since has not
// returned. fresh must have a buffer of one. Several tables may share it.
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

// Range returns the range of the table's addresses.
func (t *Table) Range() Range { return t.rng }

// Hash computes Key.Lines.
func (t *Table) Hash(b []byte) uint64 { return maphash.Bytes(t.seed, b) }

// Add returns the address and size of the function k. If the function is new, Add calls each for
// its lines. each calls yield with the line (0: none) of the bytes up to end, in address order,
// until yield returns false.
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

// Since encodes the functions from index n on, and returns the current number of functions.
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

// Find returns the function at addr, or nil.
func (t *Table) Find(addr uint64) *Function {
	t.mu.Lock()
	list := t.list[:len(t.list):len(t.list)]
	t.mu.Unlock()
	return Find(list, addr)
}

// Find returns the function at addr from a list sorted by address, or nil.
func Find(list []Function, addr uint64) *Function {
	i := sort.Search(len(list), func(i int) bool { return list[i].Addr > addr }) - 1
	if i < 0 || addr-list[i].Addr >= list[i].Size {
		return nil
	}
	return &list[i]
}

// append encodes f. All fields are uvarints except for the strings, which follow their lengths.
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

// Parse decodes the output of Since of a table of r and appends the functions to list. It drops
// everything after the first damage.
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
