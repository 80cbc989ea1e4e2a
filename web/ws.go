package web

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sliverprof/sliver/web/analysis"
	"github.com/sliverprof/sliver/web/store"
	"github.com/sliverprof/sliver/web/wire"
)

// Limits of a websocket.
const (
	maxMessage   = 256 << 10 // a message from a client
	maxPending   = 32        // queries of a client that wait
	maxViewed    = 4096      // threads of a view
	writeTimeout = 15 * time.Second
	leaveTimeout = time.Second
	pingEvery    = 20 * time.Second
	pongTimeout  = 60 * time.Second
	queryTimeout = 20 * time.Second

	livePeriod   = 40 * time.Millisecond // between two frames, with few clients
	slowPeriod   = 500 * time.Millisecond
	fullClients  = 8 // number of clients up to which livePeriod applies
	phases       = 16
	statusPeriod = time.Second
	loadPeriod   = 200 * time.Millisecond // while a file is read
	anewPeriod   = 500 * time.Millisecond // between resent views because of new names
	// tooSlow is how long sending a frame may take before the client gets a gap frame and
	// starts over.
	tooSlow = 2 * time.Second
)

// client is one websocket. Reading, writing and answering have a goroutine each; a client
// that does not read blocks only its own writer.
type client struct {
	s    *Server
	conn *websocket.Conn

	number int // in order of connection

	done chan struct{}
	once sync.Once
	wake chan struct{}
	ask  chan *query

	mu        sync.Mutex
	want      *query      // a view not sent yet
	wantKinds store.Kinds // of its calls
	replies   [][]byte    // JSON, ready to be sent
	poked     bool

	feed *feed // the displayed feed when it connected

	leaving atomic.Bool // the server ends: leave closes the connection

	// Fields of the writer.
	out      *limitConn
	view     *query
	kinds    store.Kinds // of the view's calls
	at       *positions
	knows    known
	members  int // version of the processes that the client knows
	version  uint64
	anewAt   time.Time
	sentAt   time.Time
	statusAt time.Time
	blocked  time.Duration // time to send the last frames
	buf      []byte
}

var upgrader = websocket.Upgrader{
	HandshakeTimeout: headTimeout, ReadBufferSize: 4 << 10, WriteBufferSize: 32 << 10, Subprotocols: []string{wire.Protocol},
	CheckOrigin: originAllowed,
}

func (s *Server) serveWS(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	full := len(s.clients) >= s.o.MaxClients
	s.mu.Unlock()
	if full {
		fail(w, http.StatusServiceUnavailable, "too many pages are open on this recording; close one and load this again")
		return
	}
	if !websocket.IsWebSocketUpgrade(r) {
		fail(w, http.StatusUpgradeRequired, "this is a websocket")
		return
	}
	if !s.turns(r.Context().Done()) {
		return
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	s.turned()
	if err != nil {
		return // Upgrade has replied
	}
	if conn.Subprotocol() != wire.Protocol {
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseProtocolError,
			"this server speaks "+wire.Protocol), time.Now().Add(time.Second))
		conn.Close()
		return
	}
	c := &client{s: s, conn: conn, done: make(chan struct{}), wake: make(chan struct{}, 1), ask: make(chan *query, maxPending),
		out: conn.NetConn().(*limitConn)}
	s.mu.Lock()
	if s.closed || len(s.clients) >= s.o.MaxClients {
		s.mu.Unlock()
		conn.Close()
		return
	}
	s.clients[c] = struct{}{}
	s.came++
	c.number = s.came
	c.feed = s.feed(0)
	s.mu.Unlock()
	var wg sync.WaitGroup
	wg.Add(2)
	go func() { defer wg.Done(); c.write() }()
	go func() { defer wg.Done(); c.work() }()
	c.read()
	c.close()
	wg.Wait()
	s.mu.Lock()
	delete(s.clients, c)
	last := len(s.clients) == 0
	s.mu.Unlock()
	if last {
		c.feed.rest()
	}
}

// close closes a client; it may be called from any goroutine.
func (c *client) close() {
	c.once.Do(func() {
		close(c.done)
		c.conn.Close()
	})
}

// leave closes a client as the server ends. It notifies the client if the client reads
// soon enough, and waits for its answer as RFC 6455, 7.1.1 says: if the kernel holds bytes of
// the client when the connection is closed, it resets the connection, and the client may
// lose the notice.
func (c *client) leave() {
	c.leaving.Store(true)
	defer c.close()
	until := time.Now().Add(leaveTimeout)
	if c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, "sliver ends"), until) != nil {
		return
	}
	select {
	case <-c.done:
	case <-time.After(time.Until(until)):
	}
}

