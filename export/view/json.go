package view

import "encoding/json"

// JSON returns s as a JSON string with quotes, after applying Text. It escapes '<', '>'
// and '&', so the string is safe in HTML.
func JSON(s string, limit int) []byte {
	b, err := json.Marshal(Text(s, limit))
	if err != nil { // a string never fails
		return []byte(`"?"`)
	}
	return b
}
