// Package config reads the configuration file of sliver watch: YAML with the names of the
// command's flags as keys, and a list of triggers. Errors give the position in the file.
// The caller interprets the settings.
package config

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sliverprof/sliver/watch/trigger"
)

// Setting is one key with a value; a key with a list has one Setting per item.
type Setting struct {
	Key, Value string
	Line       int
}

// File is the content of a configuration file.
type File struct {
	Settings []Setting
	Rules    []*trigger.Rule
}

// maxSize limits a file, in bytes: hand-written files are smaller, and aliases in a
// larger one could expand without limit.
const maxSize = 1 << 20

// Parse parses b.
func Parse(b []byte) (*File, error) {
	if len(b) > maxSize {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(b), maxSize)
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return &File{}, nil // an empty file
	case err != nil:
		return nil, errors.New(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: "))
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line 1: not a mapping of names to values")
	}
	f := &File{}
	seen := map[string]bool{}
	m := doc.Content[0]
	for i := 0; i+1 < len(m.Content); i += 2 {
		k, v := m.Content[i], m.Content[i+1]
		if seen[k.Value] {
			return nil, fmt.Errorf("line %d: %q is there twice", k.Line, k.Value)
		}
		seen[k.Value] = true
		var err error
		if k.Value == "triggers" {
			err = f.triggers(v)
		} else {
			err = f.setting(k, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *File) setting(k, v *yaml.Node) error {
	if k.Value == "trigger" {
		return fmt.Errorf("line %d: unknown setting trigger; use the list triggers", k.Line)
	}
	items := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		items = v.Content
	}
	for _, x := range items {
		if x.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: %s has no plain value", x.Line, k.Value)
		}
		f.Settings = append(f.Settings, Setting{k.Value, x.Value, k.Line})
	}
	return nil
}

// triggers parses a list. Each item has one kind of trigger with its value, and its
// options.
func (f *File) triggers(v *yaml.Node) error {
	if v.Kind != yaml.SequenceNode {
		return fmt.Errorf("line %d: triggers is not a list; begin each trigger with \"- \"", v.Line)
	}
	for _, item := range v.Content {
		if item.Kind != yaml.MappingNode {
			return fmt.Errorf("line %d: a trigger is a name and a value, such as \"stall: 5s\"", item.Line)
		}
		var kind trigger.Kind
		value, line := "", item.Line
		var options []string
		for i := 0; i+1 < len(item.Content); i += 2 {
			k, x := item.Content[i], item.Content[i+1]
			if x.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: %s has no plain value", x.Line, k.Value)
			}
			// threads is both a kind of trigger and an option of other kinds.
			if c := trigger.Kind(k.Value); slices.Contains(trigger.Kinds(), c) && (kind == "" || c != trigger.Threads) {
				if kind != "" {
					return fmt.Errorf("line %d: %s and %s are two triggers; begin each with \"- \"", k.Line, kind, c)
				}
				kind, value, line = c, x.Value, k.Line
				continue
			}
			options = append(options, k.Value+"="+x.Value)
		}
		if kind == "" {
			if len(item.Content) == 0 {
				return fmt.Errorf("line %d: missing trigger; use one of %s", item.Line, names())
			}
			return fmt.Errorf("line %d: unknown trigger %s; use one of %s", item.Line, item.Content[0].Value, names())
		}
		if b, ok := map[string]string{"true": "yes", "false": "no"}[value]; ok && kind == trigger.Crash {
			value = b
		}
		r, err := trigger.Parse(kind, strings.Join(append([]string{value}, options...), ","))
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		f.Rules = append(f.Rules, r)
	}
	if len(f.Rules) > trigger.MaxRules {
		return fmt.Errorf("line %d: %d triggers are too many; use up to %d", v.Line, len(f.Rules), trigger.MaxRules)
	}
	return nil
}

func names() string {
	var all []string
	for _, k := range trigger.Kinds() {
		all = append(all, string(k))
	}
	return strings.Join(all, ", ")
}
