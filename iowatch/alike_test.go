package iowatch

import (
	"fmt"
	"reflect"
	"testing"
	"unicode/utf8"
)

func TestAlike(t *testing.T) {
	var paths, want []string
	group := func(pattern string, names ...string) {
		for _, n := range names {
			paths, want = append(paths, n), append(want, pattern)
		}
	}
	var temps, statuses, sessions []string
	for _, s := range []string{"pyl9gbi_", "lwlakg4h", "y2hlct2v", "z9coj6hs", "mh0e25p8", "pkw88y8c", "unqvbo_y", "ro1_8_vu"} {
		temps = append(temps, "/var/tmp/tmp"+s)
		sessions = append(sessions, "/s/sess-"+s+".json")
	}
	for i := range 12 {
		statuses = append(statuses, fmt.Sprintf("/proc/%d/status", 7*i))
	}
	group("/var/tmp/tmp*", temps...)
	group("/s/sess-*.json", sessions...)
	group("/proc/*/status", statuses...)
	group("", temps[0]+".lock", "/other/tmppyl9gbi_", "/etc/passwd", "/etc/group", "/etc/hosts", "", "/proc/3/stat", "x")
	group("", "/etc/ab1", "/etc/ab2", "/etc/ab3") // too few
	got := Alike(paths)
	for i := range paths {
		if got[i] != want[i] {
			t.Errorf("%s: %q, want %q", paths[i], got[i], want[i])
		}
	}
}

// FuzzAlike: patterns hold for their paths, and groups are never small.
func FuzzAlike(f *testing.F) {
	f.Add("/tmp/tmpab", "/x/1/é", byte(9))
	f.Add("a.b", "\xff\xfe/aaa\xff", byte(30))
	f.Fuzz(func(t *testing.T, a, b string, n byte) {
		var paths []string
		for i := range int(n) {
			paths = append(paths, fmt.Sprintf("%s%d", a, i), b+string(rune('a'+i))+a)
		}
		sizes := map[string]int{}
		for i, p := range Alike(paths) {
			if sizes[p]++; p != "" && utf8.ValidString(paths[i]) && !utf8.ValidString(p) {
				t.Errorf("%q is cut in a character: %q", paths[i], p)
			}
		}
		for p, k := range sizes {
			if p != "" && k < leastAlike {
				t.Errorf("%d of %q", k, p)
			}
		}
	})
}

func TestFold(t *testing.T) {
	var files []File
	for i := range 10 {
		f := File{Path: fmt.Sprintf("/tmp/f%d", i), Kind: KindFile, Opens: 1, Open: i % 2, Ops: 3, Got: 5, Written: 4, Time: 20 - uint64(i), Longest: uint64(i), Faults: 1, Faulted: 2, Misses: 1, Missed: 3}
		f.Hist[2] = 3
		if i > 4 {
			f.Stack = 7
		}
		files = append(files, f)
	}
	files[3].Path = "/tmp/other"
	files = append(files, File{Path: "socket on 127.0.0.1:80", Kind: KindSocket, Time: 1})
	got := Fold(files)
	row := File{Path: "/tmp/f*", Kind: KindFile, Files: 9, Opens: 9, Open: 4, Ops: 27, Got: 45, Written: 36, Time: 155 - 17, Longest: 9, Faults: 9, Faulted: 18, Misses: 9, Missed: 27, Stack: 7}
	row.Hist[2] = 27
	if want := []File{row, files[3], files[10]}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
