package gopcln

import (
	"bufio"
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// TestInlinesAgreeWithCallersFrames compares with a program's own report of its stack, also in a
// stripped build.
func TestInlinesAgreeWithCallersFrames(t *testing.T) {
	for _, name := range []string{"plain", "stripped"} { // not PIE: run-time addresses equal the file's
		t.Run(name, func(t *testing.T) {
			if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
				t.Skip("the program runs on amd64 and arm64 alone")
			}
			compareFrames(t, build(t, builds[name]))
		})
	}
}

func compareFrames(t *testing.T, path string) {
	tab, _ := load(t, path)
	out, err := exec.Command(path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	var buf []Inline
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		switch f := strings.Fields(s.Text()); f[0] {
		case "frame":
			want = append(want, strings.Join(f[1:], " "))
		case "pc":
			var pc uint64
			if _, err := fmt.Sscanf(f[1], "%x", &pc); err != nil {
				t.Fatal(err)
			}
			buf = tab.Inlines(pc-1, buf[:0])
			for _, i := range buf {
				got = append(got, fmt.Sprintf("%s %s %d", i.Func, i.File, i.Line))
			}
		}
	}
	// runtime.Callers returns one PC per logical frame, and the names of one physical frame repeat.
	if len(want) < 6 || !strings.Contains(strings.Join(want, "\n"), "main.inner") {
		t.Fatalf("frames: %q", want)
	}
	i := 0
	for _, w := range want {
		for i < len(got) && got[i] != w {
			i++
		}
		if i == len(got) {
			t.Fatalf("no %q in order in\n%s\nwant\n%s", w, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestInlinesAgreeWithDWARF compares the names of the calls inlined at the start of every inlined
// range of the program. The compiler's DWARF ranges include instructions whose line belongs
// elsewhere, so only a share must agree.
func TestInlinesAgreeWithDWARF(t *testing.T) {
	for name, b := range map[string]target{"amd64": plainBuild, "arm64": arm64Build} {
		t.Run(name, func(t *testing.T) {
			tab, f := load(t, build(t, b))
			same, all := inlinedRanges(t, tab, f)
			t.Logf("%d of %d ranges agree", same, all)
			if all < 1000 || same < all*99/100 {
				t.Errorf("%d of %d inlined ranges agree with DWARF", same, all)
			}
		})
	}
}

func inlinedRanges(t *testing.T, tab *Table, f *elf.File) (same, all int) {
	d, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	names := map[dwarf.Offset]string{}
	type call struct {
		origin dwarf.Offset
		ranges [][2]uint64
	}
	var calls []call
	for r := d.Reader(); ; {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		switch e.Tag {
		case dwarf.TagSubprogram:
			if n, ok := e.Val(dwarf.AttrName).(string); ok {
				names[e.Offset] = n
			}
		case dwarf.TagInlinedSubroutine:
			o, _ := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
			rs, err := d.Ranges(e)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, call{o, rs})
		}
	}
	var buf []Inline
	for _, c := range calls {
		for _, r := range c.ranges {
			if r[0] >= r[1] {
				continue
			}
			all++
			buf = tab.Inlines(r[0], buf[:0])
			for _, i := range buf[:max(len(buf)-1, 0)] {
				if i.Func == names[c.origin] {
					same++
					break
				}
			}
		}
	}
	return same, all
}
