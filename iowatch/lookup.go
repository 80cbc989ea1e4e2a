package iowatch

import (
	"slices"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Rule dns follows the messages of sockets to and from name servers, whichever library sends them: an answer
// has the number of its query.

// query is a question to a name server.
type query struct {
	Message
	numbered bool       // its number is known
	at       stack.Time // when it was sent first
	place    place
	tid      stack.TID
}

const (
	maxQueries = 64 // of one socket that have no answer
	// givesUp is when an answer is not expected any more: resolvers wait for 5 to 10 s.
	givesUp = 30 * time.Second
)

// asks notes queries. One that is sent again, or to another server, counts from the first time on.
func (e *Engine) asks(ev *Event) {
	d := e.find(ev)
	d.kind = KindSocket
	if d.peer == "" && ev.Path != "" {
		d.since, d.joined, d.joiner = ev.End, place{ev.Stack, ev.SP}, ev.TID
		e.peerOf(d, ev.Path)
	}
	d.asked = true
	q := query{at: ev.End, place: place{ev.Stack, ev.SP}, tid: ev.TID}
	if len(ev.Messages) == 0 {
		e.ask(d, q)
	}
	for _, m := range ev.Messages {
		if q.Message, q.numbered = m, true; !m.Answer {
			e.ask(d, q)
		}
	}
}

func (e *Engine) ask(d *desc, q query) {
	same := func(o query) bool { return o.numbered == q.numbered && o.ID == q.ID && o.Name == q.Name }
	if slices.ContainsFunc(d.queries, same) {
		return
	}
	if len(d.queries) >= maxQueries {
		e.Forgotten++
		d.queries = slices.Delete(d.queries, 0, 1)
	}
	d.queries = append(d.queries, q)
}

// answers judges the queries that have an answer now.
func (e *Engine) answers(ev *Event) {
	d := e.find(ev)
	for _, m := range ev.Messages {
		i := slices.IndexFunc(d.queries, func(q query) bool { return q.numbered && q.ID == m.ID })
		if !m.Answer || i < 0 {
			continue
		}
		e.slowLookup(d, &d.queries[i], ev.End, true)
		d.queries = slices.Delete(d.queries, i, i+1)
	}
	// A part of a stream, with a query that was one too.
	if i := slices.IndexFunc(d.queries, func(q query) bool { return !q.numbered }); i >= 0 && len(ev.Messages) == 0 {
		e.slowLookup(d, &d.queries[i], ev.End, true)
		d.queries = slices.Delete(d.queries, i, i+1)
	}
}

// unanswered judges the queries that got no answer for longer than a time, and forgets them.
func (e *Engine) unanswered(d *desc, at stack.Time, longer time.Duration) {
	d.queries = slices.DeleteFunc(d.queries, func(q query) bool {
		if elapsed(q.at, at) <= longer {
			return false
		}
		e.slowLookup(d, &q, at, false)
		return true
	})
}

// slowLookup is rule dns.
func (e *Engine) slowLookup(d *desc, q *query, at stack.Time, answered bool) {
	took := elapsed(q.at, at)
	if !e.c.On[DNS] || took <= e.c.DNSSlow {
		return
	}
	f := finding(DNS, d, &use{tid: q.tid, slow: q.place.stack}, at)
	f.Path, f.First, f.Call, f.Host, f.Longer, f.Cost = d.peer, OpConnect, "connect", q.Name, int64(took), int64(took)
	if f.Path == "" {
		f.Path = d.name()
	}
	if answered {
		f.Count = 1
	}
	e.publish(f)
}
