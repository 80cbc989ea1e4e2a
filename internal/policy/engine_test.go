package policy

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// maxFields is the largest number of fields of a type in sampler. A type with more has several jobs.
const maxFields = 20

// stopping names what stops threads: sampler drives it through an interface.
var stopping = regexp.MustCompile(`(?i)ptrace|stopper|herd`)

// TestSamplerDrivesAnyEngine: package sampler knows no way to look at a thread. Its interfaces have all
// methods that it calls, so that a new engine's author finds them in one place, and its types are small.
func TestSamplerDrivesAnyEngine(t *testing.T) {
	seen := 0
	for _, f := range files(t) {
		if f.dir != "sampler" || f.test {
			continue
		}
		seen++
		for _, path := range f.imports(t) {
			own := strings.TrimPrefix(path, module+"/")
			if own == "target" || strings.HasPrefix(own, "engine") || strings.HasPrefix(own, "linux") || own == "syscall" {
				t.Errorf("%s imports %s: sampler drives an engine and knows none", f.path, own)
			}
		}
		for _, c := range f.ast.Comments {
			if stopping.MatchString(c.Text()) {
				t.Errorf("%v: a comment about ptrace: that belongs to engine/ptrace or target", f.fset.Position(c.Pos()))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				t.Errorf("%v: a type assertion: add the method to the interface", f.fset.Position(n.Pos()))
			case *ast.Ident:
				if stopping.MatchString(n.Name) {
					t.Errorf("%v: %s: sampler knows no way to stop a thread", f.fset.Position(n.Pos()), n.Name)
				}
			case *ast.StructType:
				if k := fields(n); k > maxFields {
					t.Errorf("%v: a type with %d fields, at most %d are allowed: name what belongs together", f.fset.Position(n.Pos()), k, maxFields)
				}
			}
			return true
		})
	}
	if seen == 0 {
		t.Fatal("no files of package sampler")
	}
}

// fields counts the fields of a struct type. An embedded type is one.
func fields(s *ast.StructType) (n int) {
	for _, x := range s.Fields.List {
		n += max(len(x.Names), 1)
	}
	return n
}

func TestFieldsAreCounted(t *testing.T) {
	s := &ast.StructType{Fields: &ast.FieldList{List: []*ast.Field{
		{Names: []*ast.Ident{ast.NewIdent("a"), ast.NewIdent("b")}, Type: ast.NewIdent("int")},
		{Type: ast.NewIdent("embedded")},
	}}}
	if n := fields(s); n != 3 {
		t.Errorf("%d fields of 3", n)
	}
}
