package policy

import (
	"go/ast"
	"os"
	"path/filepath"
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
	"session/methods":       "traces by JFR, which only Java has",
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

// pageNames are the kinds that the page's sources may name, by file, and why.
var pageNames = map[string]string{
	"own.ts go": "the packages of its standard library are known by the function's file",
}

// TestPageNamesNoKind: a new language does not touch the page, which reads kinds.json (TestPageKinds of package web).
func TestPageNamesNoKind(t *testing.T) {
	all, err := filepath.Glob(filepath.Join("..", "..", "web", "page", "src", "*.ts"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no sources of the page: %v", err)
	}
	used := map[string]bool{}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range stack.Kinds() {
			if k == stack.KindNative || k == stack.KindKernel || !strings.Contains(string(text), "'"+k.String()+"'") {
				continue
			}
			name := filepath.Base(file) + " " + k.String()
			if used[name] = true; pageNames[name] == "" {
				t.Errorf("%s names a kind: kinds.json has its properties", name)
			}
		}
	}
	for name, why := range pageNames {
		if !used[name] {
			t.Errorf("%s is named no more (%s): remove the row", name, why)
		}
	}
}
