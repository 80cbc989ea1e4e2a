package kallsyms

import (
	"errors"
	"strings"
	"testing"
)

const list = `0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_debug_store
ffffffff81000000 T _text
ffffffff81000100 T first
ffffffff81000100 t first_alias
ffffffff81000200 d data
ffffffff81000300 t second
ffffffffc0000300 t in_module	[ext4]
ffffffffc0000000 W weak	[ext4]
`

func TestCaller(t *testing.T) {
	s, err := Read(strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[uint64]string{
		0: Unknown, 0x1001: Unknown, 0xffffffff81000000: Unknown, 0xffffffff81000001: "_text", 0xffffffff81000100: "_text",
		0xffffffff81000101: "first", 0xffffffff81000205: "first", 0xffffffff81000301: "second", 0xffffffff81200302: Unknown,
		0xffffffffc0000010: "weak [ext4]", 0xffffffffc0000310: "in_module [ext4]", ^uint64(0): Unknown,
	} {
		if got := s.Caller(addr); got != want {
			t.Errorf("%#x: %q instead of %q", addr, got, want)
		}
	}
}

func TestHidden(t *testing.T) {
	if _, err := Read(strings.NewReader("0000000000000000 T _text\n0000000000000000 T first\n")); !errors.Is(err, errHidden) {
		t.Errorf("%v", err)
	}
	for restrict, want := range map[string]string{"0": "perf_event_paranoid", "1": "CAP_SYSLOG", "2": "set it to 1", "": "unknown"} {
		if got := hidden(restrict); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q: %s", restrict, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(list), uint64(0xffffffff81000101))
	f.Add([]byte("zz T x\n"), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, at uint64) {
		s, err := Read(strings.NewReader(string(b)))
		if err != nil {
			return
		}
		if name := s.Caller(at); name == "" {
			t.Errorf("%#x has an empty name", at)
		}
	})
}
