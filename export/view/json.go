package view

import "encoding/json"

// JSON is s as a JSON string with its quotes. Text's rules apply first;
// '<', '>' and '&' are escaped, so that the string may stand in HTML.
func JSON(s string, limit int) []byte {
	b, err := json.Marshal(Text(s, limit))
	if err != nil { // no string gives one
		return []byte(`"?"`)
	}
	return b
}
