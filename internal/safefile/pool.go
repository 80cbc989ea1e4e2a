package safefile

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is the timeout of one request to a file system.
	patience = 2 * time.Second
	// hurried is the timeout after Hurry; with the first one missed, brief is.
	hurried = 500 * time.Millisecond
	brief   = 50 * time.Millisecond
	// maxHelpers is the number of concurrent helpers: this many targets may hang at the
	// same time before others wait for them.
	maxHelpers = 4
	// crowded is how long no helper takes another request before a request that waits starts one more: that costs more
	// CPU time than a hundred requests.
	crowded = 50 * time.Millisecond
	// maxStuck limits the abandoned helpers that have not exited: a process in a request
	// to a dead file system cannot be killed. At this number, all further requests fail.
	maxStuck = 32
	// idle is how long a helper without open files keeps running.
	idle = 5 * time.Second
	// hangFirst is how long an owner's files are rejected after its file system missed a
	// deadline; it doubles up to hangMost.
	hangFirst = 10 * time.Second
	hangMost  = 5 * time.Minute
	// maxHangs limits the remembered hangs.
	maxHangs = 1024
)

// errReplaced reports that the helper that had a file open is gone.
var errReplaced = errors.New("the helper was replaced")

// errNoHelper reports that a file system that can hang is only read by a helper.
var errNoHelper = errors.New("a file of a server, and no process can be started to read it")

// helpers is the pool of this process. It is global, so that the number of helpers is
// limited whatever the number of targets.
var helpers = pool{hangs: map[string]*hang{}}

type pool struct {
	pending atomic.Int32 // requests in progress

	mu     sync.Mutex
	live   []*helper
	stuck  int
	hangs  map[string]*hang
	rushed bool
	missed bool // a deadline was missed since Hurry
	// For tests: a timeout instead of patience if not 0, and no helpers.
	wait    time.Duration
	without bool
}

type hang struct {
	until time.Time // no request before
	apart time.Duration
}

// helper is one process. Hold turn to communicate with it.
type helper struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
	turn chan struct{} // capacity 1
	buf  []byte        // for replies; of the holder of turn

	// Guarded by the pool's mu.
	dead  bool
	files int // open handles
	used  int // number of requests, to detect whether it was idle
}

// Prepare starts a helper, if there is none, so that the first request does not wait for its start.
func Prepare() { helpers.prepare() }

func (p *pool) prepare() {
	if h, live, _ := p.free(); h != nil {
		p.release(h)
	} else if live == 0 {
		if h, _ := p.start(0); h != nil {
			p.release(h)
		}
	}
}

// ask sends one request to any helper. fd is the returned descriptor; -1: none.
func (p *pool) ask(at Place, q request) (a answer, fd int, err error) {
	p.pending.Add(1)
	defer p.pending.Add(-1)
	key := at.key(q.Path)
	for try := 0; ; try++ {
		if err := p.refused(key); err != nil {
			return a, -1, err
		}
		h, err := p.take(key)
		if err != nil {
			return a, -1, err
		}
		if h == nil { // no helper can be started, as at a limit of processes
			return p.aside(at, key, q)
		}
		a, fd, err = p.exchange(h, at, key, q)
		if !errors.Is(err, errReplaced) || try > 0 {
			return a, fd, err
		}
	}
}

// askOf sends a request to the helper that has a file open; the caller does not hold its
// turn.
func (p *pool) askOf(h *helper, at Place, path string, q request) (answer, error) {
	p.pending.Add(1)
	defer p.pending.Add(-1)
	key := at.key(path)
	if err := p.refused(key); err != nil {
		return answer{}, err
	}
	if !p.await(h) {
		return answer{}, hungError(p.patience()) // a request for another file blocks the helper
	}
	if p.isDead(h) {
		<-h.turn
		return answer{}, errReplaced
	}
	a, _, err := p.exchange(h, at, key, q)
	return a, err
}

// await takes a helper's turn. It returns false at the deadline.
func (p *pool) await(h *helper) bool {
	began := time.Now()
	deadline := time.NewTimer(p.patience())
	defer deadline.Stop()
	for {
		select {
		case h.turn <- struct{}{}:
			return true
		case <-deadline.C:
		}
		if !p.starves(h, began) {
			return false
		}
		deadline.Reset(brief)
	}
}

func (p *pool) isDead(h *helper) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return h.dead
}

