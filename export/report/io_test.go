package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// TestIOPlaces: what one rule has about several files at one place is one finding, which names the others.
func TestIOPlaces(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	m := b.Thread(1234, "main")
	m.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	m.Look(exporttest.Look{At: 100 * ms, State: stack.StateRunning, Stack: "main:1"})
	for i := range maxAlso + 3 {
		b.Finding(1234, fmt.Sprint("/www/<", i), int64(10+i)*ms, ms, "open load main", "read load main")
	}
	b.Finding(1234, "/www/<1", 50*ms, ms, "open load main", "read load main") // once more
	b.Finding(1234, "/etc/other", 60*ms, ms, "open other main", "read other main")
	r := Of(b.Finish(100*ms), view.Options{}, 1)
	if len(r.IO.Findings) != 2 || r.More.Findings != 0 {
		t.Fatalf("%+v", r.IO.Findings)
	}
	if f, g := r.IO.Findings[0], r.IO.Findings[1]; f.Path != "/www/<0" || len(f.Also) != maxAlso || f.Also[0] != "/www/<1" || f.AlsoMore != 2 || g.Path != "/etc/other" || len(g.Also) != 0 {
		t.Errorf("%+v, %+v", f, g)
	}
	var text, page bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "\n    the same of /www/<5\n    and of 17 more\n    opened in ") || strings.Contains(s, "/www/<6") {
		t.Errorf("text:\n%s", s)
	}
	if p := page.String(); !strings.Contains(p, "; the same of /www/&lt;1, ") || !strings.Contains(p, " and 2 more</p>") {
		t.Errorf("page:\n%s", p)
	}
}

// TestIO: findings come first in the text, the page has them, and the files of a part are those of its
// operations.
func TestIO(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	m := b.Thread(1234, "main")
	m.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	m.Look(exporttest.Look{At: 100 * ms, State: stack.StateRunning, Stack: "main:1"})
	b.Op(1234, iowatch.OpOpen, "/etc/<app>.conf", 5*ms, 6*ms, 0, "os.Open load main")
	b.Op(1234, iowatch.OpRead, "/etc/<app>.conf", 10*ms, 25*ms, 1000, "read load main")
	b.Op(1234, iowatch.OpRead, "/etc/<app>.conf", 30*ms, 31*ms, 50, "")
	b.Op(1234, iowatch.OpWrite, "/var/log/app", 40*ms, 42*ms, 7, "")
	b.Miss(1234, "/var/log/app", 50*ms, 53*ms, 7)
	b.Op(1234, iowatch.OpFault, "/lib/x.so", 60*ms, 61*ms, 0, "")
	b.Op(1234, iowatch.OpFault, "/lib/x.so", 62*ms, 64*ms, 0, "")
	b.Finding(1234, "/etc/<app>.conf", 31*ms, 15*ms, "open load main", "read load main")
	b.Ring(trace.IORing{Path: "/data/ring", Ops: 3, Errors: 1, Read: 300, Time: 5 * ms, Max: 2 * ms})
	rec := b.Finish(100 * ms)
	r := Of(rec, view.Options{}, 1)
	if len(r.IO.Findings) != 1 || len(r.IO.Files) != 1 || r.More.Files != 2 || r.IO.Part {
		t.Fatalf("%+v, more %+v", r.IO, r.More)
	}
	if f := r.IO.Files[0]; f.Path != "/etc/<app>.conf" || f.Opens != 1 || f.Ops != 2 || f.Read != 1050 || f.Total != 16*ms || f.Max != 15*ms || len(f.Stack) != 2 || f.Stack[0] != "load (load.c:7)" {
		t.Errorf("%+v", f)
	}
	if f := r.IO.Findings[0]; f.Rule != "main-io" || f.At != 31*ms || f.Longest != 15*ms || f.Stack[0] != "read (read.c:7)" || f.TID != 1234 {
		t.Errorf("%+v", f)
	}
	var text, page bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	s := text.String()
	if i := strings.Index(s, "Findings of I/O"); i < 0 || i > strings.Index(s, "\nThreads") || !strings.Contains(s, "move it to another thread.") ||
		!strings.Contains(s, "called in read (read.c:7)") || !strings.Contains(s, "\nFiles (2 more; --rows shows more)\n") || !strings.Contains(s, "1.05 kB") || !strings.Contains(s, "longest  opened in  file") || !strings.Contains(s, "ms  load       /etc/<app>.conf") {
		t.Errorf("text:\n%s", s)
	}
	if p := page.String(); strings.Contains(p, "<app>") || !strings.Contains(p, "&lt;app&gt;.conf") || !strings.Contains(p, "<h2>Findings of I/O</h2>") || !strings.Contains(p, "1.05 kB") {
		t.Errorf("page:\n%s", p)
	}
	all := Of(rec, view.Options{}, 0)
	text.Reset()
	page.Reset()
	if err := errors.Join(all.WriteText(&text), all.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "1 in 3.00ms") || !strings.Contains(s, "2 in 3.00ms") || !strings.Contains(s, "missed") || !strings.Contains(s, "\nThrough io_uring\n") || !strings.Contains(s, "/data/ring") || !strings.Contains(s, "faults") {
		t.Errorf("text:\n%s", s)
	}
	if p := page.String(); !strings.Contains(p, "<td>1 in 3.00ms<td>") || !strings.Contains(p, "<td>2 in 3.00ms") || !strings.Contains(p, "<code>/data/ring</code><td>3<td>0<td>0<td>1<td>300 B") {
		t.Errorf("page:\n%s", p)
	}
	part := Of(rec, view.Options{From: exporttest.Start + 28*ms}, 0)
	if !part.IO.Part || len(part.IO.Findings) != 1 || len(part.IO.Files) != 3 || part.IO.Files[0].Path != "/var/log/app" || part.IO.Files[0].Misses != 1 || part.IO.Files[0].Missed != 3*ms || part.IO.Files[2].Faults != 2 || part.IO.Files[2].Ops != 0 || part.IO.Files[1].Ops != 1 || part.IO.Files[1].Read != 50 {
		t.Errorf("%+v", part.IO)
	}
	if p50 := part.IO.Files[1].P50; p50 < ms || p50 > 3*ms/2 {
		t.Errorf("p50 of one operation of 1 ms is %d ns", p50)
	}
	if b, err := json.Marshal(part); err != nil || bytes.Contains(b, []byte(":null")) {
		t.Errorf("%v: %s", err, b)
	}
	if without := Of(exporttest.Sample(t), view.Options{}, 0); without.IO != nil {
		t.Errorf("I/O that was not recorded: %+v", without.IO)
	}
}

