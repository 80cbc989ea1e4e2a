package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/store"
	"github.com/sliverprof/sliver/web/wire"
)

func recording(t testing.TB, o synth.Options) *trace.Recording {
	t.Helper()
	var b bytes.Buffer
	if _, err := synth.Write(&b, o); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func serve(t testing.TB, o web.Options) *web.Server {
	t.Helper()
	if o.Source == nil {
		o.Source = web.NewRecording(recording(t, synth.Options{Seed: 1, Threads: 3, Interval: 1_000_000, Samples: 500}))
	}
	s, err := web.Serve(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func dial(t testing.TB, s *web.Server) *client.Client {
	t.Helper()
	c, err := client.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// loaded waits until the recording is in memory.
func loaded(t testing.TB, s *web.Server) {
	t.Helper()
	var st client.Status
	for !st.Done {
		if err := dial(t, s).Ask(t.Context(), client.Query{Op: "status"}, &st); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefusals tries requests from another site, with another host name and with guessed
// tokens.
func TestRefusals(t *testing.T) {
	s := serve(t, web.Options{Hosts: []string{"profiler.example"}, Control: web.Control{Pause: func() error {
		t.Error("a request without the right to do so has paused the recording")
		return nil
	}}})
	base := "http://" + s.Addr().String()
	good := s.Token()
	for _, c := range []struct {
		name, method, path string
		set                map[string]string
		want               int
	}{
		{"page without a token", "GET", "/", nil, 200},
		{"page of a rebound name", "GET", "/", map[string]string{"Host": "evil.example"}, 421},
		{"rebound name with the token", "GET", "/api/info", map[string]string{"Host": "evil.example:80", "X-Sliver-Token": good}, 421},
		{"name that was allowed", "GET", "/", map[string]string{"Host": "Profiler.example:8443"}, 200},
		{"localhost through a forwarded port", "GET", "/", map[string]string{"Host": "localhost:9999"}, 200},
		{"plain address", "GET", "/", map[string]string{"Host": "[::1]:80"}, 200},
		{"name that only begins like localhost", "GET", "/", map[string]string{"Host": "localhost.evil.example"}, 421},
		{"no token", "GET", "/api/info", nil, 401},
		{"wrong token", "GET", "/api/info", map[string]string{"X-Sliver-Token": strings.Repeat("0", len(good))}, 401},
		{"half a token", "GET", "/api/info", map[string]string{"X-Sliver-Token": good[:16]}, 401},
		{"token in the query alone", "GET", "/api/info?token=" + good, nil, 401},
		{"token", "GET", "/api/info", map[string]string{"X-Sliver-Token": good}, 200},
		{"bearer", "GET", "/api/info", map[string]string{"Authorization": "Bearer " + good}, 200},
		{"another site", "GET", "/api/info", map[string]string{"X-Sliver-Token": good, "Origin": "https://evil.example"}, 403},
		{"no origin at all", "GET", "/api/info", map[string]string{"X-Sliver-Token": good, "Origin": "null"}, 403},
		{"another port here", "GET", "/api/info", map[string]string{"X-Sliver-Token": good, "Origin": "http://127.0.0.1:1"}, 403},
		{"cross-site without origin", "GET", "/api/info", map[string]string{"X-Sliver-Token": good, "Sec-Fetch-Site": "cross-site"}, 403},
		{"our own page", "GET", "/api/info", map[string]string{"X-Sliver-Token": good, "Origin": base}, 200},
		{"control without a token", "POST", "/api/control", nil, 401},
		{"control from another site", "POST", "/api/control", map[string]string{"X-Sliver-Token": good, "Origin": "https://evil.example"}, 403},
		{"control by GET", "GET", "/api/control", map[string]string{"X-Sliver-Token": good}, 405},
		{"websocket without a token", "GET", "/ws", map[string]string{"Connection": "Upgrade", "Upgrade": "websocket"}, 401},
		{"token of a protocol elsewhere", "GET", "/api/info", map[string]string{"Sec-WebSocket-Protocol": wire.Protocol + ".token." + good}, 401},
		{"ticket that was never given", "GET", "/t/0123/x.json", nil, 404},
		{"outside of the page", "GET", "/../../etc/passwd", nil, 404},
	} {
		req, err := http.NewRequest(c.method, base+c.path, strings.NewReader(`{"action":"pause"}`))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range c.set {
			if k == "Host" {
				req.Host = v
			} else {
				req.Header.Set(k, v)
			}
		}
		// Not the default client, as it follows redirects.
		r, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != c.want && !(c.want == 404 && r.StatusCode == 307) {
			t.Errorf("%s: status %d, want %d: %.200s", c.name, r.StatusCode, c.want, b)
		}
		csp := r.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", c.name, r.Header)
		}
		if strings.Contains(string(b), good) {
			t.Errorf("%s: the answer holds the token", c.name)
		}
	}
}

func TestWebsocketOrigin(t *testing.T) {
	s := serve(t, web.Options{})
	u := "ws://" + s.Addr().String() + "/ws"
	for _, c := range []struct {
		name      string
		protocols []string
		origin    string
		ok        bool
	}{
		{"our page", []string{wire.Protocol, wire.Protocol + ".token." + s.Token()}, "http://" + s.Addr().String(), true},
		{"another site with the token", []string{wire.Protocol, wire.Protocol + ".token." + s.Token()}, "https://evil.example", false},
		{"our page without a token", []string{wire.Protocol}, "http://" + s.Addr().String(), false},
		{"wrong token", []string{wire.Protocol, wire.Protocol + ".token.0000"}, "", false},
	} {
		d := websocket.Dialer{Subprotocols: c.protocols}
		conn, _, err := d.DialContext(t.Context(), u, http.Header{"Origin": {c.origin}})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			if p := conn.Subprotocol(); p != wire.Protocol {
				t.Errorf("%s: the server chose %q: the token must not come back", c.name, p)
			}
			conn.Close()
		}
	}
	d := websocket.Dialer{Subprotocols: []string{"sliver.v99"}}
	conn, _, err := d.DialContext(t.Context(), u, http.Header{"X-Sliver-Token": {s.Token()}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseProtocolError) {
		t.Errorf("a client of another version was told %v", err)
	}
}

func TestServeRefusesOpenAddress(t *testing.T) {
	src := web.NewRecording(recording(t, synth.Options{Seed: 1, Threads: 1, Interval: 1_000_000, Samples: 10}))
	for _, c := range []struct{ addr, token, want string }{
		{"0.0.0.0:0", "", "--web-token"},
		{":0", "", "--web-token"},
		{"192.0.2.1:80", "", "--web-token"},
		{"127.0.0.1:0", "short", "at least 16"},
		{"127.0.0.1:0", "a token with spaces", "cannot be in it"},
		{"nonsense", "", "HOST:PORT"},
	} {
		s, err := web.Serve(t.Context(), web.Options{Source: src, Addr: c.addr, Token: c.token})
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("address %q, token %q: %v, want something about %q", c.addr, c.token, err, c.want)
		}
	}
	s, err := web.Serve(t.Context(), web.Options{Source: src, Addr: "0.0.0.0:0", Token: "chosen-by-the-user_1"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.HasSuffix(s.URL(), "#token=chosen-by-the-user_1") || !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("URL %s", s.URL())
	}
}

func TestTokensDiffer(t *testing.T) {
	a, b := serve(t, web.Options{}), serve(t, web.Options{})
	if a.Token() == b.Token() || len(a.Token()) < 32 {
		t.Errorf("tokens %s and %s", a.Token(), b.Token())
	}
}

// TestQueries runs every query once and compares results that must agree.
func TestQueries(t *testing.T) {
	s := serve(t, web.Options{})
	loaded(t, s)
	c := dial(t, s)
	in, err := c.Info(t.Context())
	if err != nil || in.Live || in.Process.Comm != "shopd" || in.Version != wire.Version {
		t.Fatalf("info %+v, %v", in, err)
	}
	tree, err := c.Tree(t.Context(), 0, 0, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	mainFn := -1
	for i, n := range tree.Names {
		if n.Name == "main" {
			mainFn = i
		}
	}
	if mainFn < 0 {
		t.Fatalf("no main among %v", tree.Names)
	}
	var calls struct {
		Count int   `json:"count"`
		Total int64 `json:"total"`
	}
	if err := c.Ask(t.Context(), client.Query{Op: "calls", Func: uint32(mainFn), Threads: []int{0}}, &calls); err != nil {
		t.Fatal(err)
	}
	for i, f := range tree.Func {
		if i > 0 && int(f) == mainFn && (int(tree.Count[i]) != calls.Count || int64(tree.Wall[i]) != calls.Total) {
			t.Errorf("the tree has %d calls of %v ns, the sum of calls is %+v", tree.Count[i], tree.Wall[i], calls)
		}
	}
	var slices struct {
		Threads []struct {
			Rows []struct {
				Depth int         `json:"depth"`
				Items [][]float64 `json:"items"`
			} `json:"rows"`
		} `json:"threads"`
	}
	if err := c.Ask(t.Context(), client.Query{Op: "slices", Threads: []int{0}, Bin: 1e6}, &slices); err != nil || len(slices.Threads) != 1 {
		t.Fatalf("%v: %+v", err, slices)
	}
	n := uint32(0)
	for _, x := range tree.Count {
		n += x
	}
	got := uint32(0)
	for _, r := range slices.Threads[0].Rows {
		for _, x := range r.Items {
			if r.Depth < wire.FirstLane {
				got += uint32(x[3])
			}
		}
	}
	if got != n {
		t.Errorf("%d calls in slices, %d in the tree", got, n)
	}
	var detail struct {
		Interval int64 `json:"interval"`
		Calls    []struct {
			Name string `json:"name"`
			File string `json:"file"`
		} `json:"calls"`
	}
	if err := c.Ask(t.Context(), client.Query{Op: "detail", Thread: 0, Depth: -1, At: 1e8}, &detail); err != nil || len(detail.Calls) < 3 ||
		detail.Calls[1].Name != "main" || detail.Calls[1].File != "src/main.cc" || detail.Interval != 1_000_000 {
		t.Errorf("detail %+v, %v", detail, err)
	}
	var loads struct {
		Bins []float64 `json:"bins"`
	}
	if err := c.Ask(t.Context(), client.Query{Op: "loads", N: 20}, &loads); err != nil || len(loads.Bins) != 20 {
		t.Fatalf("loads %+v, %v", loads, err)
	}
	for _, b := range loads.Bins {
		if b < 0 || b > 3.3 {
			t.Errorf("three threads use %v CPUs", b)
		}
	}
	var e *client.Error
	for status, queries := range map[int][]client.Query{400: {{Op: "nonsense"}, {Op: "loads", N: 1 << 20}, {Op: "tree", T0: 1e300}}, 404: {{Op: "detail", Thread: 99}}} {
		for _, q := range queries {
			if err := c.Ask(t.Context(), q, nil); !errors.As(err, &e) || e.Status != status {
				t.Errorf("%+v: %v, want status %d", q, err, status)
			}
		}
	}
}

func TestExport(t *testing.T) {
	var got web.Part
	broken := errors.New("the disk of the export burns")
	s := serve(t, web.Options{
		Formats: []web.Format{{Name: "one", Title: "One", Ext: ".one"}, {Name: "bad", Title: "Bad", Ext: ".bad"}, {Name: "half", Title: "Half", Ext: ".half"}},
		Export: func(_ context.Context, w io.Writer, format string, p web.Part) error {
			got = p
			switch format {
			case "bad":
				return broken
			case "half":
				fmt.Fprint(w, strings.Repeat("x", 1<<20))
				return broken
			}
			_, err := io.WriteString(w, "content")
			return err
		}})
	c := dial(t, s)
	r, err := c.Export(t.Context(), client.Part{Format: "one", From: 10, To: 20, Threads: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r)
	r.Close()
	const base = 1_000_000_000_000
	if string(b) != "content" || got.From != base+10 || got.To != base+20 || len(got.Threads) != 1 {
		t.Errorf("got %q for %+v", b, got)
	}
	if _, err := c.Export(t.Context(), client.Part{Format: "none"}); err == nil {
		t.Error("an unknown format was exported")
	}
	if _, err := c.Export(t.Context(), client.Part{Format: "bad"}); err == nil || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("a failed export said %v", err)
	}
	r, err = c.Export(t.Context(), client.Part{Format: "half"})
	if err == nil {
		_, err = io.ReadAll(r)
		r.Close()
	}
	if err == nil {
		t.Error("half an export passed for a whole one")
	}
	// A ticket is valid once.
	req, _ := http.NewRequest("POST", "http://"+s.Addr().String()+"/api/ticket", strings.NewReader(`{"format":"one"}`))
	req.Header.Set("X-Sliver-Token", s.Token())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var ticket struct {
		URL string `json:"url"`
	}
	err = json.NewDecoder(resp.Body).Decode(&ticket)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{200, 404} {
		resp, err := http.Get("http://" + s.Addr().String() + ticket.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("ticket: status %d, want %d", resp.StatusCode, want)
		}
	}
}

func TestControl(t *testing.T) {
	var mu sync.Mutex
	var did []string
	note := func(s string) error {
		mu.Lock()
		defer mu.Unlock()
		did = append(did, s)
		return nil
	}
	s := serve(t, web.Options{Control: web.Control{
		Pause:       func() error { return note("pause") },
		SetInterval: func(d time.Duration) error { return note(d.String()) },
		Stop:        func() error { return errors.New("it cannot stop now") },
	}})
	c := dial(t, s)
	if err := c.Control(t.Context(), "pause", nil); err != nil {
		t.Error(err)
	}
	if err := c.Control(t.Context(), "interval", map[string]any{"interval_ns": 2_000_000}); err != nil {
		t.Error(err)
	}
	if err := c.Control(t.Context(), "stop", nil); err == nil || !strings.Contains(err.Error(), "cannot stop now") {
		t.Errorf("stop: %v", err)
	}
	var e *client.Error
	if err := c.Control(t.Context(), "resume", nil); !errors.As(err, &e) || e.Status != 404 {
		t.Errorf("what is not offered: %v", err)
	}
	if fmt.Sprint(did) != "[pause 2ms]" {
		t.Errorf("did %v", did)
	}
	in, err := c.Info(t.Context())
	if err != nil || fmt.Sprint(in.Control) != "[pause stop interval]" {
		t.Errorf("offers %v, %v", in.Control, err)
	}
}

func TestTooManyClients(t *testing.T) {
	s := serve(t, web.Options{MaxClients: 2})
	var ws []*client.Watch
	for range 2 {
		w, err := dial(t, s).Watch(t.Context(), client.View{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Next(); err != nil {
			t.Fatal(err)
		}
		ws = append(ws, w)
	}
	var e *client.Error
	if _, err := dial(t, s).Watch(t.Context(), client.View{}); !errors.As(err, &e) || e.Status != 503 {
		t.Errorf("a third client: %v", err)
	}
	ws[0].Close()
	for s.Clients() > 1 {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	w, err := dial(t, s).Watch(t.Context(), client.View{})
	if err != nil {
		t.Fatalf("after one has left: %v", err)
	}
	w.Close()
}

func TestBigAndBadMessages(t *testing.T) {
	s := serve(t, web.Options{})
	d := websocket.Dialer{Subprotocols: []string{wire.Protocol}}
	open := func() *websocket.Conn {
		conn, _, err := d.DialContext(t.Context(), "ws://"+s.Addr().String()+"/ws", http.Header{"X-Sliver-Token": {s.Token()}})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := open()
	defer conn.Close()
	answer := func(msg string) string {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(msg)); err != nil {
			t.Fatal(err)
		}
		for {
			_, b, err := conn.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b, []byte(`"op":"error"`)) || bytes.Contains(b, []byte(`"op":"reply"`)) {
				return string(b)
			}
		}
	}
	for _, m := range []string{`{`, `{"op":"view","t0":1e300}`, `{"op":"what","id":3}`, `[]`} {
		if a := answer(m); !strings.Contains(a, `"error"`) {
			t.Errorf("%s was answered by %s", m, a)
		}
	}
	if a := answer(`{"op":"loads","id":7,"n":3}`); !strings.Contains(a, `"id":7`) {
		t.Errorf("after bad messages a good one was answered by %s", a)
	}
	big := open()
	defer big.Close()
	if err := big.WriteMessage(websocket.TextMessage, bytes.Repeat([]byte(" "), 1<<20)); err == nil {
		for err == nil {
			_, _, err = big.ReadMessage()
		}
	}
	if s.Clients() > 2 {
		t.Errorf("%d clients", s.Clients())
	}
	resp, err := http.DefaultClient.Do(func() *http.Request {
		r, _ := http.NewRequest("POST", "http://"+s.Addr().String()+"/api/query", strings.NewReader(strings.Repeat(" ", 1<<20)))
		r.Header.Set("X-Sliver-Token", s.Token())
		return r
	}())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("a body of a megabyte: status %d", resp.StatusCode)
	}
}

// slow is a source that starts to read on request.
type slow struct {
	web.Source
	begin chan struct{}
}

func (s *slow) Run(ctx context.Context, st *store.Store) (string, error) {
	<-s.begin
	return s.Source.Run(ctx, st)
}

// TestCompare: the comparison uses the whole other recording, even if the query comes
// before it is read.
func TestCompare(t *testing.T) {
	other := &slow{web.NewRecording(recording(t, synth.Options{Seed: 9, Threads: 1, Interval: 1_000_000, Samples: 300})), make(chan struct{})}
	s := serve(t, web.Options{Compare: other})
	loaded(t, s)
	conn, _, err := (&websocket.Dialer{Subprotocols: []string{wire.Protocol}}).DialContext(t.Context(), "ws://"+s.Addr().String()+"/ws", http.Header{"X-Sliver-Token": {s.Token()}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(`{"op":"tree","id":1,"src":1}`)); err != nil {
		t.Fatal(err)
	}
	loaded(t, s) // queried on another connection, so the first query has most likely arrived
	close(other.begin)
	for {
		_, b, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Op    string      `json:"op"`
			Value client.Tree `json:"value"`
		}
		if json.Unmarshal(b, &m) != nil || m.Op != "reply" {
			continue
		}
		if len(m.Value.Names) == 0 {
			t.Errorf("the other recording's tree came without names: %s", b)
		}
		return
	}
}

func TestPageIsWhole(t *testing.T) {
	s := serve(t, web.Options{})
	base := "http://" + s.Addr().String()
	total := 0
	html, err := os.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile(`src="(app\.js\?[0-9a-f]{16})"`).FindSubmatch(html)
	if script == nil {
		t.Fatal("the page names no script by its hash")
	}
	for _, p := range []string{"/", "/" + string(script[1])} {
		req := httptest.NewRequest("GET", base+p, nil)
		req.RequestURI = ""
		req.Header.Set("Accept-Encoding", "gzip")
		r, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != 200 || len(b) == 0 {
			t.Errorf("%s: %d, %d bytes", p, r.StatusCode, len(b))
		}
		total += len(b)
		if keep := strings.Contains(r.Header.Get("Cache-Control"), "immutable"); keep != strings.Contains(p, "?") {
			t.Errorf("%s: Cache-Control is %q", p, r.Header.Get("Cache-Control"))
		}
		req.Header.Set("If-None-Match", r.Header.Get("ETag"))
		if r, err = http.DefaultTransport.RoundTrip(req); err != nil || r.StatusCode != 304 {
			t.Errorf("%s again: %v, %v", p, r, err)
		} else {
			r.Body.Close()
		}
	}
	if total > 250_000 {
		t.Errorf("the page is %d bytes compressed, the limit is 250 kB", total)
	}
	u, err := url.Parse(s.URL())
	if err != nil || u.Path != "/" || !strings.Contains(u.Fragment, "token=") || u.RawQuery != "" {
		t.Errorf("URL %s: the token belongs into the fragment", s.URL())
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s := serve(t, web.Options{})
	w, err := dial(t, s).Watch(t.Context(), client.View{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Next()
	}
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		t.Error("it still listens")
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}
