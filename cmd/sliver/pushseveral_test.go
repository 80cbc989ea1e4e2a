package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/internal/otelreceiver"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// pprofBackend takes the requests of Pyroscope or Parca.
type pprofBackend struct {
	*httptest.Server
	mu   sync.Mutex
	wall map[string]int64 // by "service pid"
}

func newPprofBackend(t *testing.T) *pprofBackend {
	b := &pprofBackend{wall: map[string]int64{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := b.take(r.Body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *pprofBackend) take(body io.Reader) error {
	z, err := gzip.NewReader(body)
	if err != nil {
		return err
	}
	type label struct{ Name, Value string }
	var q struct {
		Series []struct {
			Labels  json.RawMessage
			Samples []struct{ RawProfile []byte }
		}
	}
	if err := json.NewDecoder(z).Decode(&q); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range q.Series {
		var labels []label
		if json.Unmarshal(s.Labels, &labels) != nil { // Parca's are an object
			set := struct{ Labels *[]label }{&labels}
			if err := json.Unmarshal(s.Labels, &set); err != nil {
				return err
			}
		}
		of := map[string]string{}
		for _, l := range labels {
			of[l.Name] = l.Value
		}
		for _, x := range s.Samples {
			p, err := profile.ParseData(x.RawProfile)
			if err != nil {
				return err
			}
			for _, sample := range p.Sample {
				if n := sample.NumLabel["pid"]; fmt.Sprint(n[0]) != of["process_pid"] {
					return fmt.Errorf("a sample of process %v in the series %v", n, of)
				}
				b.wall[of["service_name"]+" "+of["process_pid"]] += sample.Value[2]
			}
		}
	}
	return nil
}

// TestWindowEnd: windows follow one another without gaps, each as long as asked for, unless one is read late.
func TestWindowEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		now  stack.Time
		last bool
		want stack.Time
	}{
		{now: 1120, want: 1099}, {now: 1219, want: 1099}, {now: 1220, want: 1200}, {now: 9000, want: 8980},
		{now: 1050, last: true, want: 1050}, {now: 1119, last: true, want: 1119},
	} {
		if got := windowEnd(1000, c.now, 100, 20, c.last); got != c.want {
			t.Errorf("at %d, last %v: %d, want %d", c.now, c.last, got, c.want)
		}
	}
}

// TestPushSeveral: a command with processes that begin and end during a window, or live for less than one, is pushed to
// the Collector's receiver, and to servers with the interfaces of Pyroscope and Parca. All have the same, which is what
// the recording has.
func TestPushSeveral(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	r, py, pa := otelreceiver.Start(t), newPprofBackend(t), newPprofBackend(t)
	dir := t.TempDir()
	b, err := os.ReadFile(testprog.Build(t, "c/spin", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"whole", "brief", "later"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const script = `./whole --seconds 4 & echo $! >whole.pid
./brief --seconds 1 & echo $! >brief.pid; wait $!
./later --seconds 2 & echo $! >later.pid
wait`
	res := sliver(t, dir, "record", "--otlp", r.URL, "--pyroscope", py.URL, "--parca", pa.URL, "--window", "1s", "--spool", "spool", "--max-overhead", "0", "--max-cpu", "0", "-o", "run.sliver", "--", "sh", "-c", script)
	var sent int
	if _, err := fmt.Sscanf(res.errors[max(strings.LastIndex(res.errors, "pushed "), 0):], "pushed %d windows", &sent); err != nil || res.status != 0 || sent%3 != 0 {
		t.Fatalf("%+v", res)
	}
	walls := map[string]int64{}
	for range sent / 3 {
		b := r.Next(t)
		key := fmt.Sprint(b.Resource["service.name"], " ", b.Resource["process.pid"])
		if b.Resource["service.name"] != b.Resource["process.executable.name"] || b.Resource["process.executable.path"] == nil {
			t.Errorf("resource %v", b.Resource)
		}
		for _, p := range b.Profiles {
			for _, s := range p.Samples {
				if p.Type == "wall" {
					walls[key] += s.Value
				}
				if p.Type == "cpu" && !strings.HasPrefix(key, "sh ") && len(s.Stack) > 20 && !strings.Contains(strings.Join(s.Stack, " "), "spin_") {
					t.Errorf("%s: stack %v", key, s.Stack)
				}
			}
		}
	}
	for _, b := range []*pprofBackend{py, pa} {
		if g, w := fmt.Sprint(b.wall), fmt.Sprint(walls); g != w {
			t.Errorf("%v, OTLP has %v", g, w)
		}
	}
	for _, name := range names {
		pid, err := os.ReadFile(filepath.Join(dir, name+".pid"))
		if err != nil {
			t.Fatal(err)
		}
		key := name + " " + strings.TrimSpace(string(pid))
		recorded := int64(0) // without gaps, which a busy machine makes
		for _, ns := range folded(t, dir, "run.sliver", "--idle", "--process", strings.TrimSpace(string(pid))) {
			recorded += ns
		}
		if wall := walls[key]; recorded == 0 || wall < recorded*9/10 || wall > recorded*11/10 {
			t.Errorf("%s: windows of %d ns, recorded %d", key, wall, recorded)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "spool")); len(left) > 0 {
		t.Errorf("%d files in the spool", len(left))
	}
}
