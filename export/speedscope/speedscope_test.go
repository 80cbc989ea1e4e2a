package speedscope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/trace"
)

const ms = exporttest.Ms

// file is the JSON profile.
type file struct {
	Name   string
	Shared struct {
		Frames []struct {
			Name string
			File string
			Line int
		}
	}
	Profiles []struct {
		Type, Name, Unit     string
		StartValue, EndValue int64
		Events               []struct {
			Type  string
			Frame int
			At    int64
		}
	}
}

func export(t testing.TB, rec *trace.Recording, o view.Options) ([]byte, *file) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, rec, o); err != nil {
		t.Fatal(err)
	}
	var f file
	if err := json.Unmarshal(b.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), &f
}

// validate checks a file against the schema in speedscope's own package.
func validate(t *testing.T, b []byte) {
	t.Helper()
	modules := exporttest.Package(t, "speedscope-1.25.0", "speedscope@1.25.0", "ajv@8.20.0")
	script := `
const fs = require('node:fs'), Ajv = require('ajv');
const schema = JSON.parse(fs.readFileSync(process.argv[1] + '/speedscope/dist/release/file-format-schema.json'));
const check = new Ajv({strict: false}).compile(schema);
if (!check(JSON.parse(fs.readFileSync(process.argv[2])))) { console.error(JSON.stringify(check.errors.slice(0, 5))); process.exit(1); }`
	p := exporttest.File(t, "x.speedscope.json", b)
	exporttest.Run(t, "node", "-e", "module.paths.push(process.argv[1]);"+script, modules, p)
}

// read opens and closes frames as speedscope does. It rejects a file whose closed frame
// is not the one opened last, or whose time decreases.
func read(t testing.TB, f *file, rec *trace.Recording, base int64) []exporttest.Call {
	t.Helper()
	seq := map[string]int{}
	for _, th := range rec.Threads {
		seq[fmt.Sprintf("%s (%d)", view.Text(th.Name, 256), th.TID)] = th.Seq
	}
	var out []exporttest.Call
	for _, p := range f.Profiles {
		if p.Type != "evented" || p.Unit != "nanoseconds" {
			t.Fatalf("profile %s of type %s, unit %s", p.Name, p.Type, p.Unit)
		}
		var open []int
		at := p.StartValue
		for _, e := range p.Events {
			if e.At < at || e.At > p.EndValue {
				t.Fatalf("time %d behind %d, end %d", e.At, at, p.EndValue)
			}
			at = e.At
			name := f.Shared.Frames[e.Frame].Name
			if e.Type == "O" {
				out = append(out, exporttest.Call{Thread: seq[p.Name], Name: name, Depth: len(open), Begin: base + at})
				open = append(open, len(out)-1)
				continue
			}
			top := open[len(open)-1]
			if out[top].Name != name {
				t.Fatalf("%q is closed, %q is open", name, out[top].Name)
			}
			out[top].End = base + at
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			t.Fatalf("%d frames left open", len(open))
		}
	}
	return out
}

func withoutGaps(cs []exporttest.Call) (out []exporttest.Call) {
	for _, c := range cs {
		if !strings.HasPrefix(c.Name, "[gap: ") && !strings.HasPrefix(c.Name, "[waits: ") {
			out = append(out, c)
		}
	}
	return out
}

func TestReaderSeesTheReplay(t *testing.T) {
	for what, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 50_000, 3), "hostile": exporttest.Hostile(t)} {
		t.Run(what, func(t *testing.T) {
			b, f := export(t, rec, view.Options{})
			validate(t, b)
			want := exporttest.Calls(rec)
			for i := range want {
				want[i].Name = view.Text(want[i].Name, view.MaxName)
			}
			exporttest.Match(t, want, withoutGaps(read(t, f, rec, int64(view.New(rec, view.Options{}).Begin()))))
			if bytes.ContainsAny(b, "<>\x00\x1b") {
				t.Error("the file has characters that markup is made of")
			}
		})
	}
}

func TestGolden(t *testing.T) {
	b, f := export(t, exporttest.Sample(t), view.Options{})
	if !strings.Contains(f.Name, "2 ticks late") {
		t.Errorf("losses are not in the name %q", f.Name)
	}
	exporttest.Golden(t, "sample.golden", string(b))
}

func TestNothing(t *testing.T) {
	b := exporttest.New(t)
	b.Thread(1234, "main")
	out, f := export(t, b.Finish(ms), view.Options{})
	validate(t, out)
	if len(f.Profiles) != 1 {
		t.Errorf("%d profiles", len(f.Profiles))
	}
}

func TestRange(t *testing.T) {
	rec := exporttest.Sample(t)
	_, f := export(t, rec, view.Options{Threads: []int{1}, From: exporttest.Start + 50*ms, To: exporttest.Start + 60*ms})
	if len(f.Profiles) != 1 || f.Profiles[0].StartValue != 0 || f.Profiles[0].EndValue != 10*ms || len(f.Profiles[0].Events) != 6 {
		t.Errorf("%+v", f.Profiles)
	}
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := exporttest.Raw(t, data)
		_, p := export(t, rec, view.Options{})
		read(t, p, rec, 0)
	})
}

func BenchmarkWrite(b *testing.B) { exporttest.Throughput(b, Write) }

// Of several processes, each has its own profiles on one clock, and functions of the same name are one frame.
func TestSeveral(t *testing.T) {
	rec := exporttest.Several(t)
	b, f := export(t, rec, view.Options{})
	validate(t, b)
	if n := len(rec.Threads) + 1; len(f.Profiles) != n || !strings.HasPrefix(f.Name, "server (1234) and 1 other process") {
		t.Fatalf("%d profiles of %q, want %d", len(f.Profiles), f.Name, n)
	}
	var first, second file
	first.Shared, second.Shared = f.Shared, f.Shared
	for _, p := range f.Profiles {
		process, thread, ok := strings.Cut(p.Name, ": ")
		if p.Name = thread; process == "worker (900)" {
			second.Profiles = append(second.Profiles, p)
		} else {
			first.Profiles = append(first.Profiles, p)
		}
		if !ok {
			t.Errorf("profile %q", process)
		}
	}
	base := int64(view.New(rec, view.Options{}).Begin())
	exporttest.Match(t, exporttest.Calls(rec), withoutGaps(read(t, &first, rec, base)))
	exporttest.Match(t, exporttest.Calls(rec.Others[0]), withoutGaps(read(t, &second, rec.Others[0], base)))
}
