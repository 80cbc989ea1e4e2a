// Package truth holds recordings against programs that account for their own CPU time. It has tests only;
// the estimator that they check is described in docs/notes/estimator.md.
//
//	go test ./internal/truth                        # short: some programs, one recording each
//	SLIVER_LONG=1 go test ./internal/truth -v -timeout 3h   # all programs, 20 recordings each
package truth
