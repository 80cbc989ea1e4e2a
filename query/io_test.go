package query

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

func TestIO(t *testing.T) {
	b := exporttest.New(t)
	m := b.Thread(1234, "main")
	m.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	m.Look(exporttest.Look{At: 100 * ms, State: stack.StateRunning, Stack: "main:1"})
	b.Op(1234, iowatch.OpOpen, "/etc/app.conf", 5*ms, 6*ms, 0, "open load main")
	b.Op(1234, iowatch.OpRead, "/etc/app.conf", 10*ms, 25*ms, 100, "read load main")
	b.Op(1234, iowatch.OpRead, "/etc/app.conf", 30*ms, 31*ms, 50, "")
	b.Op(77, iowatch.OpWrite, "/var/log", 40*ms, 42*ms, 7, "") // of a thread that was not sampled
	b.Miss(1234, "/data", 50*ms, 53*ms, 7)
	b.Op(1234, iowatch.OpFault, "/lib/x.so", 60*ms, 61*ms, 0, "")
	b.Finding(1234, "/etc/app.conf", 31*ms, 15*ms, "open load main", "read load main")
	b.Ring(trace.IORing{Path: "/data/x", Ops: 3, Errors: 1, Read: 300, Time: 5 * ms, Max: 2 * ms})
	rec := b.Finish(100 * ms)
	for _, c := range []struct {
		o           view.Options
		query, want string
	}{
		{view.Options{}, "select tid, thread, ts/1000000, dur/1000000, op, call, file, kind, fd, requested, bytes, stack from io where ts < 50e6 order by ts",
			"1234,0,5,1,open,open,/etc/app.conf,file,3,,,open (open.c:7) < load (load.c:7) < main (main.c:7)\n" +
				"1234,0,10,15,read,read,/etc/app.conf,file,3,200,100,read (read.c:7) < load (load.c:7) < main (main.c:7)\n" +
				"1234,0,30,1,read,read,/etc/app.conf,file,3,100,50,\n77,,40,2,write,write,/var/log,file,4,14,7,\n"},
		{view.Options{}, "select file, opens, ops, read, written, dur/1000000, longest/1000000 from io_files where misses + faults = 0 order by file", "/etc/app.conf,1,2,150,0,16,15\n/var/log,0,1,0,7,2,2\n"},
		{view.Options{}, "select rule, file, tid, name, ts/1000000, longest/1000000, substr(stack, 1, 4), substr(opened, 1, 4) from findings", "main-io,/etc/app.conf,1234,main,31,15,read,open\n"},
		{view.Options{}, "select op, fd, bytes, missed, dur/1000000 from io where ts >= 50e6 order by ts", "read,5,7,1,3\nfault,,,0,1\n"},
		{view.Options{}, "select file, ops, misses, missed/1000000, faults, faulted/1000000 from io_files where misses + faults > 0 order by file", "/data,1,1,3,0,0\n/lib/x.so,0,0,0,1,1\n"},
		{view.Options{}, "select file, ops, errors, read, dur/1000000, longest/1000000 from io_uring", "/data/x,3,1,300,5,2\n"},
		{view.Options{From: exporttest.Start + 26*ms, To: exporttest.Start + 30*ms}, "select ts/1000000 from io", "30\n"},
		{view.Options{From: exporttest.Start + 40*ms}, "select count(*) from findings", "0\n"},
	} {
		got := strings.ReplaceAll(must(t, rec, c.o, "csv", c.query), "\r", "")
		if _, rows, _ := strings.Cut(got, "\n"); rows != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.query, rows, c.want)
		}
	}
}
