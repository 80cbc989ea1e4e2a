package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// flagGroups are the headings of a command's flags, in the order of its help.
var flagGroups = []string{"What", "When", "Triggers", "Dumps", "Output", "Symbols", "Page", "Push", "Advanced", "Other"}

// flagInfo is what the help says about a flag beside its text. A flag's name means the same in
// every command, so there is one entry for each name.
type flagInfo struct {
	group string
	value string // the word for its value in usage lines; "" for a switch
}

var flagTable = map[string]flagInfo{
	"pid":      {"What", "PID"},
	"name":     {"What", "PATTERN"},
	"unit":     {"What", "SERVICE"},
	"cgroup":   {"What", "PATH"},
	"children": {"What", ""}, "no-children": {"What", ""},
	"max-processes": {"What", "N"},
	"process":       {"What", "LIST"}, "process-frames": {"Output", ""},
	"threads": {"What", "LIST"},
	"kinds":   {"What", "LIST"},
	"focus":   {"What", "REGEXP"},
	"filter":  {"What", "TEXT"},
	"on-cpu":  {"What", ""}, "off-cpu": {"What", ""}, "gil": {"What", ""},
	"idle":       {"What", ""},
	"goroutines": {"What", ""},
	"full":       {"What", ""},
	"addresses":  {"What", ""},
	"left":       {"What", ""},
	"function":   {"What", "PATTERN"},
	"slower":     {"What", "DURATION"},
	"list":       {"What", ""},
	"compare":    {"What", "FILE"},
	"dump":       {"What", "N"},
	"partial":    {"What", ""},
	"recorder":   {"What", "NAME"},

	"range":    {"When", "FROM..TO"},
	"duration": {"When", "DURATION"},
	"interval": {"When", "DURATION"},
	"rate":     {"When", "HZ"},
	"once":     {"When", ""},
	"timeout":  {"When", "DURATION"},
	"keep":     {"When", "DURATION"},

	"mem-limit":   {"Triggers", "SIZE"},
	"no-triggers": {"Triggers", ""},
	"config":      {"Triggers", "FILE"},

	"dir":       {"Dumps", "DIR"},
	"max-dumps": {"Dumps", "N"},
	"max-bytes": {"Dumps", "SIZE"},
	"exec":      {"Dumps", "COMMAND"},
	"webhook":   {"Dumps", "URL"},
	"journal":   {"Dumps", ""},

	"output": {"Output", "FILE"},
	"format": {"Output", "FORMAT"},
	"json":   {"Output", ""}, "html": {"Output", ""},
	"lines": {"Output", ""},
	"rows":  {"Output", "N"},
	"by":    {"Output", "MEASURE"},
	"sort":  {"Output", "COLUMN"},
	"quiet": {"Output", ""},
	"note":  {"Output", "TEXT"},
	"koom":  {"Output", "VERSION"},
	"share": {"Output", "PERCENT"},
	"rule":  {"Output", "RULE"}, "strip": {"Output", "RULE"},
	"keep-strings": {"Output", ""}, "redact-constants": {"Output", ""}, "class-names": {"Output", ""},
	"to":               {"Output", "FORM"},
	"remove":           {"Output", ""},
	"log":              {"Output", "FORMAT"},
	"fail-on-deadlock": {"Output", ""},

	"debug-dir":  {"Symbols", "DIR"},
	"full-names": {"Symbols", ""}, "debuginfod": {"Symbols", ""}, "no-symbol-cache": {"Symbols", ""},

	"web":            {"Page", "ADDRESS"},
	"web-token":      {"Page", "TOKEN"},
	"web-token-file": {"Page", "FILE"},
	"web-host":       {"Page", "HOST"},
	"open":           {"Page", ""},
	"http":           {"Page", "ADDRESS"},
	"http-token":     {"Page", "FILE"},

	"otlp": {"Push", "URL"}, "pyroscope": {"Push", "URL"}, "parca": {"Push", "URL"},
	"window":           {"Push", "DURATION"},
	"service":          {"Push", "NAME"},
	"resource":         {"Push", "NAME=VALUE"},
	"push-header":      {"Push", "HEADER"},
	"push-header-file": {"Push", "FILE"},
	"spool":            {"Push", "DIR"},
	"spool-max":        {"Push", "MB"},
	"metrics":          {"Push", "ADDRESS"},

	"jitter":       {"Advanced", "PERCENT"},
	"samplers":     {"Advanced", "N"},
	"stop-policy":  {"Advanced", "POLICY"},
	"engine":       {"Advanced", "ENGINE"},
	"io":           {"What", "RULE"}, // a switch of record
	"io-rule":      {"What", "RULE"},
	"kernel":       {"What", "MODE"},
	"io-slower":    {"What", "DURATION"},
	"max-overhead": {"Advanced", "PERCENT"},
	"max-cpu":      {"Advanced", "PERCENT"},
	"yield":        {"Advanced", ""},
	"keep-bytes":   {"Advanced", "SIZE"},
	"ring-file":    {"Advanced", "DIR"},
	"trace":        {"What", "PATTERN"},
	"trace-engine": {"Advanced", "ENGINE"},
	"trace-limit":  {"Advanced", "LIMIT"},
	"max-memory":   {"Advanced", "SIZE"},
	"level":        {"Advanced", "LEVEL"},
	"temp":         {"Advanced", "DIR"},
	"way":          {"Advanced", "WAY"},
	"force":        {"Advanced", ""},
	"live":         {"What", ""},
	"holders":      {"What", "CLASS"},

	"help": {"Other", ""},
}

