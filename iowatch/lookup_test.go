package iowatch

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// send and receive are messages of descriptor 7 to and from a name server.
func (s *script) send(peer string, m ...Message) {
	s.e.Apply(&Event{Op: OpQuery, End: s.now, TID: s.tid, FD: 7, Gen: s.gen, Ret: 30, Kind: KindSocket, Size: -1, Path: peer, Messages: m, Stack: 2})
}

func (s *script) receive(after int64, m ...Message) {
	s.now += stack.Time(after)
	s.e.Apply(&Event{Op: OpAnswer, End: s.now, TID: s.tid, FD: 7, Gen: s.gen, Ret: 60, Kind: KindSocket, Size: -1, Messages: m})
}

// TestMessages has messages that just fire rule dns, and ones that just do not.
func TestMessages(t *testing.T) {
	const server = "1.1.1.1:53"
	ask := func(id uint16) Message { return Message{ID: id, Name: "a.b"} }
	reply := func(id uint16) Message { return Message{ID: id, Answer: true, Name: "a.b"} }
	end := func(s *script) { s.e.Apply(&Event{Op: OpClose, End: s.now, TID: s.tid, FD: 7, Gen: s.gen, Size: -1}) }
	for _, c := range []struct {
		name string
		do   func(*script)
		want string
	}{
		{"after 101 ms", func(s *script) { s.send(server, ask(1)); s.receive(101*ms, reply(1)) }, "dns:1"},
		{"after 100 ms", func(s *script) { s.send(server, ask(1)); s.receive(100*ms, reply(1)) }, ""},
		{"to another question", func(s *script) { s.send(server, ask(1)); s.receive(101*ms, reply(2)) }, ""},
		{"of two in turn, the second one", func(s *script) {
			s.send(server, ask(1), ask(2))
			s.receive(50*ms, reply(2))
			s.receive(51*ms, reply(1))
		}, "dns:1"},
		{"on a socket that is kept", func(s *script) {
			for i := range uint16(20) {
				s.send("", ask(i))
				s.receive(60*ms, reply(i))
			}
			end(s)
		}, ""},
		{"asked again after 60 ms", func(s *script) {
			s.send(server, ask(1))
			s.now += stack.Time(60 * ms)
			s.send(server, ask(1))
			s.receive(50*ms, reply(1))
		}, "dns:1"},
		{"twice", func(s *script) { s.send(server, ask(1)); s.receive(1, reply(1)); s.receive(500*ms, reply(1)) }, ""},
		{"none for 101 ms", func(s *script) { s.send(server, ask(1)); s.now += stack.Time(101 * ms); end(s) }, "dns:0"},
		{"none for 100 ms", func(s *script) { s.send(server, ask(1)); s.now += stack.Time(100 * ms); end(s) }, ""},
		{"none at the end", func(s *script) { s.send(server, ask(1)); s.e.Finish(s.now + stack.Time(101*ms)) }, "dns:0"},
		{"none for 30 s", func(s *script) {
			s.send(server, ask(1))
			s.e.Tick(s.now + stack.Time(30_000*ms))
		}, ""},
		{"none for longer", func(s *script) {
			s.send(server, ask(1))
			s.e.Tick(s.now + stack.Time(30_001*ms))
			s.receive(40_000*ms, reply(1))
		}, "dns:0"},
		{"a part of a stream", func(s *script) { s.send(server); s.receive(101 * ms); s.receive(101 * ms) }, "dns:1"},
		{"too many", func(s *script) {
			for i := range uint16(maxQueries + 1) {
				s.send(server, ask(i))
			}
			s.receive(101*ms, reply(0))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, "dns")
			s.gen = 1
			c.do(s)
			if got := s.rules(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if (s.e.Forgotten > 0) != (c.name == "too many") {
				t.Errorf("%d forgotten", s.e.Forgotten)
			}
		})
	}
}
