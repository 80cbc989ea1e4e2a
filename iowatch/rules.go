package iowatch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting is a threshold of a rule, by its name in the rule's text.
type setting struct {
	name string
	set  func(c *Config, value string) error
}

func span(at func(c *Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 || d > 24*time.Hour {
			return fmt.Errorf("invalid duration %q (example: 13ms)", v)
		}
		*at(c) = d
		return nil
	}
}

func number[T int | uint64](at func(c *Config) *T) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return fmt.Errorf("invalid number %q (example: 20)", v)
		}
		*at(c) = T(n)
		return nil
	}
}

// threads chooses between the main thread and all threads.
func threads(at func(c *Config) *bool) setting {
	return setting{"threads", func(c *Config, v string) error {
		if v != "main" && v != "all" {
			return fmt.Errorf("%q is none of main, all", v)
		}
		*at(c) = v == "main"
		return nil
	}}
}

// calls chooses between Matrix's operations and all.
func calls(c *Config, v string) error {
	if v != "matrix" && v != "all" {
		return fmt.Errorf("%q is none of matrix, all", v)
	}
	c.Own = v == "matrix"
	return nil
}

func settings(r Rule) []setting {
	slow := setting{"slow", span(func(c *Config) *time.Duration { return &c.Slow })}
	sum := setting{"sum", span(func(c *Config) *time.Duration { return &c.Sum })}
	gap := setting{"gap", span(func(c *Config) *time.Duration { return &c.Gap })}
	switch r {
	case MainIO:
		return []setting{slow, sum, gap, {"calls", calls}}
	case LoopIO:
		return []setting{slow, sum, gap}
	case SmallBuffer:
		return []setting{{"ops", number(func(c *Config) *uint64 { return &c.SmallOps })}, {"bytes", number(func(c *Config) *uint64 { return &c.SmallBytes })},
			{"run", span(func(c *Config) *time.Duration { return &c.SmallRun })}, gap, threads(func(c *Config) *bool { return &c.SmallMain })}
	case RepeatRead:
		return []setting{{"times", number(func(c *Config) *int { return &c.Repeats })}, {"within", span(func(c *Config) *time.Duration { return &c.RepeatGap })},
			{"run", span(func(c *Config) *time.Duration { return &c.RepeatRun })}, gap, threads(func(c *Config) *bool { return &c.RepeatMain })}
	case Leak:
		return []setting{{"age", span(func(c *Config) *time.Duration { return &c.LeakAge })}, {"count", number(func(c *Config) *int { return &c.LeakCount })}}
	case Fsync:
		return []setting{{"count", number(func(c *Config) *int { return &c.FsyncCount })}, {"within", span(func(c *Config) *time.Duration { return &c.FsyncWindow })},
			{"bytes", number(func(c *Config) *uint64 { return &c.FsyncBytes })}}
	case SyncWrite:
		return []setting{{"ops", number(func(c *Config) *uint64 { return &c.SyncOps })}, {"bytes", number(func(c *Config) *uint64 { return &c.SyncBytes })}}
	case SmallWrite:
		return []setting{{"count", number(func(c *Config) *uint64 { return &c.WriteCount })}, {"bytes", number(func(c *Config) *uint64 { return &c.WriteBytes })},
			{"within", span(func(c *Config) *time.Duration { return &c.WriteWindow })}}
	case RepeatOpen:
		return []setting{{"count", number(func(c *Config) *int { return &c.OpenCount })}, {"within", span(func(c *Config) *time.Duration { return &c.OpenWindow })}}
	case DNS:
		return []setting{{"slow", span(func(c *Config) *time.Duration { return &c.DNSSlow })}}
	case Churn:
		return []setting{{"count", number(func(c *Config) *int { return &c.ChurnCount })}, {"within", span(func(c *Config) *time.Duration { return &c.ChurnWindow })},
			{"life", span(func(c *Config) *time.Duration { return &c.ChurnLife })}}
	case CacheMiss:
		return []setting{{"count", number(func(c *Config) *uint64 { return &c.MissCount })}, {"time", span(func(c *Config) *time.Duration { return &c.MissTime })},
			{"within", span(func(c *Config) *time.Duration { return &c.MissWindow })}}
	case PageFault:
		return []setting{{"count", number(func(c *Config) *uint64 { return &c.FaultCount })}, {"time", span(func(c *Config) *time.Duration { return &c.FaultTime })},
			{"within", span(func(c *Config) *time.Duration { return &c.FaultWindow })}}
	}
	return nil
}

// Parse selects rules and sets thresholds. Each text is a list of names, "main-io,leak", or one name
// with settings, "small-buffer ops=50 bytes=8192". Without a text, all rules are on.
func Parse(texts []string) (Config, error) {
	c := Defaults()
	if len(texts) == 0 {
		return c, nil
	}
	clear(c.On)
	for _, text := range texts {
		names, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
		list := strings.Split(names, ",")
		for _, name := range list {
			r := Rule(name)
			if !slices.Contains(Rules(), r) {
				return c, fmt.Errorf("unknown rule %q; rules: %s", name, strings.Join(ruleNames(), ", "))
			}
			c.On[r] = true
		}
		fields := strings.Fields(rest)
		if len(fields) > 0 && len(list) > 1 {
			return c, fmt.Errorf("%q: settings belong to one rule", text)
		}
		for _, f := range fields {
			if err := c.set(Rule(names), f); err != nil {
				return c, fmt.Errorf("rule %s: %w", names, err)
			}
		}
	}
	return c, nil
}

func (c *Config) set(r Rule, text string) error {
	key, value, ok := strings.Cut(text, "=")
	var known []string
	for _, s := range settings(r) {
		if s.name == key && ok {
			if err := s.set(c, value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			return nil
		}
		known = append(known, s.name+"=")
	}
	return fmt.Errorf("unknown setting %q; settings: %s", text, strings.Join(known, " "))
}

func ruleNames() (names []string) {
	for _, r := range Rules() {
		names = append(names, string(r))
	}
	return names
}

// Enabled returns the rules that are on, in the order of Rules.
func (c *Config) Enabled() []Rule {
	return slices.DeleteFunc(Rules(), func(r Rule) bool { return !c.On[r] })
}

// clone copies the configuration.
func (c *Config) clone() Config {
	out := *c
	out.On = maps.Clone(c.On)
	return out
}
