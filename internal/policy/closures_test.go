package policy

import (
	"go/ast"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// maxClosures is how many closures may contain each other. Deeper ones share variables that a reader
// has to look for: a type with methods names them.
const maxClosures = 3

func TestClosuresAreShallow(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads all files")
	for _, f := range files(t) {
		if f.test {
			continue
		}
		var open []ast.Node // nodes around the visited one
		level := 0
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if n == nil {
				if _, ok := open[len(open)-1].(*ast.FuncLit); ok {
					level--
				}
				open = open[:len(open)-1]
				return true
			}
			open = append(open, n)
			if _, ok := n.(*ast.FuncLit); ok {
				if level++; level > maxClosures {
					t.Errorf("%v: a closure at level %d, at most %d are allowed", f.fset.Position(n.Pos()), level, maxClosures)
				}
			}
			return true
		})
	}
}
