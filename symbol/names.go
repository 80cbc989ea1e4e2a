package symbol

import (
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/sliverprof/sliver/symbol/dlang"
	"github.com/sliverprof/sliver/symbol/swift"
)

// Bounds on hostile and absurd names, in bytes.
const (
	maxMangled = 1 << 15 // longer ones are not demangled
	longLog    = 16      // demangled names are truncated at 1<<longLog
	maxShort   = 160     // at this length template arguments are omitted
	maxFunc    = 1 << 14 // a name that is not demangled is truncated here
)

// isMangled reports whether s looks like a mangled C++, Rust, D or Swift name.
func isMangled(s string) bool {
	return dlang.Is(s) || swift.Is(s) || isOCaml(s) || strings.HasPrefix(s, "_Z") || strings.HasPrefix(s, "_R") || strings.HasPrefix(s, "__Z") || strings.HasPrefix(s, "___Z")
}

// Demangle returns the readable form of a C++, Rust, D or Swift name. With short it
// omits parameters, compilers' clone suffixes, modules of Swift and, if a name is still
// very long, template arguments. It returns other names, and malformed ones, unchanged.
func Demangle(name string, short bool) string {
	if s, ok := demangled(name, short, new(itanium)); ok {
		return s
	}
	return cut(name)
}

func cut(s string) string {
	if len(s) > maxFunc {
		return s[:maxFunc] + "…"
	}
	return s
}

// demangled returns the readable form of a mangled name, using cxx if cxx supports it.
func demangled(name string, short bool, cxx *itanium) (s string, ok bool) {
	if !isMangled(name) || len(name) > maxMangled {
		return "", false
	}
	// The library is careful, but names come from files: no panic that they cause may
	// end the dump.
	defer func() {
		if recover() != nil {
			s, ok = "", false
		}
	}()
	switch {
	case dlang.Is(name):
		return ofD(name, short)
	case isOCaml(name):
		return cut(ofOCaml(name)), true
	case swift.Is(name):
		s, err := swift.Demangle(name, swift.Options{Short: short})
		return s, err == nil
	}
	if !short {
		s, err := demangle.ToString(name, demangle.MaxLength(longLog))
		return s, err == nil && s != ""
	}
	if strings.HasPrefix(name, "_R") || strings.Contains(name, "17h") { // may be Rust's, which has no tree
		s, err := demangle.ToString(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoClones, demangle.MaxLength(longLog))
		if err == nil && len(s) > maxShort {
			if t, err := demangle.ToString(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams,
				demangle.NoClones, demangle.MaxLength(longLog)); err == nil && t != "" {
				s = t
			}
		}
		return s, err == nil && s != ""
	}
	if s, ok := cxx.shortest(name); ok {
		return s, true
	}
	tree, err := demangle.ToAST(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoClones, demangle.MaxLength(longLog))
	if err != nil {
		return "", false
	}
	s = demangle.ASTToString(tree, demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(longLog))
	if len(s) > maxShort {
		if t := demangle.ASTToString(tree, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams,
			demangle.MaxLength(longLog)); t != "" {
			s = t
		}
	}
	return s, s != ""
}

// shortest is short, without template arguments if the name is still very long.
func (s *itanium) shortest(name string) (string, bool) {
	if !strings.HasPrefix(name, "_Z") {
		return "", false
	}
	full, ok := s.short(name, true)
	if ok && len(full) > maxShort {
		return s.short(name, false)
	}
	return full, ok
}

// ofD is demangled for D names.
func ofD(name string, short bool) (string, bool) {
	s, err := dlang.Demangle(name, dlang.Options{Params: !short})
	if err == nil && short && len(s) > maxShort {
		s, err = dlang.Demangle(name, dlang.Options{NoArgs: true})
	}
	return s, err == nil
}

// display selects the name to show for a function from its source name and its linkage
// name; either may be "".
func (f *File) display(name, linkage string) (fn, raw string) {
	if linkage == "" {
		linkage = name
	}
	key := linkage
	if !isMangled(linkage) {
		key = name + "\x00" + linkage
	}
	fn, ok := f.names[key]
	if !ok {
		fn = f.readable(name, linkage)
		if len(f.names) >= maxDemangled {
			clear(f.names)
		}
		f.names[key] = fn
	}
	if fn != linkage {
		raw = linkage
	}
	return fn, raw
}

func (f *File) readable(name, linkage string) string {
	if s, ok := demangled(linkage, !f.o.FullNames, &f.cxx); ok {
		return s
	}
	if name != "" && !qualifies(linkage, name) { // readable, and for other languages the only readable name
		linkage = name
	}
	if f.isGo {
		return f.goName(linkage)
	}
	if !f.o.FullNames {
		linkage = unclone(linkage)
	}
	return cut(linkage)
}

// qualifies reports whether a linkage name is more specific than the source name, and
// as readable: Zig's generic.Queue(u64).push for push.
func qualifies(linkage, name string) bool {
	return len(linkage) > len(name)+1 && linkage[len(linkage)-len(name)-1] == '.' && strings.HasSuffix(linkage, name)
}

// unclone removes the suffixes that compilers give to parts and variants of a C
// function.
func unclone(s string) string {
	for {
		i := strings.LastIndexByte(s, '.')
		if i <= 0 {
			return s
		}
		last := s[i+1:]
		switch {
		case last == "cold" || last == "part" || last == "isra" || last == "constprop" || last == "lto_priv" || last == "llvm":
		case last != "" && strings.Trim(last, "0123456789") == "" && strings.Contains(s[:i], "."):
		default:
			return s
		}
		s = s[:i]
	}
}

// goName makes a Go linker name readable: it contains dots in the last element of an
// import path as %2e, and its type arguments can be long.
func (f *File) goName(s string) string {
	if strings.IndexByte(s, '%') >= 0 {
		s = unescape(s)
	}
	if !f.o.FullNames {
		s = dropTypeArgs(s)
	}
	return cut(s)
}

// unescape reverses objabi.PathToPrefix of Go's cmd/internal.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// dropTypeArgs turns f[go.shape.int,…] into f[...].
func dropTypeArgs(s string) string {
	i := strings.IndexByte(s, '[')
	if i <= 0 || strings.HasPrefix(s, "type:") {
		return s
	}
	depth := 0
	for j := i; j < len(s); j++ {
		switch s[j] {
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				return s[:i] + "[...]" + dropTypeArgs(s[j+1:])
			}
		}
	}
	return s
}
