package query

import "testing"

func TestOne(t *testing.T) {
	for text, want := range map[string]bool{
		"":                              true,
		"select 1":                      true,
		"select 1;":                     true,
		"select 1; ;\n ":                true,
		"select 1; -- that is all":      true,
		"select 1; /* a; b */ ":         true,
		"select ';' || \";\" || `;`":    true,
		"select 'it''s; one'":           true,
		"select [a;b] from t":           true,
		"select 1 -- one; two\n + 1":    true,
		"select 1 /* ; */ + 1;":         true,
		"select 'never closed; select":  true,
		"select 1; select 2":            false,
		"select 1;select 2":             false,
		"select 1; -- two\nselect 2":    false,
		"select 1; /* two */ select 2;": false,
		"select 1;'":                    false,
		"; select 1":                    false,
	} {
		if got := One(text); got != want {
			t.Errorf("One(%q) = %v", text, got)
		}
	}
}

func FuzzOne(f *testing.F) {
	f.Add("select '--;' /* ; */; select 2")
	f.Fuzz(func(t *testing.T, text string) {
		if One(text) && !One(text+" ;") {
			t.Errorf("%q is one statement, and with its end it is not", text)
		}
	})
}