// TestIOAlike: files with alike names are one row in the text and on the page, and More counts files.
func TestIOAlike(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	m := b.Thread(1234, "main")
	m.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	m.Look(exporttest.Look{At: 100 * ms, State: stack.StateRunning, Stack: "main:1"})
	b.Op(1234, iowatch.OpRead, "/etc/app.conf", 1*ms, 5*ms, 1000, "read load main")
	for i := range int64(10) {
		b.Op(1234, iowatch.OpWrite, fmt.Sprintf("/tmp/part-%d", i), (10+2*i)*ms, (11+2*i)*ms, 50, "")
	}
	rec := b.Finish(100 * ms)
	r := Of(rec, view.Options{}, 2)
	if len(r.IO.Files) != 2 || r.More.Files != 0 {
		t.Fatalf("%+v, more %+v", r.IO.Files, r.More)
	}
	if f := r.IO.Files[0]; f.Path != "/tmp/part-*" || f.Files != 10 || f.Ops != 10 || f.Written != 500 || f.Total != 10*ms || f.Max != ms || f.P50 != 0 {
		t.Errorf("%+v", f)
	}
	if f := r.IO.Files[1]; f.Path != "/etc/app.conf" || f.Files != 0 || f.Total != 4*ms || f.P50 == 0 {
		t.Errorf("%+v", f)
	}
	var text, page bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "/tmp/part-* (10 files)\n") || !strings.Contains(page.String(), "<code>/tmp/part-* (10 files)</code>") {
		t.Errorf("text:\n%s\npage:\n%s", text.String(), page.String())
	}
	part := Of(rec, view.Options{From: exporttest.Start + 12*ms}, 1)
	if f := part.IO.Files[0]; f.Path != "/tmp/part-*" || f.Files != 9 || part.More.Files != 0 {
		t.Errorf("%+v, more %+v", part.IO.Files, part.More)
	}
	if r := Of(rec, view.Options{From: exporttest.Start + 3*ms, To: exporttest.Start + 30*ms}, 1); r.IO.Files[0].Files != 10 || r.More.Files != 1 {
		t.Errorf("%+v, more %+v", r.IO.Files, r.More)
	}
}
