package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/trace"
)

// ioOfRecord are the flags of record for I/O operations.
type ioOfRecord struct {
	on     bool
	rules  []string
	slower time.Duration

	config iowatch.Config
}

func (f *ioOfRecord) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.on, "io", false, "record I/O operations too, with file, bytes and duration, and findings\nas 'sliver io' has them (needs CAP_BPF and CAP_PERFMON)")
	fs.StringArrayVar(&f.rules, "io-rule", nil, "only these findings: names with commas, or one name with thresholds;\nrepeatable (see 'sliver io')")
	fs.DurationVar(&f.slower, "io-slower", 0, "record only reads and writes that took at least this long; the sums\nhave all")
}

func (f *ioOfRecord) parse() (err error) {
	switch {
	case f.slower < 0:
		return usagef("record", "io-slower: %v is negative", f.slower)
	case !f.on && f.slower > 0:
		return usagef("record", "--io-slower is for I/O operations: give --io too")
	case !f.on && len(f.rules) > 0:
		return usagef("record", "--io-rule is for I/O operations: give --io too")
	}
	if f.config, err = iowatch.Parse(f.rules); err != nil {
		return usagef("record", "io-rule: %v", err)
	}
	return nil
}

// options returns what a session needs; nil if I/O is not recorded.
func (f *ioOfRecord) options() *session.IOOptions {
	if !f.on {
		return nil
	}
	return &session.IOOptions{Rules: f.config, Slower: f.slower}
}

// maxIOLines is how many findings and losses the summary shows.
const maxIOLines = 5

// writeIO prints the accounts of I/O of a process, which is named if there are several; x may be nil.
func writeIO(w io.Writer, of string, x *trace.IO) {
	if x == nil {
		return
	}
	var ops, syncs uint64
	for i := range x.Files {
		ops, syncs = ops+x.Files[i].Ops, syncs+x.Files[i].Syncs
	}
	if ops+syncs > 0 {
		fmt.Fprintf(w, "  I/O%s: %s and %s of %s, %s\n", of, plural.Either(ops, "read or write", "reads and writes"), plural.Of(syncs, "sync"), plural.Either(len(x.Files)+x.MoreFiles, "file or socket", "files and sockets"), plural.Of(len(x.Findings), "finding"))
	}
	for i := range x.Findings {
		if i == maxIOLines {
			fmt.Fprintf(w, "  %s ('sliver report' shows them)\n", plural.Of(len(x.Findings)-i, "more finding"))
			break
		}
		f := &x.Findings[i]
		fmt.Fprintf(w, "  %s: %s\n", f.Rule, printable(f.Advice))
	}
	if x.Skipped > 0 {
		fmt.Fprintf(w, "  %s in the sums only: their threads had more than 20000 in a second\n", plural.Either(x.Skipped, "read or write is", "reads and writes are"))
	}
	for _, l := range x.Lost {
		if of != "" {
			l = "I/O" + of + ": " + l
		}
		fmt.Fprintf(w, "  %s\n", printable(l))
	}
}
