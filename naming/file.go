package naming

import (
	"io"

	"github.com/sliverprof/sliver/symbol"
)

// File opens one file of a module that lies at path in the target, on a machine
// named as GOARCH does, for a few names now and then: it keeps little of what
// it decoded. Close it in the end.
func File(r io.ReaderAt, path, machine string, o Options) (*symbol.File, error) {
	return symbol.Open(r, symbol.Options{Path: path, Finder: o.Finder, FullNames: o.FullNames, Budget: liveBudget,
		GoTable: func(r io.ReaderAt) (symbol.GoTable, error) { return goTable(r, archOf(machine)) }})
}
