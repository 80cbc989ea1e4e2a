package web

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/web/store"
	"github.com/sliverprof/sliver/web/wire"
)

// Limits of a websocket.
const (
	maxMessage   = 256 << 10 // a message from a client
	maxPending   = 32        // queries of a client that wait
	maxViewed    = 4096      // threads of a view
	writeTimeout = 15 * time.Second
	pingEvery    = 20 * time.Second
	pongTimeout  = 60 * time.Second
	queryTimeout = 20 * time.Second

	livePeriod   = 40 * time.Millisecond // between two frames, while few look
	slowPeriod   = 500 * time.Millisecond
	fullClients  = 8 // clients up to which livePeriod holds
	statusPeriod = time.Second
	loadPeriod   = 200 * time.Millisecond // while a file is read
	anewPeriod   = 500 * time.Millisecond // between views sent anew for their names
	// tooSlow is how long a frame may take to be taken off our hands before
	// the client is told of a gap and begins anew.
	tooSlow = 2 * time.Second
)

// client is one websocket. Reading, writing and answering have a goroutine
// each; a client that does not read holds up its own writer alone.
type client struct {
	s    *Server
	conn *websocket.Conn
	done chan struct{}
	once sync.Once
	wake chan struct{}
	ask  chan *query

	mu        sync.Mutex
	want      *query      // a view not yet sent
	wantKinds store.Kinds // of its calls
	replies   [][]byte    // JSON, ready to be sent
	poked     bool

	feed *feed // what was shown when it came

	// The writer's own.
	view      *query
	kinds     store.Kinds // of the view's calls
	at        map[int]*viewed
	names     int
	version   uint64
	anewAt    time.Time
	sentAt    time.Time
	statusAt  time.Time
	blocked   time.Duration // that the last frames took
	buf       []byte
	locksSent int
}

type viewed struct {
	pos     store.Position
	settled bool // nothing in the view can change any more
}

// viewed begins to read a thread for the view.
func (c *client) viewed() *viewed { return &viewed{pos: store.Position{Kinds: c.kinds}} }

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
		at: map[int]*viewed{}}
	s.mu.Lock()
	if s.closed || len(s.clients) >= s.o.MaxClients {
		s.mu.Unlock()
		conn.Close()
		return
	}
	s.clients[c] = struct{}{}
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
	s.mu.Unlock()
}

// close ends a client from any goroutine.
func (c *client) close() {
	c.once.Do(func() {
		close(c.done)
		c.conn.Close()
	})
}

func (c *client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// poke has every client sent the status now.
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

// work answers questions in the order in which they came.
func (c *client) work() {
	for {
		select {
		case <-c.done:
			return
		case q := <-c.ask:
			v, err := c.s.answer(c.s.ctx, q)
			if err != nil {
				c.fail(q.ID, err)
				continue
			}
			c.reply(map[string]any{"op": "reply", "id": q.ID, "value": v})
		}
	}
}

func (c *client) fail(id uint32, err error) {
	c.reply(map[string]any{"op": "error", "id": id, "error": err.Error()})
}

// maxReplies bounds what waits for a client that does not read its answers.
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

// period is how often a client gets frames: a pixel's time is soon enough.
func (c *client) period() time.Duration {
	p := livePeriod * time.Duration(max(1, c.s.Clients()/fullClients))
	if c.view != nil {
		p = max(p, min(time.Duration(c.view.Bin)/2, slowPeriod))
	}
	return min(p, slowPeriod)
}

func (c *client) write() {
	defer c.close()
	if c.json(func() any { return c.s.hello() }) != nil {
		return
	}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
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
		}
		if c.turn() != nil {
			return
		}
		next.Reset(c.period())
	}
}

