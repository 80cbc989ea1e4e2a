package main

import (
	"strings"
	"testing"
)

func TestParsePID(t *testing.T) {
	for _, c := range []struct {
		in   string
		pid  int
		says string
	}{
		{"1234", 1234, ""},
		{"", 0, "is empty: is the program running?"},
		{"  ", 0, "is empty"},
		{"-d", 0, `missing PID before "-d"`},
		{"--duration", 0, `missing PID before "--duration"`},
		{"-7", 0, `invalid PID "-7"`},
		{"0", 0, `invalid PID "0"`},
		{"12 13", 0, "give one PID"},
		{"1.5", 0, `invalid PID "1.5"`},
		{"99999999999999999999", 0, "invalid PID"},
		{"redis-server", 0, "'pgrep -l redis-server' finds the PID"},
		{"a;b", 0, `invalid PID "a;b"`},
		{"a\nb", 0, "invalid PID"},
	} {
		pid, err := parsePID(c.in)
		if c.says == "" && (err != nil || pid != c.pid) || c.says != "" && (err == nil || pid != 0 || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q: %d, %v; want %d, %q", c.in, pid, err, c.pid, c.says)
		}
	}
}

func TestSomePIDs(t *testing.T) {
	var p somePIDs
	for _, s := range []string{"1,2", "2", "3", "4 5", "5, 6\n"} {
		if err := p.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	if p.String() != "1 2 3 4 5 6" {
		t.Errorf("got %v", p)
	}
	for _, s := range []string{"7,", "7 x", "7 8,0"} {
		if err := p.Set(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

// Commands with PIDs as arguments accept -p as well.
func TestPIDFlag(t *testing.T) {
	pid := pidOf(spin(t))
	for _, args := range [][]string{{"stack", "-p", pid}, {"threads", "--pid=" + pid}, {"top", "--once", "-d", "200ms", "-p", pid}, {"doctor", "-p", pid}} {
		if r := sliver(t, t.TempDir(), args...); r.status != 0 {
			t.Errorf("%q: status %d, %q", args, r.status, r.errors)
		}
	}
}
