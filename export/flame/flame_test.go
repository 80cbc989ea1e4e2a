package flame

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = 1_000_000

// picture is the SVG as an XML reader parses it.
type picture struct {
	Boxes []struct {
		Title string `xml:"title"`
		Rect  struct {
			X      float64 `xml:"x,attr"`
			Y      float64 `xml:"y,attr"`
			Width  float64 `xml:"width,attr"`
			Height float64 `xml:"height,attr"`
		} `xml:"rect"`
		Text string `xml:"text"`
	} `xml:"g"`
	Height int      `xml:"height,attr"`
	Texts  []string `xml:"text"`
}

func export(t testing.TB, rec *trace.Recording, o view.Options) (string, *picture) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, rec, o); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && !strings.Contains(" svg title desc rect text g ", " "+e.Name.Local+" ") {
			t.Fatalf("element %s", e.Name.Local)
		}
	}
	var p picture
	if err := xml.Unmarshal(b.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	return b.String(), &p
}

func TestGolden(t *testing.T) {
	s, p := export(t, exporttest.Sample(t), view.Options{})
	exporttest.Golden(t, "sample.golden.svg", s)
	if notes := fmt.Sprint(p.Texts); !strings.Contains(notes, "2 ticks late") || !strings.Contains(notes, "1 stack truncated") {
		t.Errorf("losses are not in the picture: %s", notes)
	}
}

// Boxes of one row do not overlap, each rests on a box that contains it, and the widths
// match the replay.
func TestBoxes(t *testing.T) {
	rec := exporttest.Big(t, 50_000, 3)
	_, p := export(t, rec, view.Options{})
	all := int64(0)
	for _, c := range exporttest.Calls(rec) {
		if c.Depth == 0 {
			all += c.End - c.Begin
		}
	}
	rows := map[float64]float64{}
	base := 0.0
	for _, b := range p.Boxes {
		if b.Rect.Width < 0 || b.Rect.X < margin-1 || b.Rect.X+b.Rect.Width > width-margin+1 || b.Rect.Y < 0 || b.Rect.Y > float64(p.Height) {
			t.Fatalf("box %+v", b)
		}
		rows[b.Rect.Y] += b.Rect.Width
		base = max(base, b.Rect.Y)
	}
	if len(rows) < 10 || math.Abs(rows[base]-(width-2*margin)) > 3 {
		t.Errorf("%d rows, the lowest is %.1f wide", len(rows), rows[base])
	}
	for y := range rows {
		if rows[y] > width-2*margin+1 {
			t.Errorf("row %g is %.1f wide", y, rows[y])
		}
	}
	if !strings.Contains(fmt.Sprint(p.Texts), view.Short(all)) {
		t.Errorf("%v does not say %s", p.Texts[:1], view.Short(all))
	}
}

func TestHostile(t *testing.T) {
	s, p := export(t, exporttest.Hostile(t), view.Options{})
	if strings.Contains(s, "<script") || strings.Contains(s, "<img") || strings.ContainsAny(s, "\x00\x1b\x07") {
		t.Error("a name came through as markup")
	}
	found := false
	for _, b := range p.Boxes {
		found = found || strings.HasPrefix(b.Title, "<script>alert(1)</script> ")
	}
	if !found {
		t.Error("the name with markup is not there as text")
	}
}

func TestNothing(t *testing.T) {
	b := exporttest.New(t)
	b.Thread(1234, "main")
	if _, p := export(t, b.Finish(0), view.Options{}); len(p.Boxes) != 0 {
		t.Errorf("boxes %v", p.Boxes)
	}
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { export(t, exporttest.Raw(t, data), view.Options{}) })
}

func BenchmarkWrite(b *testing.B) { exporttest.Throughput(b, Write) }

// Idle waits are omitted and counted if other time remains.
func TestIdle(t *testing.T) {
	for _, busy := range []bool{true, false} {
		b := exporttest.New(t)
		idle := b.Wait(trace.Wait{Call: "futex", Kind: "idle", Lock: "idle"})
		compiler := b.Thread(1234, "C2 CompilerThread0")
		compiler.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Call: 202, Stack: "start:1 compile_loop:1 wait:1"})
		compiler.Event(0, event.Wait, idle)
		compiler.Look(exporttest.Look{At: 100 * ms, Times: 2, State: stack.StateBlocked, Call: 202, Way: stack.WayUnrun})
		if busy {
			worker := b.Thread(1240, "worker")
			worker.LookAt(exporttest.Look{At: 0, State: stack.StateRunning}, "start:1", "work:1")
			worker.LookAt(exporttest.Look{At: 90 * ms, CPU: 90 * ms, Times: 2, State: stack.StateRunning}, "start:1", "work:1")
		}
		s, p := export(t, b.Finish(100*ms), view.Options{})
		title := strings.Join(p.Texts, "\n")
		if said := strings.Contains(title, "in 1 thread, without 1 idle thread, 100 ms; --idle shows them"); said != busy {
			t.Errorf("busy %v: %s", busy, title)
		}
		if drawn := strings.Contains(s, "compile_loop"); drawn == busy {
			t.Errorf("busy %v: the idle thread is drawn: %v", busy, drawn)
		}
	}
}

// The outermost boxes are the processes, and threads with their process's name have no box.
func TestSeveral(t *testing.T) {
	rec := exporttest.Several(t)
	_, p := export(t, rec, view.Options{Idle: true})
	if !strings.HasPrefix(p.Texts[0], "server (1234) and 1 other process: ") {
		t.Errorf("title %q", p.Texts[0])
	}
	at := map[string][2]float64{} // y and width
	for _, b := range p.Boxes {
		f := strings.Fields(b.Title)
		at[strings.Join(f[:len(f)-2], " ")] = [2]float64{b.Rect.Y, b.Rect.Width}
	}
	server, worker, only := at["server"], at["worker"], at["only_here"]
	if server[0] != worker[0] || server[1] < 100 || worker[1] < 100 || math.Abs(server[1]+worker[1]-(width-2*margin)) > 3 || at["main"][0] >= server[0] ||
		only[0] != worker[0]-3*row || math.Abs(only[1]-worker[1]) > 3 {
		t.Errorf("boxes %v", at)
	}
}
