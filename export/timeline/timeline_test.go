package timeline

//sliver:layer unit big

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = exporttest.Ms

// rect is a box as an XML reader parses it.
type rect struct {
	Title  string  `xml:"title"`
	X      float64 `xml:"x,attr"`
	Y      float64 `xml:"y,attr"`
	Width  float64 `xml:"width,attr"`
	Height float64 `xml:"height,attr"`
	Fill   string  `xml:"fill,attr"`
}

type document struct {
	Rects  []rect   `xml:"rect"`
	Texts  []string `xml:"text"`
	Height float64  `xml:"height,attr"`
}

func asSVG(t testing.TB, rec *trace.Recording, o view.Options) (string, *document) {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSVG(&b, rec, o); err != nil {
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
		if e, ok := tok.(xml.StartElement); ok && !strings.Contains(" svg title desc rect text ", " "+e.Name.Local+" ") {
			t.Fatalf("element %s", e.Name.Local)
		}
	}
	p := &document{}
	if err := xml.Unmarshal([]byte(strings.ReplaceAll(b.String(), `"100%"`, `"0"`)), p); err != nil {
		t.Fatal(err)
	}
	return b.String(), p
}

func asPNG(t testing.TB, rec *trace.Recording, o view.Options) ([]byte, image.Image) {
	t.Helper()
	var b bytes.Buffer
	if err := WritePNG(&b, rec, o); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), img
}

func TestGolden(t *testing.T) {
	s, _ := asSVG(t, exporttest.Sample(t), view.Options{})
	exporttest.Golden(t, "sample.svg", s)
	// Glyphs may differ by a shade if a platform rounds numbers differently, so the test
	// does not compare bytes.
	b, got := asPNG(t, exporttest.Sample(t), view.Options{})
	if !same(t, "testdata/sample.png", got) {
		exporttest.Golden(t, "sample.png", string(b)) // -update writes it
	}
}

func same(t *testing.T, path string, got image.Image) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	want, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if want.Bounds() != got.Bounds() {
		return false
	}
	differ := 0
	for y := range got.Bounds().Max.Y {
		for x := range got.Bounds().Max.X {
			if far(want.At(x, y), got.At(x, y)) > 24 {
				differ++
			}
		}
	}
	return differ <= 50
}

// far returns the largest difference of two colours in one channel, in 1/255.
func far(a, b color.Color) int {
	p, q := color.RGBAModel.Convert(a).(color.RGBA), color.RGBAModel.Convert(b).(color.RGBA)
	d := func(x, y uint8) int { return int(math.Abs(float64(x) - float64(y))) }
	return max(d(p.R, q.R), d(p.G, q.G), d(p.B, q.B))
}

// Each wide enough call of the replay has a box with its position and width; there are no
// other boxes.
func TestBoxesAreTheCalls(t *testing.T) {
	rec := exporttest.Sample(t)
	_, p := asSVG(t, rec, view.Options{})
	v := view.New(rec, view.Options{})
	begin, end := v.Begin(), v.End()
	px := (width - 2*margin) / float64(end-begin)
	type key struct {
		title string
		x, w  int
	}
	got := map[key]int{}
	for _, r := range p.Rects {
		if r.Height == row-1 {
			w := r.Width
			if w > 2.5 {
				w += .5 // the space between boxes
			}
			got[key{r.Title, int(math.Round(r.X)), int(math.Round(w))}]++
		}
	}
	for _, c := range exporttest.Calls(rec) {
		k := key{fmt.Sprintf("%s %s", c.Name, view.Short(c.End-c.Begin)), int(math.Round(margin + float64(c.Begin-int64(begin))*px)),
			int(math.Round(max(float64(c.End-c.Begin)*px, .3)))}
		if got[k]--; got[k] < 0 {
			t.Errorf("no box for %v: %v", c, k)
		}
	}
	for k, n := range got {
		if n > 0 && !strings.HasPrefix(k.title, "[gap: ") {
			t.Errorf("%d boxes too many: %v", n, k)
		}
	}
}

