package trigger

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// general are the options of all kinds of rules.
var general = []string{"times", "cool"}

// option parses one option of the rule.
func (r *Rule) option(key, v string) error {
	if key == "cool-down" {
		key = "cool"
	}
	has := Options(r.Kind)
	parse := optionParsers[key]
	if parse == nil || !slices.Contains(has, key) {
		return fmt.Errorf("%s has no such option; it has %s", r.Kind, strings.Join(has, ", "))
	}
	return parse(r, v)
}

// Options returns the option names of a kind of rule.
func Options(k Kind) (names []string) {
	if s := subjectOf(k); s != nil {
		names = append(names, s.options...)
	}
	return append(names, general...)
}

// optionParsers are the options by name. Which kinds have one, their Subjects say.
var optionParsers = map[string]func(r *Rule, v string) error{
	"cool": func(r *Rule, v string) (err error) {
		if r.CoolDown, err = time.ParseDuration(v); err != nil || r.CoolDown < 0 {
			return fmt.Errorf("invalid time %q (example: 5m)", v)
		}
		return nil
	},
	"times": func(r *Rule, v string) (err error) {
		n, within, ok := strings.Cut(v, "/")
		if r.Times, err = count(n, maxTimes); err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%q lacks a time; write for example 3/1m", v)
		}
		r.Within, err = duration(within)
		return err
	},
	"threads": func(r *Rule, v string) error {
		if r.Threads = v; v == "" {
			return fmt.Errorf("write main, all, or a name with *")
		}
		if _, err := path.Match(v, ""); err != nil {
			return fmt.Errorf("the pattern %q cannot be read", v)
		}
		return nil
	},
	"checks": func(r *Rule, v string) (err error) {
		r.Checks, err = count(v, maxChecks)
		return err
	},
	"every": func(r *Rule, v string) (err error) {
		if r.Every, err = duration(v); err == nil && r.Every < minEvery {
			err = fmt.Errorf("%v is too short; use %v or more", r.Every, minEvery)
		}
		return err
	},
	"loop":   (*Rule).loopOption,
	"heap":   (*Rule).heapOption,
	"of":     (*Rule).ofOption,
	"slower": (*Rule).slower,
}