// forget closes a handle and ignores errors of the helper.
func (p *pool) forget(h *helper, handle uint64) {
	go func() {
		h.turn <- struct{}{}
		defer p.release(h)
		if p.isDead(h) {
			return
		}
		if b, err := pack(&request{Op: opClose, Handle: handle}, nil); err == nil {
			_ = h.conn.SetWriteDeadline(time.Now().Add(p.patience()))
			if _, err := h.conn.Write(b); err == nil {
				p.mu.Lock()
				h.files--
				p.mu.Unlock()
			}
		}
	}()
}

func (p *pool) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.rushed && p.missed:
		return brief
	case p.rushed:
		return hurried
	case p.wait > 0:
		return p.wait
	}
	return patience
}

func (p *pool) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rushed = true
	for _, h := range p.live {
		_ = h.conn.SetDeadline(time.Now().Add(hurried))
	}
}

// refused returns why an owner's files are not accessed now.
func (p *pool) refused(key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.hangs[key]; h != nil && time.Now().Before(h.until) {
		return ErrHung
	}
	if p.stuck >= maxStuck {
		return ErrHung
	}
	return nil
}

// take returns a helper whose turn the caller holds; nil: this system has none.
func (p *pool) take(key string) (*helper, error) {
	began := time.Now()
	moved, last := began, -1 // when the helpers last took a request, and how many they had taken
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		h, live, used := p.free()
		if h != nil {
			return h, nil
		}
		now := time.Now()
		if used != last {
			moved, last = now, used
		}
		if live == 0 || live < maxHelpers && now.Sub(moved) > crowded {
			if h, ok := p.start(live); ok {
				return h, nil
			}
		}
		if now.Sub(began) > p.patience() && !p.anyStarves(began) {
			return nil, hungError(p.patience())
		}
		if err := p.refused(key); err != nil {
			return nil, err
		}
		time.Sleep(pause)
	}
}

// free takes the turn of an idle helper. live is the number of helpers, used that of their requests so far.
func (p *pool) free() (h *helper, live, used int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.live {
		select {
		case h.turn <- struct{}{}:
			h.used++
			return h, len(p.live), 0
		default:
		}
		used += h.used
	}
	return nil, len(p.live), used
}

// start starts a helper in addition to live ones, and takes its turn. It returns false if another request did so in
// between, and nil if none can be started.
func (p *pool) start(live int) (*helper, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.live) > live {
		return nil, false
	}
	if p.without {
		return nil, true
	}
	h, err := newHelper()
	if err != nil {
		return nil, true
	}
	h.turn <- struct{}{}
	p.live = append(p.live, h)
	go func() {
		_ = h.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if h.dead {
			p.stuck--
		} else {
			p.drop(h) // it was killed from outside
		}
	}()
	return h, true
}

func newHelper() (*helper, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "files"), os.NewFile(uintptr(fds[1]), "files")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	for _, caps := range [][]uintptr{ambient(), nil} { // securebits(7) may forbid them
		cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{HelperName}, ExtraFiles: []*os.File{theirs},
			Env: []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}, Dir: "/",
			// A separate session: no terminal, and no signals from one.
			SysProcAttr: &syscall.SysProcAttr{Setsid: true, AmbientCaps: caps}}
		if err = cmd.Start(); err == nil {
			return &helper{cmd: cmd, conn: conn.(*net.UnixConn), turn: make(chan struct{}, 1)}, nil
		}
		if len(caps) == 0 {
			break
		}
	}
	conn.Close()
	return nil, err
}

// drop removes a helper; mu is held.
func (p *pool) drop(h *helper) {
	h.dead = true
	h.conn.Close()
	for i, x := range p.live {
		if x == h {
			p.live = append(p.live[:i], p.live[i+1:]...)
			return
		}
	}
}

// abandon kills a helper that missed its deadline. If the kernel cannot end it before the
// file system responds, it counts as stuck until then.
func (p *pool) abandon(h *helper, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !h.dead {
		p.stuck++
		p.drop(h)
	}
	_ = h.cmd.Process.Kill()
	if key != "" { // otherwise not caused by a file system
		p.hung(key)
	}
}

// hung records that a file system missed a deadline; mu is held.
func (p *pool) hung(key string) {
	p.missed = p.missed || p.rushed
	now := time.Now()
	x := p.hangs[key]
	if x == nil {
		if len(p.hangs) >= maxHangs {
			clear(p.hangs)
		}
		x = &hang{apart: hangFirst}
		p.hangs[key] = x
	} else {
		x.apart = min(2*x.apart, hangMost)
	}
	x.until = now.Add(x.apart)
}

