package wait

import "testing"

const mapsFile = `55d0c0000000-55d0c0001000 rw-p 00003000 fe:01 77                 /usr/bin/x
7f0000000000-7f0000002000 rw-s 00001000 00:01 4100               /dev/zero (deleted)
broken
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
`

func TestFindMapping(t *testing.T) {
	for _, c := range []struct {
		addr       uint64
		shared, ok bool
		key        Key
	}{
		{0x7f0000000010, true, true, Key{Dev: "00:01", Inode: 4100, Offset: 0x1010}},
		{0x55d0c0000008, false, true, Key{Dev: "fe:01", Inode: 77, Offset: 0x3008}},
		{0x7f0000004000, false, true, Key{Dev: "00:00"}},
		{0x7f0000002000, false, false, Key{}},
	} {
		k, shared, ok := findMapping([]byte(mapsFile), c.addr)
		if ok != c.ok || shared != c.shared || k != c.key {
			t.Errorf("%#x: %+v %v %v", c.addr, k, shared, ok)
		}
	}
}

func FuzzFindMapping(f *testing.F) {
	f.Add([]byte(mapsFile), uint64(0x7f0000000010))
	f.Fuzz(func(t *testing.T, b []byte, addr uint64) {
		if k, shared, ok := findMapping(b, addr); !ok && (shared || k != (Key{})) {
			t.Errorf("%+v %v", k, shared)
		}
		nspid(b)
	})
}
