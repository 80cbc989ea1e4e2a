package web

import (
	"net"
	"sync"

	"github.com/sliverprof/sliver/internal/netlimit"
)

// limitListener limits open connections.
type limitListener struct {
	*netlimit.Listener
}

func (l *limitListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &limitConn{Conn: c}, nil
}

// NetConn returns the underlying connection, for package netlimit.
func (c *limitConn) NetConn() net.Conn { return c.Conn }

// limitConn is a connection of the server. While it is held, it buffers writes: one
// packet per write would wake up the client for each.
type limitConn struct {
	net.Conn

	mu   sync.Mutex // held while writing
	held bool
	buf  []byte
}

// maxHeld is the number of buffered bytes that are written even while the connection is
// held.
const maxHeld = 128 << 10

// Write implements net.Conn. The error may belong to an earlier write.
func (c *limitConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held && len(c.buf)+len(b) <= maxHeld {
		c.buf = append(c.buf, b...)
		return len(b), nil
	}
	if err := c.flush(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// hold buffers writes until release.
func (c *limitConn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

// release writes the buffered data.
func (c *limitConn) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
	return c.flush()
}

func (c *limitConn) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}