// turn sends what there is to send.
func (c *client) turn() error {
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
		if err := c.send(websocket.TextMessage, c.s.toldStatus()); err != nil {
			return err
		}
	}
	if want != nil {
		c.view, c.kinds, c.blocked = want, kinds, 0
		if err := c.sendView(); err != nil {
			return err
		}
	} else if c.view != nil && time.Since(c.sentAt) >= c.period()*9/10 {
		if err := c.sendMore(); err != nil {
			return err
		}
	}
	if len(replies) > 0 {
		if err := c.sendNames(); err != nil {
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

// json sends what v makes.
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

// sendNames tells the functions and locks that the client does not know yet;
// what refers to them follows.
func (c *client) sendNames() error {
	f := c.feed
	funcs := f.st.Names.Since(c.names)
	locks := f.st.Locks(c.locksSent)
	if len(funcs) == 0 && len(locks) == 0 {
		return nil
	}
	m := namesMessage{Op: "names", From: c.names, Funcs: funcs, LocksFrom: c.locksSent, Locks: lockMessages(f, locks)}
	c.names += len(funcs)
	c.locksSent += len(locks)
	return c.json(func() any { return m })
}

func (c *client) threads() []int {
	if c.view.Threads != nil {
		return c.view.Threads
	}
	var out []int
	for _, in := range c.feed.st.Infos() {
		out = append(out, in.Seq)
	}
	return out
}

func (c *client) sendView() error {
	f := c.feed
	t0, t1 := c.view.span(f)
	c.version, c.anewAt = f.st.Names.Version(), time.Now()
	clear(c.at)
	fr := wire.Frame{Type: wire.TypeView, ID: c.view.ID, Bin: c.view.Bin}
	c.s.turns(nil)
	lit := c.view.lit(f)
	var views []store.View
	for _, seq := range c.threads() {
		t := f.st.Lookup(seq)
		if t == nil {
			continue
		}
		p := c.viewed()
		v := t.View(t0, t1, int64(c.view.Bin), lit, &p.pos)
		p.settled = v.Last >= t1
		c.at[seq] = p
		views = append(views, v)
	}
	c.encode(f, &fr, views)
	c.s.turned()
	return c.frame()
}

func (c *client) sendMore() error {
	f := c.feed
	if c.blocked > tooSlow {
		// It took too long to take the last frames: what it holds may be old.
		gap := wire.Frame{Type: wire.TypeGap, ID: c.view.ID, Bin: float64(c.blocked)}
		c.blocked = 0
		c.encode(f, &gap, nil)
		if err := c.frame(); err != nil {
			return err
		}
		return c.sendView()
	}
	c.blocked = 0
	if f.st.Names.Version() != c.version && time.Since(c.anewAt) >= anewPeriod*time.Duration(max(1, c.s.Clients()/fullClients)) {
		return c.sendView()
	}
	fr := wire.Frame{Type: wire.TypeMore, ID: c.view.ID, Bin: c.view.Bin}
	views, lost := c.more(f, &fr)
	if len(lost.Threads) > 0 {
		// What was made stays in its buffer while the gap is told.
		made := c.buf
		c.buf = nil
		c.encode(f, lost, nil)
		if err := c.frame(); err != nil {
			return err
		}
		c.buf = made
	}
	if views == 0 && !f.src.Live() {
		return nil
	}
	return c.frame()
}

// more makes the frame of what is new, and one of what was lost before.
func (c *client) more(f *feed, fr *wire.Frame) (n int, lost *wire.Frame) {
	c.s.turns(nil)
	defer c.s.turned()
	lit := c.view.lit(f)
	var views []store.View
	lost = &wire.Frame{Type: wire.TypeGap, ID: c.view.ID}
	_, t1 := c.view.span(f)
	for _, seq := range c.threads() {
		t := f.st.Lookup(seq)
		if t == nil {
			continue
		}
		p := c.at[seq]
		if p == nil { // a thread that began since
			p = c.viewed()
			c.at[seq] = p
			t0, _ := c.view.span(f)
			views = append(views, t.View(t0, t1, int64(c.view.Bin), lit, &p.pos))
			continue
		}
		if p.settled {
			continue
		}
		v, ok := t.More(int64(c.view.Bin), lit, &p.pos)
		if !ok {
			continue
		}
		p.settled = v.Last >= t1
		n := 0
		for i := range v.Rows {
			n += v.Rows[i].Lost
		}
		if n > 0 {
			lost.Threads = append(lost.Threads, wire.Thread{Seq: uint32(seq), Lost: uint32(n)})
		}
		views = append(views, v)
	}
	c.encode(f, fr, views)
	return len(views), lost
}

// encode makes a frame's bytes.
func (c *client) encode(f *feed, fr *wire.Frame, views []store.View) {
	_, now := f.st.Span()
	fr.Now = float64(now - f.base)
	funcOf := f.st.Names.FuncOf()
	for i := range views {
		fr.Threads = append(fr.Threads, wireThread(f, &views[i], funcOf))
	}
	c.buf = wire.Append(c.buf[:0], fr)
}

// frame sends what was made; the names in it go first.
func (c *client) frame() error {
	if err := c.sendNames(); err != nil {
		return err
	}
	c.sentAt = time.Now()
	return c.send(websocket.BinaryMessage, c.buf)
}

func wireThread(f *feed, v *store.View, funcOf []uint32) wire.Thread {
	t := wire.Thread{Seq: uint32(v.Seq), Last: float64(v.Last - f.base), Seen: float64(v.Seen - f.base)}
	for i := range v.Rows {
		r := &v.Rows[i]
		t.Lost += uint32(r.Lost)
		out := wire.Row{Depth: uint32(r.Depth), Items: make([]wire.Item, len(r.Items))}
		for k, x := range r.Items {
			w := wire.Item{Start: float64(x.Start - f.base), End: float64(x.End - f.base), Busy: float32(x.Busy), Value: x.Place, Count: x.Count}
			if x.End == store.Open {
				w.End = math.Inf(1)
			}
			switch r.Depth {
			case store.LaneRow(store.LaneState):
				s := f.st.State(x.Place)
				w.Value = uint32(s.State) | uint32(uint16(s.Call+1))<<8
			case store.LaneRow(store.LaneLock), store.LaneRow(store.LanePause), store.LaneRow(store.LaneGap):
			default:
				if int(x.Place) < len(funcOf) {
					w.Value = funcOf[x.Place]
				}
			}
			out.Items[k] = w
		}
		t.Rows = append(t.Rows, out)
	}
	return t
}

// lit are the places of the functions that a view searches for; nil: none.
func (q *query) lit(f *feed) []bool {
	if len(q.Funcs) == 0 {
		return nil
	}
	is := make(map[uint32]bool, len(q.Funcs))
	for _, x := range q.Funcs {
		is[x] = true
	}
	funcOf := f.st.Names.FuncOf()
	lit := make([]bool, len(funcOf))
	for p, fn := range funcOf {
		lit[p] = is[fn]
	}
	return lit
}

// span is the time that a query is about.
func (q *query) span(f *feed) (t0, t1 stack.Time) {
	t0, t1 = clampTime(q.T0)+f.base, clampTime(q.T1)+f.base
	if q.Follow || q.T1 <= q.T0 {
		t1 = store.Open
	}
	if q.T1 <= q.T0 && !q.Follow {
		t0 = math.MinInt64
	}
	return t0, t1
}

func clampTime(v float64) stack.Time { return stack.Time(min(max(v, -1e18), 1e18)) }
