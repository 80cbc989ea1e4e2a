package trigger

import (
	"fmt"
	"strconv"
	"time"
)

// File: the target, or anyone, writes a file.
const File Kind = "file"

var file = Subject{
	Kind: File, Flag: "on-file", Help: "this file is written",
	value: func(r *Rule, v string) error {
		if r.Path = v; v == "" {
			return fmt.Errorf("write the path of a file")
		}
		return nil
	},
	check: (*Set).files,
}

// Written identifies the content of a file.
type Written struct {
	At   time.Time
	Size int64
}

// files evaluates a rule about a file.
func (s *Set) files(r *state, l *Look) (out []Fired) {
	if l.Files == nil {
		return nil
	}
	w := l.Files(r.Path)
	before := r.written
	r.written = &w
	if before == nil || *before == w || w == (Written{}) {
		return nil
	}
	return []Fired{{At: l.Now, Text: fmt.Sprintf("%s was written, %d bytes", r.Path, w.Size),
		Values: []Value{{"file", r.Path}, {"bytes", strconv.FormatInt(w.Size, 10)}}}}
}
