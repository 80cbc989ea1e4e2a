package calls

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Pattern chooses functions by name:
//
//	handle_request        that function; of C++, Rust and Go also the end of a longer name behind
//	                      :: or . (request::handle, main.handle)
//	ns::*, parse_?        a glob over the whole name: * is any text, ? one character
//	/^get_(user|item)$/   a regular expression, anywhere in the name
//	file.c:func           the same as func, of that source file alone
//
// Names are compared without parameters and template arguments.
type Pattern struct {
	text string
	file string // base name or path end of the source file; "" any
	name string // exact, where re is nil
	re   *regexp.Regexp
}

// ParsePattern reads one.
func ParsePattern(s string) (Pattern, error) {
	p := Pattern{text: s}
	if s == "" {
		return p, fmt.Errorf("empty function pattern; use a name, a glob, /regexp/ or file.c:function")
	}
	if n := len(s); n > 1 && s[0] == '/' && s[n-1] == '/' {
		re, err := regexp.Compile(s[1 : n-1])
		if err != nil {
			return p, fmt.Errorf("function pattern %q: %w", s, err)
		}
		p.re = re
		return p, nil
	}
	name := s
	if i := fileEnd(s); i > 0 {
		p.file, name = s[:i], s[i+1:]
		if name == "" {
			return p, fmt.Errorf("function pattern %q: no function behind the file; use file.c:function", s)
		}
	}
	if strings.ContainsAny(name, "*?") {
		re, err := regexp.Compile("^" + globText(name) + "$")
		if err != nil {
			return p, fmt.Errorf("function pattern %q: %w", s, err)
		}
		p.re = re
		return p, nil
	}
	p.name = name
	return p, nil
}

// fileEnd is where a source file in front of a function ends: a single colon behind a name with a
// dot. 0: there is none.
func fileEnd(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] != ':' {
			continue
		}
		if s[i-1] == ':' || i+1 < len(s) && s[i+1] == ':' {
			return 0
		}
		if strings.Contains(path.Base(s[:i]), ".") {
			return i
		}
		return 0
	}
	return 0
}

func globText(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch r {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	return b.String()
}

// String is the pattern as it was given.
func (p *Pattern) String() string { return p.text }

// Core is a text that is part of the linker's name of each function that p can match, mangled or
// not; "" if there is none. It saves reading most names.
func (p *Pattern) Core() string {
	if p.re != nil {
		return ""
	}
	i := len(p.name)
	for i > 0 && wordChar(p.name[i-1]) {
		i--
	}
	return p.name[i:]
}

func wordChar(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// Match reports whether a function of that name, as the linker or a reader has it, is meant. The
// source file is compared by MatchFile.
func (p *Pattern) Match(name string) bool {
	if p.re != nil {
		return p.re.MatchString(name)
	}
	if name == p.name {
		return true
	}
	head, ok := strings.CutSuffix(name, p.name)
	return ok && (strings.HasSuffix(head, "::") || strings.HasSuffix(head, ".") || strings.HasSuffix(head, "/")) && wordChar(p.name[0])
}

// MatchFile reports whether a function of that source file is meant.
func (p *Pattern) MatchFile(file string) bool {
	if p.file == "" || file == p.file {
		return true
	}
	head, ok := strings.CutSuffix(file, p.file)
	return ok && strings.HasSuffix(head, "/")
}
