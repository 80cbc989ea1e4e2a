package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A flag means the same in every command: its name has one entry in the table, one letter, and
// one kind of value, and no letter belongs to two flags.
func TestFlagsMeanTheSameEverywhere(t *testing.T) {
	letters, shorthands, switches := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, c := range commands() {
		c.flagSet(nil).VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			in, ok := flagTable[f.Name]
			if !ok {
				t.Errorf("%s --%s is not in flagTable", c.name, f.Name)
				return
			}
			isSwitch := f.Value.Type() == "bool"
			if f.Name == "io" { // a switch of record, a trigger of watch
				return
			}
			if was, ok := switches[f.Name]; ok && was != isSwitch {
				t.Errorf("%s --%s: a switch in some commands only", c.name, f.Name)
			}
			switches[f.Name] = isSwitch
			if isSwitch != (in.value == "") {
				t.Errorf("%s --%s: its value is %q in flagTable, a %s", c.name, f.Name, in.value, f.Value.Type())
			}
			if was, ok := shorthands[f.Name]; ok && was != f.Shorthand {
				t.Errorf("%s --%s: -%s, elsewhere -%s", c.name, f.Name, f.Shorthand, was)
			}
			shorthands[f.Name] = f.Shorthand
			if f.Shorthand == "" {
				return
			}
			if was, ok := letters[f.Shorthand]; ok && was != f.Name {
				t.Errorf("%s -%s: --%s, elsewhere --%s", c.name, f.Shorthand, f.Name, was)
			}
			letters[f.Shorthand] = f.Name
		})
	}
	if letters["d"] != "duration" || letters["r"] != "rate" || letters["n"] != "rows" {
		t.Errorf("letters: %v", letters)
	}
}

// Old names of flags keep their effect, print one line each, and are not in the help.
func TestRetiredFlags(t *testing.T) {
	p := pidOf(spin(t))
	dir := t.TempDir()
	for _, c := range []struct{ args, old, now string }{
		{"threads --for 0s " + p, "--for", "--duration"},
		{"stack --native=off " + p, "--native", "--kinds no-native"},
		{"record -p " + p + " -d 50ms --groups 2 -o r.sliver", "--groups", "--samplers"},
		{"record -p " + p + " -d 50ms --stop running -o s.sliver", "--stop", "--stop-policy"},
		{"report r.sliver --top 3", "--top", "--rows"},
		{"export r.sliver --kernel -o r.svg", "--kernel", "--kinds all"},
	} {
		r := sliver(t, dir, strings.Fields(c.args)...)
		line := "sliver: " + c.old + " is deprecated, the next release removes it: use " + c.now + "\n"
		if r.status != 0 || strings.Count(r.errors, line) != 1 {
			t.Errorf("sliver %s: status %d, %q; want %q", c.args, r.status, r.errors, line)
		}
		command, _, _ := strings.Cut(c.args, " ")
		if h := sliver(t, dir, command, "--help"); strings.Contains(h.out, c.old+" ") {
			t.Errorf("sliver %s --help shows %s", command, c.old)
		}
	}
}

// --rate gives the interval, with or without a unit.
func TestRate(t *testing.T) {
	dir, p := t.TempDir(), pidOf(spin(t))
	if r := sliver(t, dir, "record", p, "-r", "250Hz", "-d", "100ms", "-o", "r.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	r := sliver(t, dir, "sql", "r.sliver", "select * from recording", "--format", "csv")
	if r.status != 0 || !strings.Contains(r.out, "4000000\n") && !strings.Contains(r.out, "4ms\n") {
		t.Errorf("%+v", r)
	}
}

// The help groups the flags and names their values, and its lines fit.
func TestHelpGroups(t *testing.T) {
	r := sliver(t, t.TempDir(), "record", "--help")
	at := 0
	for _, heading := range []string{"What", "When", "Output", "Symbols", "Page", "Push", "Advanced"} {
		i := strings.Index(r.out, "\n"+heading+":\n")
		if i < at {
			t.Errorf("record --help: heading %s at %d, after %d", heading, i, at)
		}
		at = i
	}
	for _, want := range []string{"-o, --output FILE ", "-p, --pid PID ", "-d, --duration DURATION ", "-r, --rate HZ ", "--web[=ADDRESS]"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("record --help lacks %q", want)
		}
	}
	for _, c := range commands() {
		r := sliver(t, t.TempDir(), c.name, "--help")
		for _, line := range strings.Split(r.out, "\n") {
			if n := len([]rune(line)); n > helpWidth {
				t.Errorf("%s --help: %d columns: %s", c.name, n, line)
			}
		}
	}
}

// TestCompletion asks as the shells' scripts do.
func TestCompletion(t *testing.T) {
	p := pidOf(spin(t))
	for _, c := range []struct{ args, want string }{
		{"record --inter", "--interval\ttime between"},
		{"ex", "export\tconvert"},
		{"export --format p", "pprof\t"},
		{"export --format p", "perfetto\t"},
		{"record -p ", p + "\t"},
		{"stack ", p + "\t"},
		{"completion f", "fish\n"},
		{"top --sort t", "total\n"},
	} {
		words := strings.Split("__complete "+c.args, " ")
		r := sliver(t, t.TempDir(), words...)
		if r.status != 0 || !strings.Contains("\n"+r.out, "\n"+c.want) {
			t.Errorf("%q: %q lacks %q (%s)", c.args, r.out, c.want, r.errors)
		}
	}
	if r := sliver(t, t.TempDir(), "__complete", "record", "--gro"); strings.Contains(r.out, "--groups") {
		t.Errorf("an old name is completed: %s", r.out)
	}
}

// docs/cli comes from the same source as the help, and says what it says.
func TestCommandPagesAreCurrent(t *testing.T) {
	pages, err := docPages("markdown")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("..", "..", "docs", "cli")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if pages[f.Name()] == "" {
			t.Errorf("docs/cli/%s has no command", f.Name())
		}
	}
	for name, text := range pages {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(b) != text {
			t.Errorf("docs/cli/%s differs (%v): go run ./cmd/sliver %s markdown docs/cli", name, err, docsCommand)
		}
	}
}

// man(1)'s formatter reads the pages without a warning, and shows every flag.
func TestManPages(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is missing: it formats the pages")
	}
	dir := t.TempDir()
	if err := writeDocs([]string{"man", dir}); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		cmd := exec.Command(groff, "-man", "-Tascii", "-ww", "-P-cbou", filepath.Join(dir, "sliver-"+c.name+".1"))
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || errs.String() != "" {
			t.Errorf("%s: %v: %s", c.name, err, errs.String())
		}
		c.flagSet(nil).VisitAll(func(f *pflag.Flag) {
			if shown := strings.Contains(string(out), "--"+f.Name); !f.Hidden && !shown {
				t.Errorf("sliver-%s.1 lacks --%s", c.name, f.Name)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"treads", "threads", 1}, {"recrod", "record", 1}, {"rate", "date", 1}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
