package web

//sliver:layer live

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOpenAPI compares the OpenAPI file with the code: every field of a query, of the
// hello and of the status, and every path.
func TestOpenAPI(t *testing.T) {
	b, err := os.ReadFile("../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	fields := func(v any) (out []string) {
		ty := reflect.TypeOf(v)
		for i := range ty.NumField() {
			name, _, _ := strings.Cut(ty.Field(i).Tag.Get("json"), ",")
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	properties := func(schema string) (out []string) {
		_, s, ok := strings.Cut(doc, "\n    "+schema+":\n")
		if !ok {
			t.Fatalf("no schema %s", schema)
		}
		if i := regexp.MustCompile(`(?m)^ {0,4}\S`).FindStringIndex(s); i != nil {
			s = s[:i[0]]
		}
		for _, m := range regexp.MustCompile(`(?m)^ {8}([a-z_0-9]+):`).FindAllStringSubmatch(s, -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return out
	}
	for name, v := range map[string]any{"Query": query{}, "Hello": helloMessage{}, "Status": statusMessage{}} {
		if got, want := properties(name), fields(v); !slices.Equal(got, want) {
			t.Errorf("%s has %v in the file, %v in the code", name, got, want)
		}
	}
	src, err := os.ReadFile("http.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`HandleFunc\("(GET|POST) (/\S+)"`).FindAllStringSubmatch(string(src), -1) {
		_, s, ok := strings.Cut(doc, "\n  "+m[2]+":\n")
		if !ok || !strings.HasPrefix(strings.TrimSpace(s), strings.ToLower(m[1])+":") {
			t.Errorf("%s %s is not in the file", m[1], m[2])
		}
	}
	md, err := os.ReadFile("../docs/web-api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range regexp.MustCompile(`op: \{ type: string, enum: \[([a-z, ]+)\]`).FindAllStringSubmatch(doc, -1) {
		for _, o := range strings.Split(op[1], ", ") {
			if !strings.Contains(string(md), "`"+o+"`") {
				t.Errorf("op %s is not in docs/web-api.md", o)
			}
		}
	}
}
