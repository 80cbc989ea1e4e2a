package push

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/export/foreign"
	"github.com/sliverprof/sliver/export/otlp"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/otelreceiver"
	"github.com/sliverprof/sliver/trace"
)

// process returns a recording of a process with calls of text.
func process(t testing.TB, pid int, name, text string) *trace.Recording {
	t.Helper()
	var b bytes.Buffer
	if _, err := foreign.ReadNanoscope(strings.NewReader(text), nil, &b, foreign.Options{Name: name}); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	rec.Process.PID = pid
	return rec
}

// processes returns a recording of n processes, p1 with number 1 and so on. That of number late has calls after time
// 1000 only.
func processes(t testing.TB, n, late int) *trace.Recording {
	t.Helper()
	var all *trace.Recording
	for i := 1; i <= n; i++ {
		at := 0
		if i == late {
			at = 1000
		}
		one := process(t, i, fmt.Sprint("p", i), fmt.Sprintf("%d:+main\n%d:+work%d\n%d:POP\n%d:POP\n", at+1, at+10, i, at+90, at+100))
		if all == nil {
			all = one
		} else {
			all.Others = append(all.Others, one)
		}
	}
	return all
}

// raw are the profiles of a request to Pyroscope or Parca, by process.
func raw(t testing.TB, k Kind, body []byte) map[string]*profile.Profile {
	t.Helper()
	var a struct {
		Series []struct {
			Labels  json.RawMessage
			Samples []struct{ RawProfile []byte }
		}
	}
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatal(err)
	}
	out := map[string]*profile.Profile{}
	for _, s := range a.Series {
		var labels []label
		set := struct{ Labels *[]label }{&labels}
		err := json.Unmarshal(s.Labels, &labels)
		if k == Parca {
			err = json.Unmarshal(s.Labels, &set)
		}
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]string{}
		for _, l := range labels {
			of[l.Name] = l.Value
		}
		if of["service_name"] != of["process_executable_name"] || of["service_name"] != "p"+of["process_pid"] || of["__name__"] != "process_cpu" {
			t.Errorf("labels %v", of)
		}
		p, err := profile.ParseData(s.Samples[0].RawProfile)
		if err != nil || len(s.Samples) != 1 || out[of["service_name"]] != nil {
			t.Fatalf("%v: %d profiles: %v", of, len(s.Samples), err)
		}
		out[of["service_name"]] = p
	}
	return out
}

// Each process with samples in the window has a resource or a series of its own, and a request has a bounded number.
func TestSeveralProcesses(t *testing.T) {
	const n, late = 2*maxTogether + 3, 7
	r, py, pa := otelreceiver.Start(t), newBackend(t), newBackend(t)
	p, ps := pusher(t, t.TempDir(), Options{Sinks: []*Sink{sink(t, OTLP, r.URL), sink(t, Pyroscope, py.URL), sink(t, Parca, pa.URL)}})
	if err := p.Window(processes(t, n, late), view.Options{From: 1, To: 500}); err != nil {
		t.Fatal(err)
	}
	if rep := closed(p); rep != (Report{Sent: 3 * (n - 1)}) || ps.String() != "" {
		t.Fatalf("%+v %s", rep, ps)
	}
	seen := map[string]bool{}
	for range n - 1 {
		b := r.Next(t)
		name := fmt.Sprint(b.Resource["service.name"])
		if seen[name] || name != fmt.Sprint("p", b.Resource["process.pid"]) || b.Resource["process.executable.name"] != name {
			t.Errorf("resource %v", b.Resource)
		}
		seen[name] = true
		for _, x := range b.Profiles {
			for _, s := range x.Samples {
				if stack := strings.Join(s.Stack, " "); strings.Contains(stack, "work") && !strings.Contains(stack, "work"+name[1:]+" ") {
					t.Errorf("%s: %s", name, stack)
				}
			}
		}
	}
	for k, b := range map[Kind]*backend{Pyroscope: py, Parca: pa} {
		if len(b.took) != 3 {
			t.Errorf("%s: %d requests", k, len(b.took))
		}
		got := 0
		for _, q := range b.took {
			for name, prof := range raw(t, k, q.body) {
				got++
				if !seen[name] || !strings.Contains(prof.String(), "work"+name[1:]) {
					t.Errorf("%s: %s: %v", k, name, prof)
				}
			}
		}
		if got != n-1 {
			t.Errorf("%s: %d processes", k, got)
		}
	}
}

