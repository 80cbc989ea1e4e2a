package config

import (
	"slices"
	"strings"
	"testing"
)

const good = `
# a comment
keep: 30s
max-dumps: 20
output: [.pb.gz, .pftrace]
journal: true
triggers:
  - stall: 5s
    threads: all
    cool: 5m
  - slow: handle_request>50ms
    times: 3/1m
  - threads: 80%
    checks: 5
  - crash: true
  - crash: no
  - crash: false
`

func TestParse(t *testing.T) {
	f, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := []Setting{{"keep", "30s", 3}, {"max-dumps", "20", 4}, {"output", ".pb.gz", 5}, {"output", ".pftrace", 5}, {"journal", "true", 6}}
	if !slices.Equal(f.Settings, want) {
		t.Errorf("%v, want %v", f.Settings, want)
	}
	var rules []string
	for _, r := range f.Rules {
		rules = append(rules, r.String())
	}
	if got, want := strings.Join(rules, " | "), "stall 5s,threads=all,cool=5m | slow handle_request>50ms,times=3/1m | threads 80%,checks=5 | crash yes | crash no | crash no"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if f.Rules[0].Threads != "all" {
		t.Errorf("%+v", f.Rules[0])
	}
	for _, c := range []struct{ text, says string }{
		{"a: [b", "line 1"},
		{"- a", "line 1: not a mapping of names"},
		{"keep: 1s\nkeep: 2s", `"keep" is there twice`},
		{"trigger:\n  - stall: 1s", "line 1: unknown setting trigger; use the list triggers"},
		{"keep: {a: b}", "line 1: keep has no plain value"},
		{"triggers: 5", "line 1: triggers is not a list"},
		{"triggers:\n- stall", "line 2: a trigger is a name and a value"},
		{"triggers:\n- threads: main\n  stall: 5s", "line 3: threads and stall are two"},
		{"triggers:\n- frob: 1", "line 2: unknown trigger frob; use one of stall,"},
		{"triggers:\n- {}", "line 2: missing trigger; use one of stall,"},
		{"triggers:\n- stall: 5s\n- cpu: 5", `line 3: cpu "5": "5" is over 1; write 5% for percent`},
		{"triggers:\n- stall: 5s\n  frob: 1", "line 2: stall"},
		{"triggers:\n- stall: 5s\n  slow: f>1s", "two triggers"},
		{strings.Repeat("#", maxSize+1), "the limit is"},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v; want %q", c.text, err, c.says)
		}
	}
	if f, err := Parse(nil); err != nil || len(f.Settings) > 0 {
		t.Errorf("an empty file: %v, %v", f, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &x [b]\nc: *x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err == nil && c == nil {
			t.Error("neither a file nor an error")
		}
	})
}
