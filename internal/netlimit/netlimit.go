// Package netlimit limits the connections of a server so that unauthenticated peers cannot lock out
// authenticated ones: at the limit, it closes the oldest unauthenticated connection for the next one. The
// server marks authenticated connections (Keep). All functions and methods may be called concurrently.
package netlimit

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// Listener is a net.Listener with a limit on its connections.
type Listener struct {
	net.Listener
	most int

	mu      sync.Mutex
	all     *list.List // of *Conn, oldest first
	refused int
}

// New limits the connections of l.
func New(l net.Listener, most int) *Listener {
	return &Listener{Listener: l, most: most, all: list.New()}
}

// Conn is a connection of a Listener.
type Conn struct {
	net.Conn
	l    *Listener
	at   *list.Element // guarded by the listener's mu; nil: it no longer counts
	kept bool          // guarded by the listener's mu
}

// Accept implements net.Listener. At the limit it returns a closed connection.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	n := &Conn{Conn: c, l: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all.Len() >= l.most {
		l.refused++
		old := l.idlest()
		if old == nil {
			c.Close()
			return n, nil
		}
		l.remove(old)
		old.Conn.Close()
	}
	n.at = l.all.PushBack(n)
	return n, nil
}

// idlest returns the oldest connection that is not kept; mu is held.
func (l *Listener) idlest() *Conn {
	for e := l.all.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Conn); !c.kept {
			return c
		}
	}
	return nil
}

func (l *Listener) remove(c *Conn) {
	if c.at != nil {
		l.all.Remove(c.at)
		c.at = nil
	}
}

// Len returns the number of connections.
func (l *Listener) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Len()
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// Context is for http.Server.ConnContext: it lets Keep find the connection of a request. A connection that
// wraps one of a Listener's has a method NetConn that returns it.
func Context(ctx context.Context, c net.Conn) context.Context {
	for {
		if own, ok := c.(*Conn); ok {
			return context.WithValue(ctx, connKey{}, own)
		}
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return ctx
		}
		c = w.NetConn()
	}
}

// Keep marks the connection of an authenticated request: it is not closed for others until it waits for
// another request (see State).
func Keep(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*Conn); ok {
		c.l.mu.Lock()
		c.kept = true
		c.l.mu.Unlock()
	}
}

// State is for http.Server.ConnState: an idle connection may be closed for others again.
func State(c net.Conn, s http.ConnState) {
	if s != http.StateIdle {
		return
	}
	for {
		if own, ok := c.(*Conn); ok {
			own.l.mu.Lock()
			own.kept = false
			own.l.mu.Unlock()
			return
		}
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		c = w.NetConn()
	}
}
