package policy

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// countsThings matches a number with a noun in the plural. A number of one makes such a text wrong.
var countsThings = regexp.MustCompile(`([a-z]+ )?%d ((?:[a-z-]+ )?[a-z]+s)\b`)

// noNouns are words that end like a plural after a number, units, and nouns that are two at least.
var noNouns = regexp.MustCompile(`\b(is|was|has|does|its|times|bytes|ms|ns|this|pass|levels|pixels|pieces|entries|loaders|dumps)$|^(is|was|has|does|times|of|in|to|at|by|from|since|that|compressed|ns|bytes) `)

// limits are words before a number that is a limit, and not a count.
var limits = regexp.MustCompile(`^(than|most|to|first|allows|takes|of|process|task|thread|line|byte) $`)

// errorFunctions make errors, whose numbers are mostly those of damaged data.
var errorFunctions = regexp.MustCompile(`^(Errorf|usagef|bad|damaged|fail|find|miss|Fatalf|Logf|problem)$`)

// TestCountsHavePlurals: a number of things is written by package plural, so that one thing is in the singular.
func TestCountsHavePlurals(t *testing.T) {
	for _, f := range files(t) {
		if f.test || !shown(f.dir) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if errorFunctions.MatchString(called(call)) {
				return false
			}
			for _, a := range call.Args {
				lit, ok := a.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					continue
				}
				for _, m := range countsThings.FindAllStringSubmatch(text, -1) {
					if !noNouns.MatchString(m[2]) && !limits.MatchString(m[1]) {
						t.Errorf("%s: %q with a number of 1: use plural.Of", f.fset.Position(lit.Pos()), m[0])
					}
				}
			}
			return true
		})
	}
}

// shown reports whether texts of a package are for users.
func shown(dir string) bool {
	for _, p := range []string{"cmd/sliver", "export", "session", "heap", "trace", "query", "watch", "iowatch", "symbol", "wait"} {
		if dir == p || strings.HasPrefix(dir, p+"/") {
			return true
		}
	}
	return false
}

// called returns the last name of what a call calls.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
