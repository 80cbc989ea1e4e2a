package main

import (
	"io"
	"net"
	"strconv"
	"testing"
)

// TestSegments counts the requests of two connections, and not those of a third at
// another port.
func TestSegments(t *testing.T) {
	ask := func(n int) (port string, done func()) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		var open []io.Closer
		for range 2 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c, s)
			b := make([]byte, 8)
			for range n { // each waits for its reply, so segments are not merged
				if _, err := c.Write([]byte("question")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(s, b); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Write([]byte("answer")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(c, b[:6]); err != nil {
					t.Fatal(err)
				}
			}
		}
		return port, func() {
			l.Close()
			for _, c := range open {
				c.Close()
			}
		}
	}
	port, done := ask(100)
	defer done()
	_, other := ask(7)
	defer other()
	c, err := parseSegments(port)
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := c.(differences).at()
	if err != nil || n != 200 {
		t.Fatalf("%v requests, %v; there were 200", n, err)
	}
}
