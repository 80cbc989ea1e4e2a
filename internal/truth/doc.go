// Package truth compares recordings with programs that account for their own CPU time. It contains only
// tests; docs/notes/estimator.md describes the estimator that they check.
//
//	go test ./internal/truth                        # short: some programs, one recording each
//	SLIVER_LONG=1 go test ./internal/truth -v -timeout 3h   # all programs, 20 recordings each
package truth
