package stacks

import (
	"encoding/json"
	"io"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/graph"
	"github.com/sliverprof/sliver/wait/kind"
)

// Version is the version of the JSON. It increases when a field changes its meaning or is
// removed, but not for new fields.
const Version = 1

// The types below are the document: see docs/stack-json.md.
type (
	document struct {
		Version   int        `json:"version"`
		PID       int        `json:"pid"`
		Name      string     `json:"name"`
		Time      string     `json:"time"`
		Threads   []thread   `json:"threads"`
		Deadlocks []deadlock `json:"deadlocks"`
		Convoys   []convoy   `json:"convoys"`

		Goroutines []goroutine `json:"goroutines,omitempty"`
		Unread     int         `json:"goroutines_unread,omitempty"`
	}
	goroutine struct {
		ID        uint64     `json:"id"`
		Parent    *uint64    `json:"parent"`
		Status    string     `json:"status"`
		Wait      *string    `json:"wait"`
		For       *int64     `json:"waiting_ns"`
		TID       *stack.TID `json:"tid"`
		Locked    bool       `json:"locked"`
		CreatedBy *frame     `json:"created_by"`
		Frames    []frame    `json:"frames"`
		Truncated *string    `json:"truncated"`
	}
	thread struct {
		TID       stack.TID `json:"tid"`
		Name      string    `json:"name"`
		OwnName   *string   `json:"own_name"`
		Carries   *string   `json:"carries"`
		State     string    `json:"state"`
		CPU       *int64    `json:"cpu_ns"`
		Wait      *waitFor  `json:"wait"`
		Frames    []frame   `json:"frames"`
		Truncated *string   `json:"truncated"`
	}
	waitFor struct {
		Kind    string  `json:"kind"`
		Call    *string `json:"call"`
		Args    *string `json:"args"`
		Timeout *int64  `json:"timeout_ns"`
		File    *string `json:"file"`
		Peer    *string `json:"peer"`
		PeerPID *int    `json:"peer_pid"`
		Lock    *lockOf `json:"lock"`
		Why     *string `json:"why"`
	}
	lockOf struct {
		Addr          *string    `json:"addr"`
		Kind          string     `json:"kind"`
		Type          *string    `json:"type"`
		KindKnownBy   *string    `json:"kind_known_by"`
		Symbol        *string    `json:"symbol"`
		Module        *string    `json:"module"`
		Path          *string    `json:"path"`
		Shared        bool       `json:"shared"`
		Mutex         *string    `json:"mutex"`
		Readers       *int       `json:"readers"`
		HolderTID     *stack.TID `json:"holder_tid"`
		HolderKnownBy *string    `json:"holder_known_by"`
		HolderWhy     *string    `json:"holder_why"`
		Note          *string    `json:"note"`
	}
	frame struct {
		Addr    string  `json:"addr"`
		Func    *string `json:"func"`
		Offset  *uint64 `json:"offset"`
		Module  *string `json:"module"`
		BuildID *string `json:"build_id"`
		File    *string `json:"file"`
		Line    *int    `json:"line"`
		Inlined bool    `json:"inlined"`
		Trust   string  `json:"trust"`
		Kind    string  `json:"kind"`
	}
	member struct {
		PID  int       `json:"pid"`
		TID  stack.TID `json:"tid"`
		Lock lockOf    `json:"lock"`
	}
	deadlock struct {
		Threads []member `json:"threads"`
		Timed   bool     `json:"timed"`
	}
	waiter struct {
		PID int       `json:"pid"`
		TID stack.TID `json:"tid"`
	}
	convoy struct {
		Lock         lockOf   `json:"lock"`
		Waiters      []waiter `json:"waiters"`
		HolderFrames []frame  `json:"holder_frames"`
	}
)