func (c *client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// poke sends every client the status now.
func (s *Server) poke() {
	s.told.mu.Lock()
	s.told.b = nil
	s.told.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		c.mu.Lock()
		c.poked = true
		c.mu.Unlock()
		c.signal()
	}
}

func (c *client) read() {
	c.conn.SetReadLimit(maxMessage)
	extend := func(string) error { return c.conn.SetReadDeadline(time.Now().Add(pongTimeout)) }
	_ = extend("")
	c.conn.SetPongHandler(extend)
	for {
		typ, b, err := c.conn.ReadMessage()
		if err != nil {
			return
		}
		q := &query{}
		if typ != websocket.TextMessage {
			c.fail(0, errors.New("requests are JSON in text messages"))
			continue
		}
		if err := json.Unmarshal(b, q); err != nil {
			c.fail(q.ID, err)
			continue
		}
		if q.Op == "view" {
			err := q.check()
			var kinds store.Kinds
			if err == nil {
				kinds, err = c.feed.kinds(q)
			}
			if err != nil || len(q.Threads) > maxViewed {
				c.fail(q.ID, errors.Join(err, errors.New("a view that cannot be")))
				continue
			}
			c.mu.Lock()
			c.want, c.wantKinds = q, kinds
			c.mu.Unlock()
			c.signal()
			continue
		}
		select {
		case c.ask <- q:
		default:
			c.fail(q.ID, errors.New("too many questions at once"))
		}
	}
}

// work answers queries in order.
func (c *client) work() {
	for {
		select {
		case <-c.done:
			return
		case q := <-c.ask:
			if q.Op == "analysis" { // takes long: others pass it
				go c.answer(q)
				continue
			}
			c.answer(q)
		}
	}
}

func (c *client) answer(q *query) {
	v, err := c.s.answer(c.s.ctx, q)
	if err != nil {
		c.fail(q.ID, err)
		return
	}
	c.reply(map[string]any{"op": "reply", "id": q.ID, "value": v})
}

func (c *client) fail(id uint32, err error) {
	c.reply(map[string]any{"op": "error", "id": id, "error": err.Error()})
}

// maxReplies limits the replies queued for a client that does not read them.
const maxReplies = 4 * maxPending

func (c *client) reply(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		c.s.o.Logf("encode an answer: %v", err)
		return
	}
	c.mu.Lock()
	over := len(c.replies) >= maxReplies
	if !over {
		c.replies = append(c.replies, b)
	}
	c.mu.Unlock()
	if over {
		c.close()
	}
	c.signal()
}

// period returns the minimum time between frames.
func (s *Server) period() time.Duration {
	return min(livePeriod*time.Duration(max(1, s.Clients()/fullClients)), slowPeriod)
}

// period returns the time between a client's frames; more often than once per pixel is
// not useful.
func (c *client) period() time.Duration {
	p := c.s.period()
	if c.view != nil {
		p = max(p, min(time.Duration(c.view.Bin)/2, slowPeriod))
	}
	return p
}

// next returns the time until the next frame. With few clients, frames are due at the
// same moment, so that shared ones are built once (see beat). Many clients are spread
// over the period, so that they do not all need a CPU at once.
func (c *client) next() time.Duration {
	p := c.period()
	at := time.Since(c.s.began) + p
	if c.s.Clients() > fullClients {
		at -= p * time.Duration(c.number%phases) / phases
	}
	return p - at%p
}

func (c *client) write() {
	defer func() {
		if !c.leaving.Load() { // otherwise leave closes it, after the client's answer
			c.close()
		}
	}()
	if s, ok := c.feed.src.(joined); ok {
		_, c.members = s.since(math.MaxInt)
	}
	if c.json(func() any { return c.s.hello() }) != nil {
		return
	}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		timed := false
		select {
		case <-c.done:
			return
		case <-ping.C:
			if c.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
			continue
		case <-c.wake:
		case <-next.C:
			timed = true
		}
		if err := c.turn(timed); err != nil {
			return
		}
		next.Reset(c.next())
	}
}

// turn sends pending data; timed: a frame is due.
func (c *client) turn(timed bool) error {
	c.out.hold()
	err := c.put(timed)
	begin := time.Now()
	err = errors.Join(err, c.conn.SetWriteDeadline(begin.Add(writeTimeout)), c.out.release())
	c.blocked += time.Since(begin)
	return err
}

