package web

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Recorders gives the page access to the user's flight recorders. Its methods may be
// called concurrently.
type Recorders interface {
	// List returns the running recorders.
	List(ctx context.Context) ([]Recorder, error)
	// Dump makes the named recorder write a dump, and returns the files. The error wraps
	// ErrNoRecorder for an unknown name.
	Dump(ctx context.Context, name string) ([]string, error)
}

// ErrNoRecorder reports that no recorder with this name is running.
var ErrNoRecorder = errors.New("no such recorder is running")

// Recorder is a running flight recorder.
type Recorder struct {
	Name    string   `json:"name"`
	PID     int      `json:"pid"`
	Keep    string   `json:"keep"` // per thread
	Dir     string   `json:"dir"`
	Targets []string `json:"targets"` // watched processes
	Waiting string   `json:"waiting,omitempty"`
	Trouble string   `json:"trouble,omitempty"`
	Dumps   []Dump   `json:"dumps"` // the latest, oldest first
}

// Dump is a file that a flight recorder wrote.
type Dump struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	File   string    `json:"file"`
	Bytes  int64     `json:"bytes"`
}

func (s *Server) serveRecorders(w http.ResponseWriter, r *http.Request) {
	if s.o.Recorders == nil {
		fail(w, http.StatusNotFound, "no flight recorders are shown here")
		return
	}
	all, err := s.o.Recorders.List(r.Context())
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if all == nil {
		all = []Recorder{}
	}
	reply(w, http.StatusOK, map[string][]Recorder{"recorders": all})
}

func (s *Server) serveDump(w http.ResponseWriter, r *http.Request) {
	var x struct {
		Recorder string `json:"recorder"`
	}
	if err := decode(r.Body, &x); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.o.Recorders == nil {
		fail(w, http.StatusNotFound, "no flight recorders are shown here")
		return
	}
	files, err := s.o.Recorders.Dump(r.Context(), x.Recorder)
	if errors.Is(err, ErrNoRecorder) {
		fail(w, http.StatusNotFound, err.Error())
		return
	}
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	reply(w, http.StatusOK, map[string][]string{"files": files})
}
