package ask

import "strings"

// One reports whether a text is one statement of SQL at most. The driver runs all of
// several, and answers with the last.
func One(text string) bool {
	ended := false
	for i := 0; i < len(text); {
		n := token(text[i:])
		switch c := text[i]; {
		case c == ';':
			ended = true
		case n == 1 && strings.IndexByte(" \t\r\n\f", c) >= 0, n > 1 && (c == '-' || c == '/'): // space, a comment
		case ended:
			return false
		}
		i += n
	}
	return true
}

// token is the length of a quoted text or a comment, else 1: in these a semicolon is
// none. See https://sqlite.org/lang_comment.html and https://sqlite.org/lang_keywords.html.
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
