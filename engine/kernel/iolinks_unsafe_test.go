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
	put(recHead, 0x5000)
	put(recHead+8, 24)
	put(recHead+16, 16)
	put(recHeadMem+8, 0x6000)
	put(recLinks, 0x6000)
	put(recLinks+8, 0x6100)
	put(recLinks+listedBytes, 0x6100)
	return b
}

func TestParseLinks(t *testing.T) {
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
	for off, n := range map[int]uint64{recHead: 0, recHead + 8: maxHead + 1, recHead + 16: maxLink + 1} {
		b := listed()
		binary.NativeEndian.PutUint64(b[off:], n)
		if err := parseIO(b, &r); err != nil || len(r.Links) != 0 {
			t.Errorf("%d at %d: %+v, %v", n, off, r.Links, err)
		}
	}
}

// TestIOLinks follows a list in this process's own memory, directly and by another pointer, up to its end, its bound or an
// address without memory.
func TestIOLinks(t *testing.T) {
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
	const head, via, first = 64, 256, 4096
	put(head+8, base+via)
	put(head+16, base+first)
	put(via+8, base+first)
	for _, c := range []struct {
		list    IOLinks
		n, want int
		broken  bool
	}{
		{list: IOLinks{Size: 48, First: 16, Next: 8, Len: length}, n: 5, want: 5},
		{list: IOLinks{Size: 48, First: 8, Via: 9, Next: 8, Len: length}, n: 5, want: 5},
		{list: IOLinks{Size: 48, First: 16, Next: 8, Len: length}, n: maxListed + 10, want: maxListed},
		{list: IOLinks{Size: 48, First: 16, Next: 8, Len: length}, n: 7, want: 7, broken: true},
		{list: IOLinks{Size: maxHead + 8, First: 16, Next: 8, Len: length}, n: 5, want: -1},
		{list: IOLinks{Size: 48, First: 16, Next: length, Len: length}, n: 5, want: -1},
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
		c.list.Head = base + head
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
				if p.Addr != c.list.Head || len(p.Data) != c.list.Size {
					t.Errorf("%+v", p)
				}
			} else if p.Addr != base+first+uint64(i-1)*length || len(p.Data) != length || binary.NativeEndian.Uint64(p.Data) != uint64(i-1) {
				t.Errorf("element %d: %+v", i-1, p)
			}
		}
	}
}
