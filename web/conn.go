package web

import (
	"net"
	"sync"
)

// limitListener bounds open connections.
type limitListener struct {
	net.Listener
	slots chan struct{}
}

func (l *limitListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.slots <- struct{}{}:
		return &limitConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
	default:
		c.Close()
		return &limitConn{Conn: c, free: func() {}}, nil // the server finds it closed
	}
}

// limitConn is a connection that counts. While it is held, writes gather: a
// packet each would wake up its reader as often.
type limitConn struct {
	net.Conn
	free func()

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

func (c *limitConn) Close() error {
	c.free()
	return c.Conn.Close()
}