// The PNG has each box of the SVG at the same position and with the same colour.
func TestPNGIsTheSVG(t *testing.T) {
	rec := exporttest.Sample(t)
	_, p := asSVG(t, rec, view.Options{})
	_, img := asPNG(t, rec, view.Options{})
	if img.Bounds().Dx() != width*scale || float64(img.Bounds().Dy()) != p.Height*scale {
		t.Fatalf("%v, the SVG is %g high", img.Bounds(), p.Height)
	}
	looked := 0
	for _, r := range p.Rects {
		if r.Title == "" || r.Width < 3 {
			continue
		}
		n, err := strconv.ParseUint(r.Fill[1:], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		want := color.RGBA{uint8(n >> 16), uint8(n >> 8), uint8(n), 0xff}
		for _, at := range [][2]float64{{r.X + 1, r.Y + 1}, {r.X + r.Width - 1, r.Y + r.Height - 1.2}} {
			x, y := int(at[0]*scale), int(at[1]*scale)
			if c := img.At(x, y); far(c, want) > 2 && !overdrawn(p, at[0], at[1], r) {
				t.Errorf("%s at %v: %v, want %v", r.Title, at, c, want)
			}
			looked++
		}
	}
	if looked < 40 {
		t.Errorf("only %d points", looked)
	}
}

// overdrawn reports whether a mark without a title covers the point.
func overdrawn(p *document, x, y float64, self rect) bool {
	for _, r := range p.Rects {
		if r != self && r.Title == "" && r.Fill == "#aa0000" && x >= r.X-.6 && x <= r.X+r.Width+.6 && y >= r.Y && y <= r.Y+r.Height {
			return true
		}
	}
	return false
}

// Many calls on few pixels become few boxes, and their sums stay complete.
func TestNarrowCallsAreJoined(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range 20_000 {
		th.Look(exporttest.Look{At: int64(i) * ms, State: stack.StateRunning, Pause: 1000, Stack: fmt.Sprintf("main:1 f%d:2", i%2)})
	}
	s, p := asSVG(t, b.Finish(20_000*ms), view.Options{})
	calls, boxes := 0, 0
	for _, r := range p.Rects {
		if r.Height != row-1 || strings.HasPrefix(r.Title, "main") {
			continue
		}
		boxes++
		n := 1
		if strings.Contains(r.Title, " calls, ") {
			fmt.Sscanf(r.Title, "%d calls", &n)
		}
		calls += n
	}
	if calls != 19_999 && calls != 20_000 || boxes > 4000 || len(s) > 2<<20 {
		t.Errorf("%d calls in %d boxes, %d bytes", calls, boxes, len(s))
	}
}

// A large recording yields a picture of bounded size that says what it omitted.
func TestBounds(t *testing.T) {
	testprog.Unraced(t, "one goroutine goes through big files")
	b := exporttest.New(t)
	for i := range 200 {
		th := b.Thread(1234+i, fmt.Sprint("worker-", i))
		for k, name := range []string{"f", "g", "g"} {
			var st []string
			for d := range 100 {
				st = append(st, fmt.Sprintf("%s%d:1", name, d))
			}
			th.LookAt(exporttest.Look{At: int64(k) * 5 * ms, State: stack.StateRunning}, st...)
		}
	}
	rec := b.Finish(10 * ms)
	_, p := asSVG(t, rec, view.Options{})
	said := strings.Join(p.Texts, "\n")
	if p.Height > 9000 || !strings.Contains(said, "more threads are left out") || !strings.Contains(said, "deepest calls") {
		t.Errorf("%g high; %s", p.Height, said)
	}
	var b2 bytes.Buffer
	if err := WritePNG(&b2, rec, view.Options{}); err != nil {
		t.Fatal(err)
	}
	if img, err := png.DecodeConfig(&b2); err != nil || img.Height > 18000 || img.Height < 9000 {
		t.Errorf("PNG of %d·%d, %v", img.Width, img.Height, err)
	}
	if _, p := asSVG(t, rec, view.Options{Threads: []int{199}}); !strings.Contains(strings.Join(p.Texts, "\n"), "worker-199 (1433)") {
		t.Errorf("the chosen thread is not there")
	}
}

// The outer calls of a deep stack are collapsed in favour of inner ones, and threads
// without work come last, without calls.
func TestOuterAndIdle(t *testing.T) {
	b := exporttest.New(t)
	idle := b.Wait(trace.Wait{Call: "futex", Kind: "idle", Lock: "idle"})
	compiler := b.Thread(1234, "C2 CompilerThread0")
	compiler.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Call: 202, Stack: "start:1 compile_loop:1 wait:1"})
	compiler.Event(0, event.Wait, idle)
	compiler.Look(exporttest.Look{At: 100 * ms, Times: 2, State: stack.StateBlocked, Call: 202, Way: stack.WayUnrun})
	var outer []string
	for d := range 100 {
		outer = append(outer, fmt.Sprintf("outer%d:1", d))
	}
	worker := b.Thread(1240, "worker")
	for i := range 10 {
		worker.LookAt(exporttest.Look{At: int64(i) * 10 * ms, CPU: int64(i) * 10 * ms, Times: uint64(i), State: stack.StateRunning}, append(outer, fmt.Sprintf("work%d:1", i%2), "sum:1")...)
	}
	small := b.Thread(1241, "small")
	small.LookAt(exporttest.Look{At: 0, State: stack.StateRunning}, "start:1", "little:1")
	small.LookAt(exporttest.Look{At: 90 * ms, CPU: 90 * ms, Times: 2, State: stack.StateRunning}, "start:1", "little:1")
	_, p := asSVG(t, b.Finish(100*ms), view.Options{})
	said := strings.Join(p.Texts, "\n")
	for _, want := range []string{"always in 55 calls: … › ", "› outer54", "outer55", "work1", "sum", "little", "C2 CompilerThread0 (1234): idle"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	for _, no := range []string{"compile_loop", "deepest", "left out", "always in 1"} {
		if strings.Contains(said, no) {
			t.Errorf("%q in\n%s", no, said)
		}
	}
	if a, b := strings.Index(said, "small (1241)"), strings.Index(said, "CompilerThread0"); a < 0 || a > b {
		t.Errorf("the idle thread is not last:\n%s", said)
	}
}

