package ask

import "strings"

// One reports whether a text is one statement of SQL at most. The driver runs all of
// several, and answers with the last.
func One(text string) bool {
	_, rest, more := strings.Cut(text[statement(text):], ";")
	return !more || strings.TrimSpace(rest[blank(rest):]) == ""
}

// statement is the length of what comes before the semicolon that ends a statement, or
// of all.
func statement(s string) int {
	for i := 0; i < len(s); {
		if s[i] == ';' {
			return i
		}
		i += token(s[i:])
	}
	return len(s)
}

// blank is the length of what says nothing: space, comments, semicolons.
func blank(s string) int {
	i := 0
	for i < len(s) {
		n := token(s[i:])
		if n == 1 && !strings.ContainsRune(" \t\r\n\f;", rune(s[i])) || n > 1 && s[i] != '-' && s[i] != '/' {
			break
		}
		i += n
	}
	return i
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
