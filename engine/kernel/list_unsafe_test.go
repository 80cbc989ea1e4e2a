package kernel

import (
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// listed makes a record with a list of two elements, and stack pages 0, 1 and 3.
func listed() []byte {
	b := record(formDeep, byte(iowatch.OpOpen), bytesDeep)
	put := func(off int, n uint64) { binary.NativeEndian.PutUint64(b[off:], n) }
	put(recBase, 0x10000)
	put(recPages, 0b1011)
	put(recDeep+lnHead, 0x5000)
	put(recDeep+lnSize, 24)
	put(recDeep+lnLen, 16)
	put(recDeep+lnMem+8, 0x6000)
	put(recDeep+lnLinks, 0x6000)
	put(recDeep+lnLinks+8, 0x6100)
	put(recDeep+lnLinks+listedBytes, 0x6100)
	put(recDeep+lnCount, 2)
	return b
}

func TestParseList(t *testing.T) {
	var r IORecord
	b := listed()
	if err := parseIO(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Memory) != 2*pageBytes || len(r.Rest) != 1 || r.Rest[0].Addr != 0x13000 || len(r.Rest[0].Data) != pageBytes {
		t.Errorf("%d bytes of stack, then %d pages", len(r.Memory), len(r.Rest))
	}
	if l := r.Links; len(l) != 3 || l[0].Addr != 0x5000 || len(l[0].Data) != 24 || l[1].Addr != 0x6000 || len(l[1].Data) != 16 || l[2].Addr != 0x6100 {
		t.Errorf("%+v", l)
	}
	for off, n := range map[int]uint64{lnHead: 0, lnSize: maxHead + 1, lnLen: maxLink + 1, lnObjLen: maxObject + 1, lnNew: maxTexts + 1} {
		b := listed()
		binary.NativeEndian.PutUint64(b[recDeep+off:], n)
		if err := parseIO(b, &r); err != nil || len(r.Links) != 0 {
			t.Errorf("%d at %d: %+v, %v", n, off, r.Links, err)
		}
	}
}

// TestList follows a list in this process's own memory, directly and by another pointer, up to its end, its bound or an
// address without memory.
func TestList(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := openIO(t, IOOptions{Slow: time.Minute, Gap: 8 * time.Millisecond, SmallOps: 20})
	const length = 24
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	base := uint64(uintptr(unsafe.Pointer(&mem[0])))
	put := func(off int, n uint64) { binary.NativeEndian.PutUint64(mem[off:], n) }
	const head, via, root, state, step, first = 64, 256, 512, 1024, 40, 4096
	put(head+8, base+via)
	put(head+16, base+first)
	put(via+8, base+first)
	put(root, base+state)
	put(state+step, base+head)
	for _, c := range []struct {
		list    List
		n, want int
		broken  bool
	}{
		{list: List{Links: stack.Links{Head: stack.Span{Len: 48}, First: 16, Next: 8, Len: length}}, n: 5, want: 5},
		{list: List{Links: stack.Links{Head: stack.Span{Len: 48}, First: 8, Via: 9, Next: 8, Len: length}}, n: 5, want: 5},
		{list: List{Links: stack.Links{Root: base + root, Step: step, Head: stack.Span{Len: 48}, First: 16, Next: 8, Len: length}}, n: 5, want: 5},
		{list: List{Links: stack.Links{Root: base + root, Step: step + 8, Head: stack.Span{Len: 48}, First: 16, Next: 8, Len: length}}, n: 5, want: -1},
		{list: List{Links: stack.Links{Root: base + root + 8, Step: step, Head: stack.Span{Len: 48}, First: 16, Next: 8, Len: length}}, n: 5, want: -1},
		{list: List{Links: stack.Links{Head: stack.Span{Len: 48}, First: 16, Next: 8, Len: length}}, n: maxListed + 10, want: maxListed},
		{list: List{Links: stack.Links{Head: stack.Span{Len: 48}, First: 16, Next: 8, Len: length}}, n: 7, want: 7, broken: true},
		{list: List{Links: stack.Links{Head: stack.Span{Len: maxHead + 8}, First: 16, Next: 8, Len: length}}, n: 5, want: -1},
		{list: List{Links: stack.Links{Head: stack.Span{Len: 48}, First: 16, Next: length, Len: length}}, n: 5, want: -1},
	} {
		for i := range c.n {
			next := base + first + uint64(i+1)*length
			if i == c.n-1 {
				if next = 0; c.broken {
					next = 8 // nothing is mapped there
				}
			}
			put(first+i*length, uint64(i))
			put(first+i*length+8, next)
		}
		if c.list.Root == 0 {
			c.list.Head.Addr = base + head
		}
		e.Plan(stack.TID(unix.Gettid()), nil, &c.list, 0)
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		var got []Page
		seen := false
		e.Read(func(r *IORecord) {
			if r.Op == iowatch.OpOpen && r.Path == os.DevNull {
				seen, got = true, nil
				for _, p := range r.Links {
					got = append(got, Page{p.Addr, append([]byte(nil), p.Data...)})
				}
			}
		})
		if !seen || len(got) != c.want+1 {
			t.Errorf("%+v: seen %v, %d blocks, want %d and the head", c.list, seen, len(got), c.want)
			continue
		}
		for i, p := range got {
			if i == 0 {
				if p.Addr != base+head || len(p.Data) != c.list.Head.Len {
					t.Errorf("%+v", p)
				}
			} else if p.Addr != base+first+uint64(i-1)*length || len(p.Data) != length || binary.NativeEndian.Uint64(p.Data) != uint64(i-1) {
				t.Errorf("element %d: %+v", i-1, p)
			}
		}
	}
}

// TestListObjects follows a list whose elements have objects: all are copied each time, and their texts only if the
// object is new or another one at the same address.
func TestListObjects(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := openIO(t, IOOptions{Slow: time.Minute, Gap: 8 * time.Millisecond, SmallOps: 20})
	const length, object, text = 24, 48, 512
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	base := uint64(uintptr(unsafe.Pointer(&mem[0])))
	put := func(off int, n uint64) { binary.NativeEndian.PutUint64(mem[off:], n) }
	const head, first, objects, texts = 64, 1024, 8192, 32768
	list := List{Links: stack.Links{Head: stack.Span{Addr: base + head, Len: 16}, First: 0, Next: 8, Len: length, Object: 17, ObjectLen: object, Key: 8, Texts: [stack.LinkTexts]int{9, 17, 0}}}
	put(head, base+first)
	set := func(n int) {
		for i := range n {
			next := base + first + uint64(i+1)*length
			if i == n-1 {
				next = 0
			}
			put(first+i*length+8, next)
			put(first+i*length+16, base+objects+uint64(i)*object+5) // bits that do not count
			put(objects+i*object, uint64(i))
			put(objects+i*object+8, base+texts+uint64(i)*text)
			put(objects+i*object+16, 8) // nothing is mapped there
			put(texts+i*text, 1000+uint64(i))
		}
	}
	read := func() (objectsSeen, textsSeen map[uint64]uint64) {
		e.Plan(stack.TID(unix.Gettid()), nil, &list, 0)
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		e.Read(func(r *IORecord) {
			if r.Op != iowatch.OpOpen || r.Path != os.DevNull {
				return
			}
			objectsSeen, textsSeen = map[uint64]uint64{}, map[uint64]uint64{}
			for _, p := range r.Links {
				switch off := p.Addr - base; {
				case off >= objects && off < texts && len(p.Data) == object:
					objectsSeen[(off-objects)/object] = binary.NativeEndian.Uint64(p.Data)
				case off >= texts && len(p.Data) == maxText:
					textsSeen[(off-texts)/text] = binary.NativeEndian.Uint64(p.Data)
				}
			}
		})
		return objectsSeen, textsSeen
	}
	const n = 12
	set(n)
	for round, want := range [][]uint64{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11}, {}, {3}, {}} { // maxTexts at once
		if round == 3 {
			put(objects+3*object+8, base+texts+20*text) // another object at the same place
			put(texts+20*text, 7)
		}
		o, x := read()
		for i := range uint64(n) {
			if got, ok := o[i]; !ok || got != i {
				t.Errorf("round %d: object %d is %d, %v", round, i, got, ok)
			}
		}
		if len(o) != n || len(x) != len(want) {
			t.Errorf("round %d: %d objects, texts %v, want %v", round, len(o), x, want)
		}
		for _, i := range want {
			at, is := i, 1000+i
			if round == 3 {
				at, is = 20, 7
			}
			if x[at] != is {
				t.Errorf("round %d: text %d is %d", round, at, x[at])
			}
		}
	}
	list.ObjectLen = maxObject + 8 // it does not fit
	if o, x := read(); len(o)+len(x) != 0 {
		t.Errorf("%v %v", o, x)
	}
}
