package methods

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/sliverprof/sliver/calls"
)

// pattern chooses methods by the name of their class, and theirs. The name of a class without its package is looked up
// among the classes that are loaded.
type pattern struct {
	text   string // as it was given
	class  string // "": any class
	method string // "": all of the class
	glob   *regexp.Regexp
}

// parse reads a pattern that was one for native functions first.
func parse(p *calls.Pattern) (pattern, error) {
	out := pattern{text: p.String()}
	name := out.text
	fail := func(why string) (pattern, error) {
		return out, fmt.Errorf("function pattern %q: %s", out.text, why)
	}
	if n := len(name); n > 1 && name[0] == '/' && name[n-1] == '/' {
		return fail("Java methods are chosen by name, not by a regular expression; use Class::method or package.Class::method")
	}
	class, method, found := strings.Cut(name, "::")
	if !found {
		i := strings.LastIndexByte(name, '.')
		class, method = name[:max(i, 0)], name[i+1:]
	}
	if method == "*" {
		method = ""
	}
	switch {
	case strings.Contains(strings.TrimPrefix(name, class+"::"), ":"):
		return fail("a Java method is Class::method or package.Class::method")
	case strings.ContainsAny(method, "*?"):
		return fail("the method of a class is a whole name or *")
	case strings.Trim(class, "*.") == "" && method == "":
		return fail("name a class or a method")
	}
	if strings.Trim(class, "*") == "" {
		class = "" // any class with a method of that name
	}
	out.class, out.method = class, method
	if !safe(strings.NewReplacer("*", "", "?", "").Replace(class)) || !safe(method) {
		return fail("not the name of a Java method")
	}
	if strings.ContainsAny(class, "*?") {
		text := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(class))
		re, err := regexp.Compile("^" + text + "$")
		if err != nil {
			return out, fmt.Errorf("function pattern %q: %w", out.text, err)
		}
		out.glob = re
	}
	return out, nil
}

// safe reports whether a name can be in a filter of JFR and in its file of settings.
func safe(name string) bool {
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_$.<>-", r) {
			return false
		}
	}
	return len(name) <= maxName
}

// maxName bounds the bytes of a class's or a method's name.
const maxName = 1 << 12

// lookup reports whether the classes that are meant depend on those that are loaded.
func (p *pattern) lookup() bool {
	return p.glob != nil || p.class != "" && !strings.Contains(p.class, ".")
}

// ofClass reports whether a class of a name as Java shows it is meant by a pattern that needs a lookup.
func (p *pattern) ofClass(class string) bool {
	if p.glob != nil {
		return p.glob.MatchString(class)
	}
	head, ok := strings.CutSuffix(class, p.class)
	return ok && (head == "" || strings.HasSuffix(head, "."))
}

// filter is what JFR is asked for: the methods of one name, or of a class.
type filter struct {
	class  string // whole name; "": any
	method string // "": all
}

func (f filter) String() string {
	if f.method == "" {
		return f.class
	}
	return f.class + "::" + f.method
}

func (f filter) match(class, method string) bool {
	return (f.class == "" || f.class == class) && (f.method == "" || f.method == method)
}

// maxFilters bounds the classes that patterns match.
const maxFilters = 500

// filters chooses from the classes that are loaded. A class that is not loaded yet is found by its whole name: missing
// lists the patterns to which that applies.
func filters(patterns []pattern, loaded []string) (out []filter, missing []string, err error) {
	seen := map[filter]bool{}
	add := func(f filter) {
		if !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	for i := range patterns {
		p := &patterns[i]
		if !p.lookup() {
			add(filter{p.class, p.method})
			continue
		}
		found := false
		for _, class := range loaded {
			if p.ofClass(class) {
				found = true
				add(filter{class, p.method})
			}
			if len(out) > maxFilters {
				return nil, nil, fmt.Errorf("the patterns match methods of more than %d classes; choose fewer", maxFilters)
			}
		}
		if found {
			continue
		}
		if p.glob != nil {
			return nil, nil, fmt.Errorf("no loaded class matches %s", p.text)
		}
		add(filter{p.class, p.method})
		missing = append(missing, p.text)
	}
	return out, missing, nil
}

// classes reads the names of loaded classes from the answer to VM.classes, once each.
func classes(answer string) []string {
	var out []string
	seen := map[string]bool{}
	for line := range strings.Lines(answer) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasPrefix(f[0], "0x") {
			continue
		}
		name := f[len(f)-1]
		if strings.HasPrefix(name, "[") || strings.Contains(name, "/") || !safe(name) || seen[name] {
			continue // arrays, hidden classes
		}
		seen[name] = true
		out = append(out, name)
	}
	return out
}
