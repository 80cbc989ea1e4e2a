package iowatch

import (
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Rules about connections. A descriptor's peer is known by its connect. They judge it when it is closed.

// peers is the state of rule churn for a peer and place.
type peers struct{ times []stack.Time }

// peerKey is a peer and the place of the connect.
type peerKey struct {
	peer  string
	place place
}

// ConnectedTo and the address of its peer name a socket.
const ConnectedTo = "socket to "

// portDNS ends the address of a name server.
const portDNS = ":53"

// connected notes the peer of a socket.
func (e *Engine) connected(ev *Event) {
	d := e.find(ev)
	d.kind = KindSocket
	d.since, d.joined, d.joiner = ev.End, place{ev.Stack, ev.SP}, ev.TID
	e.peerOf(d, ev.Path)
}

// peerOf names a socket by its peer.
func (e *Engine) peerOf(d *desc, peer string) {
	d.peer = peer
	if d.peer == "" || d.path != "" && !strings.HasPrefix(d.path, "socket:") {
		return
	}
	counted := d.path != ""
	d.path = ConnectedTo + d.peer
	if f := e.file(d); f != nil && !d.seeded && !counted {
		f.Opens++
		e.placed(f, d)
	}
}

// disconnected judges a socket that is closed.
func (e *Engine) disconnected(d *desc, at stack.Time) {
	e.unanswered(d, at, 0)
	if d.peer == "" || d.asked {
		return
	}
	ops, answered, last := uint64(0), false, d.since
	for _, u := range d.uses {
		ops += u.Ops
		answered = answered || u.Got > u.Written
		last = max(last, u.Last)
	}
	if strings.HasSuffix(d.peer, portDNS) {
		e.lookedUp(d, at, answered, last)
		return
	}
	// getaddrinfo connects to addresses without a transfer, to sort them.
	if e.c.On[Churn] && e.c.ChurnCount > 0 && ops > 0 && elapsed(d.since, at) < e.c.ChurnLife {
		e.churned(d, at)
	}
}

// lookedUp is rule dns for a socket whose messages were not seen: libraries have a socket for each lookup.
func (e *Engine) lookedUp(d *desc, at stack.Time, answered bool, last stack.Time) {
	if !answered {
		last = at
	}
	took := elapsed(d.since, last)
	if !e.c.On[DNS] || took <= e.c.DNSSlow {
		return
	}
	f := finding(DNS, d, &use{tid: d.joiner, slow: d.joined.stack}, last)
	f.Path, f.First, f.Call, f.Longer, f.Cost = d.peer, OpConnect, "connect", int64(took), int64(took)
	if answered {
		f.Count = 1
	}
	e.publish(f)
}

// churned is rule churn.
func (e *Engine) churned(d *desc, at stack.Time) {
	k := peerKey{d.peer, d.joined}
	if k.place.stack != 0 {
		k.place.sp = 0
	}
	p := e.peers[k]
	if p == nil {
		if len(e.peers) >= maxPaths {
			e.Forgotten++
			clear(e.peers)
		}
		p = &peers{}
		e.peers[k] = p
	}
	if len(p.times) > e.c.ChurnCount {
		copy(p.times, p.times[1:])
		p.times = p.times[:e.c.ChurnCount]
	}
	p.times = append(p.times, d.since)
	if len(p.times) > e.c.ChurnCount && elapsed(p.times[0], d.since) < e.c.ChurnWindow {
		f := finding(Churn, d, &use{tid: d.joiner, slow: d.joined.stack}, at)
		f.Path, f.First, f.Call, f.Count = d.peer, OpConnect, "connect", len(p.times)
		e.publish(f)
	}
}
