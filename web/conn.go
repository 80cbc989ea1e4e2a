package web

import (
	"net"
	"sync"

	"github.com/sliverprof/sliver/internal/netlimit"
)

// limitListener bounds open connections.
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

// NetConn is the connection below, for package netlimit.
func (c *limitConn) NetConn() net.Conn { return c.Conn }

// limitConn is a connection of the server's. While it is held, writes gather: a
// packet each would wake up its reader as often.
type limitConn struct {
	net.Conn

	mu   sync.Mutex // while writing
	held bool
	buf  []byte
}

// maxHeld is from how many bytes on writes are passed on though they are held.
const maxHeld = 128 << 10

// Write implements net.Conn. An error may be of what was written before.
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

// hold has writes gather until release.
func (c *limitConn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

// release writes what has gathered.
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
