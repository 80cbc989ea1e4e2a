// Package client is a client for the server of a sliver page. It queries a recording, live or finished,
// watches it as it grows, controls it if the server allows that, and downloads exports. docs/web-api.md
// describes the protocol.
//
// A Client may be used by several goroutines, a Watch by one at a time.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sliverprof/sliver/web/wire"
)

// Client is a server's address and token.
type Client struct {
	// HTTP sends the requests; http.DefaultClient if nil.
	HTTP  *http.Client
	base  *url.URL
	token string
}

// New parses the URL that sliver printed, with its token.
func New(printed string) (*Client, error) {
	u, err := url.Parse(printed)
	if err != nil {
		return nil, fmt.Errorf("sliver URL: %w", err)
	}
	v, err := url.ParseQuery(u.Fragment)
	if err != nil || v.Get("token") == "" || u.Host == "" {
		return nil, fmt.Errorf("sliver URL %q: no #token= in it; take the whole URL that sliver printed", u.Redacted())
	}
	return &Client{base: &url.URL{Scheme: u.Scheme, Host: u.Host}, token: v.Get("token")}, nil
}

// Info describes a server; see helloMessage in docs/web-api.md.
type Info struct {
	Version int      `json:"version"`
	Program string   `json:"program"`
	Live    bool     `json:"live"`
	Base    int64    `json:"base,string"` // time 0 of the timeline, in ns of CLOCK_MONOTONIC
	Wall    int64    `json:"wall"`        // ms since 1970 at Base
	Control []string `json:"control"`
	Notes   []string `json:"notes"`
	Compare string   `json:"compare"` // description of the recording to compare with; "": none
	Process struct {
		PID      int      `json:"pid"`
		Comm     string   `json:"comm"`
		Exe      string   `json:"exe"`
		Cmdline  []string `json:"cmdline"`
		Interval int64    `json:"interval_ns"`
	} `json:"process"`
	// Processes are those of a recording of several, so far; a thread's Process is an index.
	Processes []Process `json:"processes"`
	Formats   []struct {
		Name  string `json:"name"`
		Title string `json:"title"`
		Ext   string `json:"ext"`
	} `json:"formats"`
}

// Process is one process of a recording of several.
type Process struct {
	PID     int      `json:"pid"`
	Parent  int      `json:"ppid"` // 0: not in the recording
	Comm    string   `json:"comm"`
	Exe     string   `json:"exe"`
	Cmdline []string `json:"cmdline"`
	Ended   bool     `json:"ended"` // while others were still recorded
	Exit    string   `json:"exit"`  // how it ended, such as "exit status 1" or "killed by SIGKILL"; "": unknown
}

// Info returns the server's description.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	var in Info
	if err := c.call(ctx, http.MethodGet, "/api/info", nil, &in); err != nil {
		return nil, err
	}
	return &in, nil
}

