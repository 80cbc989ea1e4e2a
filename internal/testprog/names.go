package testprog

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// NameServer answers each question for an address with 127.0.0.1, after a while, by UDP and TCP.
func NameServer(t testing.TB, at string, after time.Duration) {
	t.Helper()
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Skipf("no name server of its own: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Skipf("no name server of its own: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return // the test ends
			}
			if a := dnsAnswer(b[:n]); a != nil {
				time.AfterFunc(after, func() { _, _ = c.WriteTo(a, from) }) // the asker may be gone
			}
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test ends
			}
			go func() {
				defer c.Close()
				var length [2]byte
				for {
					if _, err := io.ReadFull(c, length[:]); err != nil {
						return
					}
					b := make([]byte, binary.BigEndian.Uint16(length[:]))
					if _, err := io.ReadFull(c, b); err != nil {
						return
					}
					a := dnsAnswer(b)
					if a == nil {
						return
					}
					<-time.After(after)
					_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)) // the asker may be gone
				}
			}()
		}
	}()
}

// dnsAnswer is the answer to a question (RFC 1035); nil: it is none.
func dnsAnswer(b []byte) []byte {
	const header = 12
	end := header
	for end < len(b) && b[end] != 0 { // labels of the name
		end += int(b[end]) + 1
	}
	end += 5 // its end, type and class
	if end > len(b) {
		return nil
	}
	answer := append([]byte{b[0], b[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, b[header:end]...)
	if b[end-3] == 1 { // of type A
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
	}
	return answer
}