func TestHostile(t *testing.T) {
	rec := exporttest.Hostile(t)
	asSVG(t, rec, view.Options{})
	asPNG(t, rec, view.Options{})
}

func TestStates(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Pause: 1000, Stack: "a:1"})
	th.Look(exporttest.Look{At: 10 * ms, State: stack.StateBlocked, Call: 8, Stack: "a:1"})
	th.Look(exporttest.Look{At: 30 * ms, State: stack.StateDisk, Stack: "a:1"})
	th.Event(35*ms, event.Mark, uint64(stack.WhyExec))
	th.Look(exporttest.Look{At: 40 * ms, State: stack.StateRunning, Stack: "a:1"})
	_, p := asSVG(t, b.Finish(40*ms), view.Options{})
	var got []string
	for _, r := range p.Rects {
		if r.Height == strip {
			got = append(got, fmt.Sprintf("%s %.0f %s", r.Title, r.Width, r.Fill))
		}
	}
	want := "running 10ms 295 #43a047; blocked: syscall 7 20ms 590 #90b4d8; uninterruptible 10ms 295 #e57373"
	if s := strings.Join(got, "; "); !strings.HasPrefix(strings.ReplaceAll(s, "blocked: read", "blocked: syscall 7"), want[:20]) || len(got) < 3 {
		t.Errorf("got %s, want %s", s, want)
	}
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := exporttest.Raw(t, data)
		asSVG(t, rec, view.Options{})
		asPNG(t, rec, view.Options{From: exporttest.Start + 5*ms, To: exporttest.Start + 70*ms})
	})
}

func BenchmarkSVG(b *testing.B) {
	rec := exporttest.Big(b, 1_000_000, 4)
	for b.Loop() {
		if err := WriteSVG(io.Discard, rec, view.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(1e6*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// Threads of several processes are on one clock, each with the name of its process, and without room the busiest are drawn.
func TestSeveral(t *testing.T) {
	rec := exporttest.Several(t)
	s, _ := asSVG(t, rec, view.Options{})
	for _, want := range []string{"server (1234) and 1 other process: ", ">worker (900): worker main (900)<", ">server (1234)<", "only_here", "libpoll"} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q", want)
		}
	}
	for i := range 60 { // processes that live short
		b := exporttest.New(t)
		b.Proc.PID, b.Proc.Comm = 2000+i, "short"
		th := b.Thread(2000+i, "short")
		th.Look(exporttest.Look{At: 0, Stack: "begin brief", State: stack.StateRunning})
		th.Look(exporttest.Look{At: exporttest.Ms, Stack: "begin brief", CPU: exporttest.Ms, State: stack.StateRunning})
		th.End(exporttest.Ms, 0)
		rec.Others = slices.Insert(rec.Others, 0, b.Finish(exporttest.Ms))
	}
	if s, _ = asSVG(t, rec, view.Options{}); !strings.Contains(s, ">worker (900): worker main (900)<") || !strings.Contains(s, "more threads are left out of the picture") {
		t.Error("the busiest thread is not drawn")
	}
}