// Query is a query; docs/web-api.md lists the values of Op and their fields. Times are ns since
// Info.Base.
type Query struct {
	Op       string   `json:"op"`
	Src      int      `json:"src,omitempty"` // 1: the recording to compare with
	T0       float64  `json:"t0,omitempty"`
	T1       float64  `json:"t1,omitempty"`
	Bin      float64  `json:"bin,omitempty"`
	Threads  []int    `json:"threads,omitempty"`
	Thread   int      `json:"thread,omitempty"`
	Depth    int      `json:"depth,omitempty"`
	At       float64  `json:"at,omitempty"`
	Func     uint32   `json:"func,omitempty"`
	Funcs    []uint32 `json:"funcs,omitempty"`
	Task     uint64   `json:"task,omitempty"`
	Process  *int     `json:"process,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	ByThread bool     `json:"by_thread,omitempty"`
	Max      int      `json:"max,omitempty"`
	N        int      `json:"n,omitempty"`
	From     int      `json:"from,omitempty"`
	Kinds    string   `json:"kinds,omitempty"` // of the calls to include: native, go, python, …, separated by commas; "": all
}

// Ask sends q and decodes the reply into out, which has the shape that docs/web-api.md gives for q.Op.
func (c *Client) Ask(ctx context.Context, q Query, out any) error {
	return c.call(ctx, http.MethodPost, "/api/query", q, out)
}

// Func is a function's name.
type Func struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Module string `json:"module"`
	Kind   string `json:"kind"` // "": native code
}

// Tree is a merged call tree in columns; node 0 is the root, parents come before their children, times
// are in ns and include callees.
type Tree struct {
	Parent  []int32   `json:"parent"`
	Func    []uint32  `json:"func"`
	Count   []uint32  `json:"count"`
	Samples []uint32  `json:"samples"`
	Wall    []float64 `json:"wall"`
	CPU     []float64 `json:"cpu"`
	Wait    []float64 `json:"wait"`
	Folded  int       `json:"folded"`
	Names   []Func    `json:"names"` // by Func
}

// Tree sums the calls in [t0, t1) (both 0: all) of threads (nil: all).
func (c *Client) Tree(ctx context.Context, t0, t1 float64, threads []int) (*Tree, error) {
	var t Tree
	if err := c.Ask(ctx, Query{Op: "tree", T0: t0, T1: t1, Threads: threads, From: 1}, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// Control requests an action: "start" (again, after the end), "pause", "resume", "stop", or "interval"
// with interval_ns, "threads" with threads, "keep" with last_ns in args.
func (c *Client) Control(ctx context.Context, action string, args map[string]any) error {
	body := map[string]any{"action": action}
	for k, v := range args {
		body[k] = v
	}
	return c.call(ctx, http.MethodPost, "/api/control", body, nil)
}

// Part selects the part of a recording to export; zero values select everything.
type Part struct {
	Format   string  `json:"format"`
	From, To float64 `json:"-"`
	Threads  []int   `json:"threads,omitempty"`
}

// Export downloads the recording, or a part of it, in a format of Info.Formats. The caller closes the
// body.
func (c *Client) Export(ctx context.Context, p Part) (io.ReadCloser, error) {
	body := map[string]any{"format": p.Format}
	if p.To > p.From {
		body["from"], body["to"] = p.From, p.To
	}
	if p.Threads != nil {
		body["threads"] = p.Threads
	}
	var t struct {
		URL string `json:"url"`
	}
	if err := c.call(ctx, http.MethodPost, "/api/ticket", body, &t); err != nil {
		return nil, err
	}
	r, err := c.do(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return nil, err
	}
	return r.Body, nil
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	r, err := c.do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(r.Body).Decode(out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil
}

// maxError limits the length of a server's error message.
const maxError = 64 << 10

func (c *Client) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	ref, err := url.Parse(path)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.ResolveReference(ref).String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Sliver-Token", c.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	h := c.HTTP
	if h == nil {
		h = http.DefaultClient
	}
	r, err := h.Do(req)
	if err != nil {
		return nil, err
	}
	if r.StatusCode == http.StatusOK {
		return r, nil
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(r.Body, maxError)) // the status is enough
	var e struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(b, &e) != nil || e.Error == "" {
		e.Error = strings.TrimSpace(string(b))
	}
	return nil, &Error{Status: r.StatusCode, Text: e.Error}
}

// Error is a refusal by the server.
type Error struct {
	Status int // HTTP status; 0 over a websocket
	Text   string
}

func (e *Error) Error() string { return "sliver: " + e.Text }

// View selects the content of a Watch: see the op "view" in docs/web-api.md.
type View struct {
	T0      float64 `json:"t0"`
	T1      float64 `json:"t1"`
	Bin     float64 `json:"bin"`     // ns: thinner slices are merged; 0: none
	Threads []int   `json:"threads"` // nil: all, including later ones
	Follow  bool    `json:"follow"`  // no end: frames come as long as samples do
}

// Status arrives about once a second.
type Status struct {
	From   float64 `json:"from"`
	To     float64 `json:"to"`
	Done   bool    `json:"done"`
	Reason string  `json:"reason"`
	Error  string  `json:"error"`
	Held   int     `json:"held"`
	// InFile is how many of the slices are in a file of the server's.
	InFile  int    `json:"in_file"`
	Dropped uint64 `json:"dropped"`

	Threads []struct {
		Seq     int    `json:"seq"`
		TID     int    `json:"tid"`
		Name    string `json:"name"`
		Main    bool   `json:"main"`
		CPU     int64  `json:"cpu"`
		Samples uint64 `json:"samples"`
		State   string `json:"state"`
		Ended   bool   `json:"ended"`
		Process int    `json:"process"` // index in Processes, of a recording of several
	} `json:"threads"`

	// Recording holds the statistics of a recording; nil if a file has none.
	Recording *Recording `json:"status"`
}

// Recording is the progress of a recording.
type Recording struct {
	Paused   bool          `json:"paused"`
	Interval time.Duration `json:"interval_ns"`
	Samples  uint64        `json:"samples"`
	Lost     uint64        `json:"lost"`      // ticks and events without a sample
	PauseP50 int64         `json:"pause_p50"` // ns a thread was stopped, median
	PauseP99 int64         `json:"pause_p99"`
	Overhead float64       `json:"overhead"` // share of the threads' time
	Threads  string        `json:"threads"`  // the selection, in the format of --threads
}

// Watch receives a view.
type Watch struct {
	conn  *websocket.Conn
	close sync.Once
	stop  func() bool

	// Funcs are the functions received so far, by the numbers in frames; for the goroutine that calls
	// Next.
	Funcs []Func
	// Status is the newest one; nil before the first.
	Status *Status
	// Processes are those of a recording of several, as far as known with Status.
	Processes []Process
}

// Watch opens a websocket and requests a view. It ends with ctx or by Close.
func (c *Client) Watch(ctx context.Context, v View) (*Watch, error) {
	u := *c.base
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	u.Path = "/ws"
	d := websocket.Dialer{Subprotocols: []string{wire.Protocol}}
	conn, r, err := d.DialContext(ctx, u.String(), http.Header{"X-Sliver-Token": {c.token}})
	if err != nil {
		if r != nil {
			defer r.Body.Close()
			return nil, &Error{Status: r.StatusCode, Text: fmt.Sprintf("the websocket was refused: %v", r.Status)}
		}
		return nil, fmt.Errorf("open the websocket: %w", err)
	}
	conn.SetReadLimit(wire.MaxFrame)
	w := &Watch{conn: conn}
	w.stop = context.AfterFunc(ctx, func() { conn.Close() })
	if err := w.Show(v); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Show changes the view; the next TypeView frame belongs to it.
func (w *Watch) Show(v View) error {
	if err := w.conn.WriteJSON(struct {
		Op string `json:"op"`
		View
	}{"view", v}); err != nil {
		return fmt.Errorf("ask for a view: %w", err)
	}
	return nil
}

// Next waits for the next frame. It stores names and status messages in Funcs and Status. After a
// wire.TypeView, a TypeMore replaces the open slices and adds its own; a TypeGap reports that the caller
// was too slow.
func (w *Watch) Next() (*wire.Frame, error) {
	for {
		typ, b, err := w.conn.ReadMessage()
		if err != nil {
			return nil, fmt.Errorf("read from sliver: %w", err)
		}
		if typ == websocket.BinaryMessage {
			return wire.Decode(b)
		}
		if err := w.take(b); err != nil {
			return nil, err
		}
	}
}

func (w *Watch) take(b []byte) error {
	var m struct {
		Op    string `json:"op"`
		From  int    `json:"from"`
		Funcs []Func `json:"funcs"`
		Error string `json:"error"`
	}
	var op struct {
		Op string `json:"op"`
	}
	if err := json.Unmarshal(b, &op); err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	switch op.Op {
	case "status":
		w.Status = &Status{}
		if err := json.Unmarshal(b, w.Status); err != nil {
			return fmt.Errorf("read a status: %w", err)
		}
	case "hello", "processes":
		if err := w.processes(op.Op, b); err != nil {
			return fmt.Errorf("read processes: %w", err)
		}
	case "names":
		if err := json.Unmarshal(b, &m); err != nil {
			return fmt.Errorf("read names: %w", err)
		}
		if m.From != len(w.Funcs) {
			return errors.New("names are missing: the connection is out of step")
		}
		w.Funcs = append(w.Funcs, m.Funcs...)
	case "error":
		if err := json.Unmarshal(b, &m); err != nil {
			return fmt.Errorf("read an error: %w", err)
		}
		return &Error{Text: m.Error}
	}
	return nil
}

// Name returns the name of function i, if it has been received.
func (w *Watch) Name(i uint32) string {
	if int(i) < len(w.Funcs) {
		return w.Funcs[i].Name
	}
	return fmt.Sprintf("function %d", i)
}

// Close ends the watch; Next then fails.
func (w *Watch) Close() error {
	var err error
	w.close.Do(func() {
		w.stop()
		err = w.conn.Close()
	})
	return err
}

// processes takes in all processes, or those that are new or changed.
func (w *Watch) processes(op string, b []byte) error {
	if op == "hello" {
		var in Info
		err := json.Unmarshal(b, &in)
		w.Processes = in.Processes
		return err
	}
	var m struct {
		Changed map[int]Process `json:"changed"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for _, i := range slices.Sorted(maps.Keys(m.Changed)) {
		if i < 0 || i > len(w.Processes) {
			return fmt.Errorf("process %d after %d", i, len(w.Processes))
		}
		if i == len(w.Processes) {
			w.Processes = append(w.Processes, Process{})
		}
		w.Processes[i] = m.Changed[i]
	}
	return nil
}
