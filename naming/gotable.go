package naming

import (
	"io"

	"github.com/sliverprof/sliver/symbol"
)

// GoTable opens the Go runtime's own table of functions of the file in r, for
// symbol.Options; goarch is the machine of its code.
func GoTable(r io.ReaderAt, goarch string) (symbol.GoTable, error) { return goTable(r, archOf(goarch)) }
