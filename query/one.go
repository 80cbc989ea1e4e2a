package query

import "strings"

// One reports whether text contains at most one SQL statement. The driver would run all of
// several and return the result of the last.
func One(text string) bool {
	ended := false
	for i := 0; i < len(text); {
		n := token(text[i:])
		switch c := text[i]; {
		case c == ';':
			ended = true
		case n == 1 && strings.IndexByte(" \t\r\n\f", c) >= 0, n > 1 && (c == '-' || c == '/'): // white space or a comment
		case ended:
			return false
		}
		i += n
	}
	return true
}

// token returns the length of the quoted text or comment at the start of s, otherwise 1. A
// semicolon in quotes or comments does not end a statement. See
// https://sqlite.org/lang_comment.html and https://sqlite.org/lang_keywords.html.
func token(s string) int {
	end := ""
	switch {
	case strings.HasPrefix(s, "--"):
		end = "\n"
	case strings.HasPrefix(s, "/*"):
		end = "*/"
	case s[0] == '\'' || s[0] == '"' || s[0] == '`':
		end = s[:1]
	case s[0] == '[':
		end = "]"
	default:
		return 1
	}
	from := 1
	if end == "*/" {
		from = 2
	}
	if n := strings.Index(s[from:], end); n >= 0 {
		return from + n + len(end)
	}
	return len(s)
}
