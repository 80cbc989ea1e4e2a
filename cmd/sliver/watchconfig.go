package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/watch"
	"github.com/sliverprof/sliver/watch/config"
	"github.com/sliverprof/sliver/watch/trigger"
)

// maxConfig limits the file of --config, in bytes.
const maxConfig = 1 << 20

// readConfig reads the file of --config.
func (f *watchFlags) readConfig() (*config.File, error) {
	if f.config == "" {
		return &config.File{}, nil
	}
	b, err := safefile.ReadNamed(f.config, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	c, err := config.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.config, err)
	}
	return c, nil
}

// configure sets the flags that are in the file and not on the command line, and returns
// the file's triggers. command: a command was given, which is the target.
func (f *watchFlags) configure(command bool) ([]*trigger.Rule, error) {
	f.targeted = command
	c, err := f.readConfig()
	if err != nil {
		return nil, err
	}
	return c.Rules, f.apply(c)
}

// apply sets flags from a file. Flags on the command line take precedence, and if they
// give the targets, those of the file are ignored.
func (f *watchFlags) apply(c *config.File) error {
	typed := map[string]bool{}
	f.fs.Visit(func(x *pflag.Flag) { typed[currentName(x)] = true })
	typed["interval"] = typed["interval"] || typed["rate"]
	typed["rate"] = typed["interval"]
	for _, key := range whoFlags {
		f.targeted = f.targeted || typed[key]
	}
	for _, s := range c.Settings {
		x := f.fs.Lookup(s.Key)
		if x == nil || s.Key == "config" || s.Key == "help" || f.ruleFlag(s.Key) {
			more := ""
			if x != nil && f.ruleFlag(s.Key) {
				more = "; triggers go into the list triggers"
			}
			return fmt.Errorf("%s: line %d: unknown setting %q%s", f.config, s.Line, s.Key, more)
		}
		if typed[currentName(x)] || f.targeted && slices.Contains(whoFlags, s.Key) {
			continue
		}
		if err := f.fs.Set(s.Key, s.Value); err != nil {
			if cause := errors.Unwrap(err); cause != nil {
				err = cause
			}
			return fmt.Errorf("%s: line %d: %s: %s", f.config, s.Line, s.Key, parsing.ReplaceAllString(err.Error(), ""))
		}
	}
	return nil
}

// whoFlags give the targets.
var whoFlags = []string{"pid", "name", "unit", "cgroup"}

func (f *watchFlags) ruleFlag(name string) bool {
	for _, r := range trigger.Subjects() {
		if r.Flag == name || name == "on-crash" || name == "on-call" {
			return true
		}
	}
	return false
}

// allRules returns the rules of the file and of the command line, or the default ones. A
// crash is always kept unless disabled: its history cannot be recorded later.
func (f *watchFlags) allRules(rules []*trigger.Rule) ([]*trigger.Rule, error) {
	for _, r := range trigger.Subjects() {
		for _, text := range *f.rules[r.Kind] {
			x, err := trigger.Parse(r.Kind, text)
			if err != nil {
				return nil, usagef("watch", "%v", err)
			}
			rules = append(rules, x)
		}
	}
	if f.none {
		if len(rules) > 0 {
			return nil, usagef("watch", "both --no-triggers and triggers are given; choose one")
		}
		return nil, nil
	}
	some := slices.ContainsFunc(rules, func(r *trigger.Rule) bool { return !r.Off })
	crash := slices.ContainsFunc(rules, func(r *trigger.Rule) bool { return r.Kind == trigger.Crash })
	for _, d := range defaultRules {
		if d.kind == trigger.Crash && crash || d.kind != trigger.Crash && some {
			continue
		}
		x, err := trigger.Parse(d.kind, d.text)
		if err != nil {
			return nil, err
		}
		rules = append(rules, x)
	}
	return rules, nil
}

// reload reads the file again: its triggers, and the recipients of notifications.
func (f *watchFlags) reload(w *watch.Watcher, log *slog.Logger) {
	c, err := f.readConfig()
	var rules []*trigger.Rule
	n := f.notify()
	if err == nil {
		rules, err = f.allRules(c.Rules)
	}
	if err == nil {
		for _, s := range c.Settings {
			switch s.Key {
			case "exec":
				n.Exec = s.Value
			case "webhook":
				n.Webhook = s.Value
			}
		}
		err = w.Reload(rules, n)
	}
	if err != nil {
		log.Error("the configuration stays as it was", "error", oneLine(err))
	}
}