// some returns nil for an unknown value, so that the field is null and not zero.
func some[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// WriteJSON writes the document of docs/stack-json.md and a newline.
func (s *Snapshot) WriteJSON(w io.Writer) error {
	d := document{Version: Version, PID: s.PID, Name: s.Comm, Time: s.Time.UTC().Format(time.RFC3339Nano),
		Threads: []thread{}, Deadlocks: []deadlock{}, Convoys: []convoy{}}
	for i := range s.Threads {
		d.Threads = append(d.Threads, threadOf(&s.Threads[i]))
	}
	for _, x := range s.Deadlocks {
		o := deadlock{Timed: x.Timed}
		for _, t := range x.Threads {
			o.Threads = append(o.Threads, member{t.PID, t.TID, *lockJSON(t.Info.Lock)})
		}
		d.Deadlocks = append(d.Deadlocks, o)
	}
	for _, x := range s.Convoys {
		d.Convoys = append(d.Convoys, s.convoyOf(&x))
	}
	for i := range s.Goroutines {
		d.Goroutines = append(d.Goroutines, goroutineOf(&s.Goroutines[i]))
	}
	d.Unread = s.Unread
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}

func (s *Snapshot) convoyOf(c *graph.Convoy) convoy {
	o := convoy{Lock: *lockJSON(c.Lock), HolderFrames: []frame{}}
	for _, t := range c.Waiters {
		o.Waiters = append(o.Waiters, waiter{t.PID, t.TID})
	}
	if t := s.Thread(c.Lock.Holder.TID); t != nil {
		o.HolderFrames = framesOf(t.Frames)
	}
	return o
}

func threadOf(t *Thread) thread {
	o := thread{TID: t.TID, Name: t.Name, OwnName: some(t.OwnName), Carries: some(t.Carries), State: t.State.String(), Frames: framesOf(t.Frames)}
	if t.CPU >= 0 {
		o.CPU = &t.CPU
	}
	if t.Truncated != stack.ReasonNone {
		o.Truncated = some(t.Truncated.String())
	}
	if w := t.Wait; w != nil && (w.Kind != kind.WaitNone || w.Why != "") {
		o.Wait = &waitFor{Kind: string(w.Kind), Call: some(w.Call), Args: some(w.Args), Timeout: some(int64(w.Timeout)), File: some(w.File),
			Peer: some(w.Peer), PeerPID: some(w.PeerPID), Lock: lockJSON(w.Lock), Why: some(w.Why)}
	}
	return o
}

func goroutineOf(g *Goroutine) goroutine {
	o := goroutine{ID: g.ID, Parent: some(g.Parent), Status: g.Status, Wait: some(g.Wait), TID: some(g.Thread), Locked: g.Locked,
		Frames: framesOf(g.Frames)}
	if g.For >= 0 {
		o.For = &g.For
	}
	if g.CreatedBy != nil {
		o.CreatedBy = &framesOf([]Frame{*g.CreatedBy})[0]
	}
	if g.Truncated != stack.ReasonNone {
		o.Truncated = some(g.Truncated.String())
	}
	return o
}

func lockJSON(l *wait.Lock) *lockOf {
	if l == nil {
		return nil
	}
	o := &lockOf{Kind: string(l.Kind), Type: some(l.Type), KindKnownBy: some(string(l.Basis)), Symbol: some(l.Symbol), Module: some(l.Module),
		Path: some(l.Path), Shared: l.Shared, Readers: some(l.Holder.Readers), HolderTID: some(l.Holder.TID),
		HolderKnownBy: some(l.Holder.By.String()), HolderWhy: some(l.Holder.Why), Note: some(l.Note)}
	if l.Addr != 0 {
		o.Addr = some(hexa(l.Addr))
	}
	if l.Mutex != 0 {
		o.Mutex = some(hexa(l.Mutex))
	}
	return o
}

func kindOf(k stack.Kind) string {
	if k == stack.KindError {
		return "gap"
	}
	return k.String()
}

func framesOf(fs []Frame) []frame {
	out := make([]frame, 0, len(fs))
	for i := range fs {
		f := &fs[i]
		o := frame{Addr: hexa(f.Addr), Func: some(f.Func), Module: some(f.Module), BuildID: some(f.BuildID), File: some(f.File), Line: some(f.Line),
			Inlined: f.Inlined, Trust: f.Trust.String(), Kind: kindOf(f.Kind)}
		if f.Func != "" && !f.NoOffset {
			o.Offset = &f.Offset
		}
		out = append(out, o)
	}
	return out
}