// release releases the turn. A helper without files exits after a while.
func (p *pool) release(h *helper) {
	<-h.turn
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.dead || h.files > 0 {
		return
	}
	used := h.used
	time.AfterFunc(idle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if h.dead || h.used != used || h.files > 0 {
			return
		}
		select {
		case h.turn <- struct{}{}:
		default:
			return // it is in use
		}
		p.stuck++ // until it has exited, which is soon
		p.drop(h)
		<-h.turn
	})
}

// exchange sends a request and waits for the reply. The caller holds the turn, and
// exchange releases it.
func (p *pool) exchange(h *helper, at Place, key string, q request) (a answer, fd int, err error) {
	defer p.release(h)
	b, err := pack(&q, nil)
	if err != nil {
		return a, -1, err
	}
	var oob []byte
	if q.HasProc {
		oob = unix.UnixRights(at.proc)
	}
	wait := p.patience()
	_ = h.conn.SetReadDeadline(time.Now().Add(wait))
	_ = h.conn.SetWriteDeadline(time.Now().Add(wait + brief))
	if _, _, err = h.conn.WriteMsgUnix(b, oob, nil); err != nil {
		p.abandon(h, "")
		return a, -1, errReplaced
	}
	buf, in := h.buf, make([]byte, unix.CmsgSpace(4))
	if buf == nil {
		buf = make([]byte, maxMessage)
	}
	n, on, err := p.reply(h, buf, in)
	fd = received(in[:on])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.abandon(h, key)
		return a, -1, hungError(wait)
	case err != nil || n == 0:
		p.abandon(h, "")
		return a, -1, errReplaced
	}
	if a.data, err = unpack(buf[:n], &a); len(a.data) == 0 {
		a.data, h.buf = nil, buf
	} else {
		h.buf = nil // the caller keeps the data
	}
	if err == nil {
		err = a.err()
	}
	if err != nil && fd >= 0 {
		unix.Close(fd)
		fd = -1
	}
	p.mu.Lock()
	delete(p.hangs, key)
	if a.Handle != 0 {
		h.files++
	}
	p.mu.Unlock()
	a.helper = h
	return a, fd, err
}

// aside makes a request without a helper, in a thread of this process. One that misses the
// deadline keeps its thread until the file system responds, and counts as stuck.
func (p *pool) aside(at Place, key string, q request) (answer, int, error) {
	type result struct {
		a   answer
		fd  int
		err error
	}
	proc := -1
	if q.HasProc { // the caller may close its own
		var err error
		if proc, err = unix.FcntlInt(uintptr(at.proc), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return answer{}, -1, err
		}
	}
	done := make(chan result)
	late := make(chan struct{})
	go func() {
		at := at
		at.proc = proc
		a, fd, err := direct(at, q)
		if proc >= 0 {
			unix.Close(proc)
		}
		select {
		case done <- result{a, fd, err}:
		case <-late:
			if fd >= 0 {
				unix.Close(fd)
			}
			p.mu.Lock()
			p.stuck--
			p.mu.Unlock()
		}
	}()
	wait := p.patience()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	select {
	case r := <-done:
		return r.a, r.fd, r.err
	case <-deadline.C:
	}
	p.mu.Lock()
	p.stuck++
	p.hung(key)
	p.mu.Unlock()
	close(late)
	return answer{}, -1, hungError(wait)
}

// direct makes a request without a helper.
func direct(at Place, q request) (a answer, fd int, err error) {
	proc := -1
	if q.HasProc {
		proc = at.proc
	}
	switch q.Op {
	case opOpen:
		var ours func() bool
		a.Info, ours, err = find(&q, proc, func(path int) (err error) {
			fd, err = reopen(path)
			return err
		})
		if err == nil && !localFS[a.Info.FS] && !(a.Info.FS == magicOverlay && ours()) {
			unix.Close(fd)
			err = errNoHelper // a read would have no deadline
		}
	case opReal:
		a.Real, err = real(&q, proc)
		return a, -1, err
	case opStat:
		a.Info, _, err = find(&q, proc, func(int) error { return nil })
		return a, -1, err
	default:
		err = unix.EPROTO
	}
	if err != nil {
		return a, -1, err
	}
	return a, fd, nil
}

// ambient returns the capabilities that this process has from its file, which a child
// program would otherwise lose.
func ambient() (caps []uintptr) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if os.Geteuid() == 0 || unix.Capget(&hdr, &data[0]) != nil {
		return nil
	}
	for i := range uintptr(64) {
		if data[i/32].Permitted&(1<<(i%32)) != 0 {
			caps = append(caps, i)
		}
	}
	return caps
}
