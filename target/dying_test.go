package target

import (
	"fmt"
	"strings"
	"testing"
)

// stat of a thread whose core dump is being written, and of others.
func TestDumping(t *testing.T) {
	line := func(flags, esp, eip uint64) string {
		f := strings.Fields("R 1 2 3 0 -1 FLAGS 1 2 3 4 5 6 7 8 20 0 4 0 99 1000 200 18446744073709551615 1 2 3 ESP EIP 0 0")
		s := "77 (a) b (c) " + strings.Join(f, " ") + "\n"
		for name, v := range map[string]uint64{"FLAGS": flags, "ESP": esp, "EIP": eip} {
			s = strings.Replace(s, name, fmt.Sprint(v), 1)
		}
		return s
	}
	for _, c := range []struct {
		stat   string
		pc, sp uint64
		ok     bool
	}{
		{line(0x400200, 0x7ffd1000, 0x401234), 0x401234, 0x7ffd1000, true},
		{line(0x400000, 0x7ffd1000, 0x401234), 0, 0, false}, // it lives
		{line(0x400200, 0, 0), 0, 0, false},                 // permission is missing
		{"77 (x) R 1 2 3 0 -1 512", 0, 0, false},
		{"77 (x", 0, 0, false},
		{"", 0, 0, false},
	} {
		if pc, sp, ok := parseDumping([]byte(c.stat)); ok != c.ok || ok && (pc != c.pc || sp != c.sp) {
			t.Errorf("%q: %#x, %#x, %v", c.stat, pc, sp, ok)
		}
	}
}