// retiredBy is the annotation of a flag's old name. Its value is what to use instead.
const retiredBy = "sliver_retired_by"

// retire keeps an old name of a flag for one release: it is not in the help, and its use prints
// one line.
func retire(fs *pflag.FlagSet, old, name string) {
	f := fs.Lookup(name)
	fs.AddFlag(&pflag.Flag{Name: old, Usage: f.Usage, Value: f.Value, DefValue: f.DefValue, NoOptDefVal: f.NoOptDefVal, Hidden: true,
		Annotations: map[string][]string{retiredBy: {"--" + name, name}}})
}

// retireShort keeps an old letter of a flag.
func retireShort(fs *pflag.FlagSet, letter, name string) {
	f := fs.Lookup(name)
	fs.AddFlag(&pflag.Flag{Name: letter, Shorthand: letter, Usage: f.Usage, Value: f.Value, DefValue: f.DefValue, Hidden: true,
		Annotations: map[string][]string{retiredBy: {"--" + name, name}}})
}

// retireAlone keeps a flag that has no other name, and says what to use instead.
func retireAlone(fs *pflag.FlagSet, old, instead string) {
	f := fs.Lookup(old)
	f.Hidden = true
	f.Annotations = map[string][]string{retiredBy: {instead}}
}

// currentName returns the flag's present name.
func currentName(f *pflag.Flag) string {
	if by := f.Annotations[retiredBy]; len(by) == 2 {
		return by[1]
	}
	return f.Name
}

// retired prints a line for each old name in use, and marks the flag of the new name as set.
func retired(fs *pflag.FlagSet, say func(string)) {
	var names []string
	fs.Visit(func(f *pflag.Flag) {
		if by := f.Annotations[retiredBy]; by != nil {
			dashes := "--"
			if f.Shorthand != "" {
				dashes = "-"
			}
			say(fmt.Sprintf("%s%s is deprecated, the next release removes it: use %s", dashes, f.Name, by[0]))
			names = append(names, by[1:]...)
		}
	})
	for _, name := range names {
		fs.Lookup(name).Changed = true
	}
}

// rate is the flag of an interval as samples per second.
type rate struct{ interval *time.Duration }

// registerInterval adds -i and -r.
func registerInterval(fs *pflag.FlagSet, interval *time.Duration, usual time.Duration) {
	fs.DurationVarP(interval, "interval", "i", usual, "time between two samples of a thread")
	fs.VarP(&rate{interval}, "rate", "r", "samples per second of a thread, instead of --interval")
	fs.Lookup("rate").DefValue = ""
}

// String is empty: the help shows the default of --interval.
func (r *rate) String() string { return "" }

// Type implements pflag.Value.
func (r *rate) Type() string { return "float" }

// Set accepts a positive number, with or without the unit Hz.
func (r *rate) Set(s string) error {
	number := strings.TrimSpace(s)
	if n := len(number) - len("hz"); n > 0 && strings.EqualFold(number[n:], "hz") {
		number = strings.TrimSpace(number[:n])
	}
	hz, err := strconv.ParseFloat(number, 64)
	if err != nil || !(hz > 0) || hz > 1e9 {
		return fmt.Errorf("invalid rate %q (example: 100)", s)
	}
	*r.interval = time.Duration(float64(time.Second)/hz + .5)
	return nil
}

// flagsElsewhere are flags of other profilers, and sliver's flags of the same meaning.
var flagsElsewhere = map[string]string{
	"F": "rate", "freq": "rate", "frequency": "rate", "hz": "rate", "hertz": "rate",
	"time": "duration", "seconds": "duration", "for": "duration", "period": "interval",
	"process": "pid", "tid": "threads", "thread": "threads", "file": "output", "out": "output",
}

// similar returns the flags that a mistyped name may mean, the likeliest first; at most three.
func similar(fs *pflag.FlagSet, name string) []*pflag.Flag {
	type match struct {
		f        *pflag.Flag
		distance int
	}
	var all []match
	fs.VisitAll(func(f *pflag.Flag) {
		switch d := distance(name, f.Name); {
		case f.Hidden:
		case flagsElsewhere[name] == f.Name:
			all = append(all, match{f, -1})
		case len(name) > 2 && strings.HasPrefix(f.Name, name):
			all = append(all, match{f, 0})
		case len(name) > 2 && d <= 2:
			all = append(all, match{f, d})
		}
	})
	slices.SortStableFunc(all, func(a, b match) int { return a.distance - b.distance })
	var out []*pflag.Flag
	for _, m := range all[:min(len(all), 3)] {
		out = append(out, m.f)
	}
	return out
}

// distance is the number of changed, added, removed or swapped bytes between a and b (the
// restricted Damerau-Levenshtein distance).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
