package testprog

import (
	"net"
	"testing"
	"time"
)

// NameServer answers each question for an address with 127.0.0.1, after a while.
func NameServer(t testing.TB, at string, after time.Duration) {
	t.Helper()
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Skipf("no name server of its own: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return // the test ends
			}
			const header = 12
			end := header
			for end < n && b[end] != 0 { // labels of the name
				end += int(b[end]) + 1
			}
			end += 5 // its end, type and class
			if end > n {
				continue
			}
			answer := append([]byte{b[0], b[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, b[header:end]...)
			if b[end-3] == 1 { // of type A
				answer[7] = 1
				answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
			}
			time.AfterFunc(after, func() { _, _ = c.WriteTo(answer, from) }) // the asker may be gone
		}
	}()
}
