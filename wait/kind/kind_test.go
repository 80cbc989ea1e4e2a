package kind

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// constants returns the values of the package's constants of a type, by name.
func constants(t *testing.T, typ string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range []string{"kind.go", "lock.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); !ok || id.Name != typ || len(v.Values) == 0 {
					continue
				}
				lit, ok := v.Values[0].(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s is not a literal", v.Names[0])
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out[v.Names[0].Name] = text
			}
		}
	}
	return out
}

// TestRows: each constant has its own word and a row, and no row is without a constant.
func TestRows(t *testing.T) {
	for typ, has := range map[string]struct {
		rows int
		row  func(string) bool
	}{
		"Wait":  {len(waits), func(s string) bool { _, ok := waits[Wait(s)]; return ok }},
		"Lock":  {len(locks), func(s string) bool { _, ok := locks[Lock(s)]; return ok }},
		"Group": {len(classes), func(s string) bool { _, ok := classes[Group(s)]; return ok }},
	} {
		words := map[string]string{}
		for name, word := range constants(t, typ) {
			if other, ok := words[word]; ok {
				t.Errorf("%s and %s are both %q", name, other, word)
			}
			words[word] = name
			if !has.row(word) {
				t.Errorf("%s has no row", name)
			}
		}
		if len(words) != has.rows || len(words) == 0 {
			t.Errorf("%d constants of %s, %d rows", len(words), typ, has.rows)
		}
	}
}

// TestProperties: what one property says about a kind, another does not contradict.
func TestProperties(t *testing.T) {
	for w, x := range waits {
		if c := w.Group().Class(); (c == ClassIO) != x.file && w != WaitMemory && w != WaitEvent {
			t.Errorf("%q: class %d, named by a file %t", w, c, x.file)
		}
		if (w.Group().Class() == ClassIdle) != (w == WaitIdle) {
			t.Errorf("%q: class %d", w, w.Group().Class())
		}
	}
	for l, x := range locks {
		if x.shares && (x.inner || x.runtime) {
			t.Errorf("%q has no holders, and one is found", l)
		}
		if l.Group().Class() != ClassLock {
			t.Errorf("%q: class %d", l, l.Group().Class())
		}
		if w := l.Waker(); (w == WakerCall) != (l == LockNone) {
			t.Errorf("%q: waker %d", l, w)
		}
	}
	if w, l := Wait("unheard"), Lock("unheard"); w.Group() != GroupCall || w.Group().Class() != ClassOther || !l.Excludes() || l.Group() != GroupLock || l.Wait() != WaitLock || l.Waker() != WakerOwn {
		t.Error("a word without a row has properties of another kind")
	}
}
