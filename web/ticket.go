package web

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/stack"
)

// ticket permits one download without a header, for a short time: for links and for
// readers that fetch by URL.
type ticket struct {
	format Format
	part   Part
	name   string
	until  time.Time
}

// partRequest is the body of /api/ticket and /api/perfetto. Times are ns since the base;
// both 0 select everything.
type partRequest struct {
	Format  string  `json:"format"`
	From    float64 `json:"from,omitempty"`
	To      float64 `json:"to,omitempty"`
	Threads []int   `json:"threads,omitempty"`
}

func (s *Server) part(r *http.Request) (*ticket, error) {
	var q partRequest
	if err := decode(r.Body, &q); err != nil {
		return nil, err
	}
	if s.o.Export == nil {
		return nil, errors.New("this server offers no downloads")
	}
	if slices.ContainsFunc(q.Threads, func(seq int) bool { return seq < 0 || seq > maxIndex }) {
		return nil, fmt.Errorf("threads: a number is out of range; use 0 to %d", maxIndex)
	}
	if math.Abs(q.From) > maxTime || math.Abs(q.To) > maxTime {
		return nil, errors.New("from or to is not a valid time")
	}
	for _, f := range s.o.Formats {
		if f.Name != q.Format {
			continue
		}
		t := &ticket{format: f, part: Part{Threads: q.Threads}, until: time.Now().Add(ticketLife)}
		t.part.of, _ = s.feed(0).src.(ofProcesses)
		if q.To > q.From {
			base := s.feed(0).base
			t.part.From, t.part.To = base+stack.Time(q.From), base+stack.Time(q.To)
		}
		comm := s.feed(0).src.Process().Comm
		t.name = fmt.Sprintf("%s-%d%s", fileName(comm), s.feed(0).src.Process().PID, f.Ext)
		return t, nil
	}
	return nil, fmt.Errorf("no format %q", q.Format)
}

func fileName(s string) string {
	b := []byte(s)
	for i, c := range b {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_') {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "recording"
	}
	return string(b)
}

func (s *Server) serveNewTicket(w http.ResponseWriter, r *http.Request) {
	t, err := s.part(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	id, err := s.issue(t)
	if err != nil {
		fail(w, http.StatusTooManyRequests, err.Error())
		return
	}
	reply(w, http.StatusOK, map[string]string{"url": "/t/" + id + "/" + url.PathEscape(t.name), "name": t.name})
}

func (s *Server) issue(t *ticket) (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a ticket: %w", err)
	}
	id := hex.EncodeToString(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, x := range s.tickets {
		if time.Now().After(x.until) {
			delete(s.tickets, k)
		}
	}
	if len(s.tickets) >= maxTickets {
		return "", errors.New("too many downloads are waiting; try again in a minute")
	}
	s.tickets[id] = t
	return id, nil
}

func (s *Server) serveTicket(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("ticket")
	s.mu.Lock()
	t := s.tickets[id]
	delete(s.tickets, id)
	s.mu.Unlock()
	if t == nil || time.Now().After(t.until) || t.name != r.PathValue("name") {
		http.Error(w, "This link has been used or is too old. Ask for the download again on the page.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Disposition", `attachment; filename="`+t.name+`"`)
	s.export(w, r, t)
}

// export streams. An error after the first byte closes the connection, so that a
// truncated file is recognizable.
func (s *Server) export(w http.ResponseWriter, r *http.Request, t *ticket) {
	select {
	case s.exports <- struct{}{}:
		defer func() { <-s.exports }()
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	cw := &countWriter{w: w}
	if err := s.o.Export(r.Context(), cw, t.format.Name, t.part); err != nil {
		s.o.Logf("export as %s: %v", t.format.Name, err)
		if cw.n == 0 {
			w.Header().Del("Content-Disposition")
			code := http.StatusInternalServerError
			if errors.Is(err, export.ErrNothing) {
				code = http.StatusNotFound
			}
			fail(w, code, "export as "+t.format.Name+": "+err.Error())
			return
		}
		panic(http.ErrAbortHandler)
	}
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// Perfetto's page accepts plain HTTP only from one address, see its
// docs/visualization/deep-linking-to-perfetto-ui.md.
const (
	perfettoAddr   = "127.0.0.1:9001"
	perfettoOrigin = "https://ui.perfetto.dev"
	perfettoWait   = 2 * time.Minute
)

// servePerfetto serves an export to Perfetto's page from the address that it accepts,
// once, and replies with the URL to open.
func (s *Server) servePerfetto(w http.ResponseWriter, r *http.Request) {
	t, err := s.part(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ln, err := net.Listen("tcp", perfettoAddr)
	if err != nil {
		fail(w, http.StatusConflict, "port 9001, the only one that Perfetto's page takes files from, is not free: "+err.Error())
		return
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		ln.Close()
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	name := hex.EncodeToString(id) + t.format.Ext
	ctx, cancel := context.WithTimeout(s.ctx, perfettoWait)
	srv := &http.Server{ReadHeaderTimeout: headTimeout, MaxHeaderBytes: maxHeader}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/"+name || r.Host != perfettoAddr || r.Method != http.MethodGet {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", perfettoOrigin)
		s.export(w, r, t)
		cancel()
	})
	s.wg.Add(2)
	go func() { defer s.wg.Done(); _ = srv.Serve(ln) }() // ends with the server
	go func() {
		defer s.wg.Done()
		<-ctx.Done()
		end, done := context.WithTimeout(context.Background(), headTimeout)
		defer done()
		_ = srv.Shutdown(end)
		cancel()
	}()
	reply(w, http.StatusOK, map[string]string{"url": perfettoOrigin + "/#!/?url=http://" + perfettoAddr + "/" + name})
}
