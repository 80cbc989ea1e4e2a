package policy

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// languageKinds are the constants of package stack that name one language.
var languageKinds = []string{"KindGo", "KindJava", "KindPython", "KindJS", "KindRuby"}

// namesKinds lists the packages outside of stack and lang that may name a language's kind, and why. Others
// ask stack.Kind for a property.
var namesKinds = map[string]string{
	"unwind/gopcln":         "makes frames of Go from its tables",
	"session/internal/live": "makes frames of goroutines from Go's runtime",
	"wait":                  "semaphores of Go, of which a frame has the address",
	"wait/idle":             "rules for functions of the languages' own libraries, in one table; a language without a row needs none",
	"web/internal/synth":    "makes up a program",
	"internal/exporttest":   "makes up recordings",
}

// TestKindsAreProperties: adding a language does not touch packages outside of stack and lang.
func TestKindsAreProperties(t *testing.T) {
	used := map[string]bool{}
	for _, f := range files(t) {
		if f.test || f.dir == "stack" || strings.HasPrefix(f.dir, "lang/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(languageKinds, s.Sel.Name) {
				return true
			}
			if x, ok := s.X.(*ast.Ident); !ok || x.Name != "stack" {
				return true
			}
			used[f.dir] = true
			if namesKinds[f.dir] == "" {
				t.Errorf("%s names %s: ask stack.Kind for a property", f.fset.Position(s.Pos()), s.Sel.Name)
			}
			return true
		})
	}
	for dir, why := range namesKinds {
		if !used[dir] {
			t.Errorf("%s names no kind of a language any more (%s): remove the row", dir, why)
		}
	}
	if n := len(stack.Kinds()) - 2; n != len(languageKinds) { // without native code and the kernel
		t.Errorf("%d kinds of languages, and %d are looked for", n, len(languageKinds))
	}
}

// TestPageKnowsTheKinds: the page's own lists have the kinds of package stack.
func TestPageKnowsTheKinds(t *testing.T) {
	list := func(file, pattern string) []string {
		text, err := os.ReadFile(filepath.Join("..", "..", "web", "page", "src", file))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s: no list %s", file, pattern)
		}
		var words []string
		for _, w := range regexp.MustCompile(`'([^']*)'`).FindAllSubmatch(m[1], -1) {
			words = append(words, string(w[1]))
		}
		return words
	}
	var all, managed, named []string
	for _, k := range stack.Kinds() {
		all = append(all, k.String())
		title := k.Title()
		switch k {
		case stack.KindNative:
			title = "native code"
		case stack.KindKernel:
			title = "the kernel"
		}
		named = append(named, k.String()+" "+title)
		if k.Managed() {
			managed = append(managed, k.String())
		}
	}
	words := list("look.ts", `(?s)const kindWords[^=]*= \[(.*?)\];`)
	var pairs []string
	for i := 0; i+1 < len(words); i += 2 {
		pairs = append(pairs, words[i]+" "+words[i+1])
	}
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"look.ts: kindWords", pairs, named},
		{"model.ts: kindFill", list("model.ts", `Math\.max\(0, \[(.*)\]\.indexOf\(kind\)\)`), all},
		{"own.ts: machines", list("own.ts", `const machines = \[(.*)\];`), managed},
	} {
		slices.Sort(c.got)
		slices.Sort(c.want)
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s has %q, and package stack %q", c.what, c.got, c.want)
		}
	}
}