// The service that the user gives is that of all.
func TestSeveralService(t *testing.T) {
	r := otelreceiver.Start(t)
	p, _ := pusher(t, t.TempDir(), Options{Sinks: []*Sink{sink(t, OTLP, r.URL)}, Resource: []otlp.Attribute{{Key: "service.name", Value: "shop"}}})
	if err := p.Window(processes(t, 2, 0), view.Options{}); err != nil {
		t.Fatal(err)
	}
	closed(p)
	for _, b := range []otelreceiver.Batch{r.Next(t), r.Next(t)} {
		if b.Resource["service.name"] != "shop" || b.Resource["process.executable.name"] != fmt.Sprint("p", b.Resource["process.pid"]) {
			t.Errorf("resource %v", b.Resource)
		}
	}
}

// large returns calls of n functions whose names cannot be compressed.
func large(n int) string {
	var s strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	s.WriteString("1:+main\n")
	for i := range n {
		fmt.Fprintf(&s, "%d:+f%x%x%x\n%d:POP\n", 10*i+10, r.Uint64(), r.Uint64(), r.Uint64(), 10*i+15)
	}
	fmt.Fprintf(&s, "%d:POP\n", 10*n+20)
	return s.String()
}

// A process whose window does not fit into the spool is lost and counted, once for each backend. The others are sent.
func TestSeveralOneFails(t *testing.T) {
	const n, bad = maxTogether, 5
	rec := processes(t, n, 0)
	rec.Others[bad-2] = process(t, bad, "p5", large(3000))
	r, py := otelreceiver.Start(t), newBackend(t)
	spool, err := OpenSpool(t.TempDir(), 40_000)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := pusher(t, "", Options{Sinks: []*Sink{sink(t, OTLP, r.URL), sink(t, Pyroscope, py.URL)}, Spool: spool})
	err = p.Window(rec, view.Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "process 5: spool: an item of ") || !strings.HasSuffix(err.Error(), ", and 1 more") {
		t.Errorf("error %v", err)
	}
	if rep := closed(p); rep != (Report{Sent: 2 * (n - 1), Lost: 2}) {
		t.Fatalf("%+v", rep)
	}
	got := map[string]bool{}
	for range n - 1 {
		got[fmt.Sprint(r.Next(t).Resource["service.name"])] = true
	}
	for _, q := range py.took {
		for name := range raw(t, Pyroscope, q.body) {
			if !got[name] {
				t.Errorf("%s is with one backend only", name)
			}
		}
	}
	if len(got) != n-1 || got["p5"] {
		t.Errorf("received %v", got)
	}
}

// Windows of several processes that wait on disk, are dropped there or refused are counted by process, and all of those
// that wait are sent later.
func TestSeveralWait(t *testing.T) {
	dir := t.TempDir()
	down := newBackend(t)
	url := down.URL
	down.Server.Close()
	p, _ := pusher(t, dir, Options{Sinks: []*Sink{sink(t, Parca, url)}})
	if err := p.Window(processes(t, 5, 0), view.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if rep := p.Close(ctx); rep != (Report{Waiting: 5}) {
		t.Fatalf("%+v", rep)
	}
	up := newBackend(t, 400)
	s := sink(t, Parca, url)
	p, ps := pusher(t, dir, Options{Sinks: []*Sink{s}, Client: &http.Client{Transport: to(up.Listener.Addr().String())}})
	if rep := closed(p); rep != (Report{Lost: 5}) || !strings.Contains(ps.String(), "refused the windows of 5 processes: status 400") {
		t.Errorf("%+v: %s", rep, ps)
	}
	p, _ = pusher(t, dir, Options{Sinks: []*Sink{s}, Client: &http.Client{Transport: to(up.Listener.Addr().String())}})
	if err := p.Window(processes(t, 4, 0), view.Options{}); err != nil {
		t.Fatal(err)
	}
	if rep := closed(p); rep != (Report{Sent: 4}) || len(up.took) != 1 || len(raw(t, Parca, up.took[0].body)) != 4 {
		t.Errorf("%+v, took %d", rep, len(up.took))
	}
	spool, err := OpenSpool(dir, 40_000)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := spool.Put(&Item{To: s.Key(), Processes: 3, Body: make([]byte, 20_000)}); err != nil {
			t.Fatal(err)
		}
	}
	if spool.Dropped() != 19*3 || spool.Waiting(s.Key()) != 3 {
		t.Errorf("%d dropped, %d wait", spool.Dropped(), spool.Waiting(s.Key()))
	}
}
