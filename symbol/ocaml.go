package symbol

import "strings"

// isOCaml reports whether s is the linkage name of an OCaml function: "caml", the module, whose
// name starts with a capital letter, two underscores (5.1: a dot), the function and a number
// (asmcomp/compilenv.ml). The runtime's own functions, caml_…, are C.
func isOCaml(s string) bool {
	return len(s) > 5 && strings.HasPrefix(s, "caml") && s[4] >= 'A' && s[4] <= 'Z' && (strings.Contains(s, "__") || strings.IndexByte(s, '.') > 0)
}

// ofOCaml returns the source name for a linkage name: Stdlib.List.map for
// camlStdlib__List__map_265. Characters other than letters and digits are encoded as
// "$" and two hexadecimal digits.
func ofOCaml(s string) string {
	s = s[len("caml"):]
	if i := strings.LastIndexByte(s, '_'); i > 0 && i+1 < len(s) && strings.Trim(s[i+1:], "0123456789") == "" {
		s = s[:i]
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '$' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0:
			b.WriteByte(byte(unhex(s[i+1])<<4 | unhex(s[i+2])))
			i += 2
		case s[i] == '_' && i > 0 && i+2 < len(s) && s[i+1] == '_' && s[i+2] != '_':
			b.WriteByte('.')
			i++
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
