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
		{"", 0, "is empty: does the program run?"},
		{"  ", 0, "is empty"},
		{"-d", 0, `"-d" follows`},
		{"--duration", 0, `"--duration" follows`},
		{"-7", 0, `"-7" is no process number`},
		{"0", 0, `"0" is no process number`},
		{"12 13", 0, "give one process"},
		{"1.5", 0, `"1.5" is no process number`},
		{"99999999999999999999", 0, "is no process number"},
		{"redis-server", 0, "'pgrep -l redis-server' finds it"},
		{"a;b", 0, `"a;b" is no process number`},
		{"a\nb", 0, "is no process number"},
	} {
		pid, err := parsePID(c.in)
		if c.says == "" && (err != nil || pid != c.pid) || c.says != "" && (err == nil || pid != 0 || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q: %d, %v; want %d, %q", c.in, pid, err, c.pid, c.says)
		}
	}
}

func TestSomePIDs(t *testing.T) {
	var p somePIDs
	for _, s := range []string{"1,2", "2", "3"} {
		if err := p.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	if p.String() != "1 2 3" {
		t.Errorf("got %v", p)
	}
	if err := p.Set("4,"); err == nil {
		t.Error("an empty number was taken")
	}
}