func (c *client) put(timed bool) error {
	c.mu.Lock()
	replies, want, kinds, poked := c.replies, c.want, c.wantKinds, c.poked
	c.replies, c.want, c.poked = nil, nil, false
	c.mu.Unlock()
	every := statusPeriod
	if !c.feed.src.Live() && !c.s.Loaded() {
		every = loadPeriod
	}
	if poked || time.Since(c.statusAt) >= every {
		c.statusAt = time.Now()
		status := c.s.toldStatus()
		if err := c.sendProcesses(); err != nil { // the status refers to them
			return err
		}
		if err := c.send(websocket.TextMessage, status); err != nil {
			return err
		}
	}
	if want != nil {
		c.view, c.kinds, c.blocked = want, kinds, 0
		if err := c.sendView(); err != nil {
			return err
		}
	} else if since, p := time.Since(c.sentAt), c.period(); c.view != nil && (timed && since >= p/2 || since >= p) {
		if err := c.sendMore(); err != nil {
			return err
		}
	}
	if len(replies) > 0 {
		if err := c.sendNames(c.s.beat(c.feed), c.feed.known()); err != nil {
			return err
		}
	}
	for _, b := range replies {
		if err := c.send(websocket.TextMessage, b); err != nil {
			return err
		}
	}
	return nil
}

// joined is a Source of several processes that others may join.
type joined interface {
	// since returns the descriptions that changed after a version, by number, and the version now.
	since(version int) (map[int]analysis.Process, int)
}

// processesMessage describes new and changed processes.
type processesMessage struct {
	Op      string                   `json:"op"`
	Changed map[int]analysis.Process `json:"changed"` // by index in the hello's processes, new ones behind them
}

func (c *client) sendProcesses() error {
	s, ok := c.feed.src.(joined)
	if !ok {
		return nil
	}
	changed, version := s.since(c.members)
	c.members = version
	if len(changed) == 0 {
		return nil
	}
	return c.json(func() any { return processesMessage{"processes", changed} })
}

// json sends the result of v as JSON.
func (c *client) json(v func() any) error {
	c.s.turns(nil)
	b, err := json.Marshal(v())
	c.s.turned()
	if err != nil {
		return err
	}
	return c.send(websocket.TextMessage, b)
}

func (c *client) send(typ int, b []byte) error {
	begin := time.Now()
	if err := c.conn.SetWriteDeadline(begin.Add(writeTimeout)); err != nil {
		return err
	}
	err := c.conn.WriteMessage(typ, b)
	c.blocked += time.Since(begin)
	return err
}

// sendNames sends the functions and locks that the client does not know yet, at least
// need; messages that refer to them follow.
func (c *client) sendNames(b *beat, need known) error {
	t, err := b.names(c.s, c.knows, need)
	if err != nil || t.json == nil {
		return err
	}
	c.knows = t.known
	return c.send(websocket.TextMessage, t.json)
}

func (c *client) sendView() error {
	c.anewAt = time.Now()
	b := c.s.beat(c.feed)
	m := b.frame(c.s, c.view, c.kinds, nil)
	c.at, c.version = m.after, m.version
	return c.sendFrame(b, m, m.frame)
}

func (c *client) sendMore() error {
	f := c.feed
	b := c.s.beat(f)
	if c.blocked > tooSlow {
		// Sending the last frames took too long: the client's data may be old.
		gap := wire.Frame{Type: wire.TypeGap, Bin: float64(c.blocked)}
		c.blocked = 0
		if err := c.sendFrame(b, &made{}, encode(f, &gap, nil)); err != nil {
			return err
		}
		return c.sendView()
	}
	c.blocked = 0
	if f.st.Names.Version() != c.version && time.Since(c.anewAt) >= anewPeriod*time.Duration(max(1, c.s.Clients()/fullClients)) {
		return c.sendView()
	}
	m := b.frame(c.s, c.view, c.kinds, c.at)
	c.at = m.after
	if m.gap != nil {
		if err := c.sendFrame(b, m, m.gap); err != nil {
			return err
		}
	}
	if m.threads == 0 && !f.src.Live() {
		return nil
	}
	return c.sendFrame(b, m, m.frame)
}

// sendFrame sends a frame with the view's number, after the names that it needs.
func (c *client) sendFrame(b *beat, m *made, frame []byte) error {
	if err := c.sendNames(b, m.names); err != nil {
		return err
	}
	c.sentAt = time.Now()
	c.buf = append(c.buf[:0], frame...)
	wire.SetID(c.buf, c.view.ID)
	return c.send(websocket.BinaryMessage, c.buf)
}
