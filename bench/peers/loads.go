package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// loads are the files of the programs that servers measures.
type loads struct{ node, python, java, async string }

const (
	clients  = 8                // connections to each server
	maxLoad  = 15 * time.Minute // after which a connection fails
	patience = 20 * time.Second // for a program to start its work
)

// busy is a program at work, with a count of it that grows.
type busy struct {
	*process
	count func() (uint64, error)
}

// rate returns the work a second over a while.
func (p *busy) rate(ctx context.Context, span time.Duration) (float64, error) {
	before, err := p.count()
	if err != nil {
		return 0, err
	}
	from := time.Now()
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	took := time.Since(from)
	after, err := p.count()
	if err != nil {
		return 0, err
	}
	if after <= before {
		return 0, errors.New("it does no work")
	}
	return float64(after-before) / took.Seconds(), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// program is a program that servers measures.
type program struct {
	name  string
	spy   string // the peer for its language; empty: none
	needs []need
	start func() (*busy, error)
}

// need is a program or a file that a program needs.
type need struct{ what, path string }

// missing returns what a program lacks; empty: nothing.
func (p *program) missing() string {
	i := slices.IndexFunc(p.needs, func(n need) bool { return n.path == "" })
	if i < 0 {
		return ""
	}
	return "no " + p.needs[i].what
}

func installed(name string) need {
	path, err := exec.LookPath(name)
	if err != nil { // Debian has servers there, and not every user's path does
		path, _ = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	return need{name, path}
}

// programs returns those with the fewest tools first: time that they leave is for the others.
func (b *bench) programs() []program {
	redis, nginx, node, java := installed("redis-server"), installed("nginx"), installed("node"), installed("java")
	return []program{
		{"Go HTTP", "", nil, b.startGo},
		{"redis", "", []need{redis}, func() (*busy, error) { return b.startRedis(redis.path) }},
		{"Node HTTP", "", []need{node, {"serve.js", b.load.node}}, func() (*busy, error) {
			return b.serving("node.sock", webRequest, webReply, func(sock string) (*process, error) { return b.start(node.path, b.load.node, sock) })
		}},
		{"nginx", "", []need{nginx}, func() (*busy, error) { return b.startNginx(nginx.path) }},
		{"Python loop", "py-spy", []need{{"python3", b.python}, {"load.py", b.load.python}}, func() (*busy, error) {
			return b.counting(b.python, func(file string) []string { return []string{b.load.python, file} })
		}},
		{"Java, 10 threads", "async-profiler", []need{java, {"Threads.class", b.load.java}}, func() (*busy, error) {
			return b.counting(java.path, func(file string) []string { return []string{"-cp", b.load.java, "Threads", file, "10"} })
		}},
	}
}

// counting starts a program that counts its rounds in a file, in words of 8 bytes.
func (b *bench) counting(path string, args func(file string) []string) (*busy, error) {
	f, err := os.CreateTemp(b.dir, "rounds-")
	if err != nil {
		return nil, err
	}
	f.Close()
	p, err := b.start(path, args(f.Name())...)
	if err != nil {
		return nil, err
	}
	return b.working(&busy{p, func() (uint64, error) { return sumOf(f.Name()) }})
}

// sumOf returns the sum of the little-endian words of a file.
func sumOf(file string) (sum uint64, err error) {
	data, err := os.ReadFile(file)
	for ; len(data) >= 8; data = data[8:] {
		sum += binary.LittleEndian.Uint64(data)
	}
	return sum, err
}

// working waits until the program has done some work.
func (b *bench) working(p *busy) (*busy, error) {
	for end := time.Now().Add(patience); ; {
		n, err := p.count()
		if err == nil && n > 0 {
			return p, nil
		}
		if err == nil && time.Now().After(end) {
			err = errors.New("it does not start its work")
		}
		if err == nil {
			err = pause(b.ctx, 10*time.Millisecond)
		}
		if err != nil {
			p.end()
			return nil, err
		}
	}
}

// serving starts a server on a Unix socket, and its clients.
func (b *bench) serving(name string, request []byte, reply func(*bufio.Reader) error, start func(sock string) (*process, error)) (*busy, error) {
	sock := filepath.Join(b.dir, name)
	p, err := start(sock)
	if err != nil {
		return nil, err
	}
	c := &crew{request: request, reply: reply}
	if err := c.connect(b.ctx, sock); err != nil {
		p.end()
		return nil, err
	}
	return b.working(&busy{&process{p.cmd, func() { c.end(); p.end() }}, c.count})
}

func (b *bench) startGo() (*busy, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return b.serving("go.sock", webRequest, webReply, func(sock string) (*process, error) { return b.start(self, "-serve", sock) })
}

func (b *bench) startRedis(path string) (*busy, error) {
	return b.serving("load.sock", []byte("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"), redisReply, func(sock string) (*process, error) {
		p, err := b.start(path, "--port", "0", "--unixsocket", sock, "--save", "", "--appendonly", "no", "--dir", b.dir,
			"--logfile", filepath.Join(b.dir, "redis.log"))
		if err != nil {
			return nil, err
		}
		set := crew{request: fmt.Appendf(nil, "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$64\r\n%064d\r\n", 1)}
		if err := set.once(b.ctx, sock); err != nil {
			p.end()
			return nil, err
		}
		return p, nil
	})
}

// startNginx starts nginx as one process, with all its files in the scratch folder.
func (b *bench) startNginx(path string) (*busy, error) {
	return b.serving("nginx.sock", webRequest, webReply, func(sock string) (*process, error) {
		dir := filepath.Join(b.dir, "nginx")
		conf := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log stderr; events {}\nhttp { access_log off; keepalive_requests 1000000000;\n", dir)
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			conf += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
		}
		conf += fmt.Sprintf("server { listen unix:%s; root %s; } }\n", sock, dir)
		err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600),
			os.WriteFile(filepath.Join(dir, "index.html"), bytes.Repeat([]byte("text "), 200), 0o600))
		if err != nil {
			return nil, err
		}
		return b.start(path, "-e", "stderr", "-p", dir, "-c", filepath.Join(dir, "conf"))
	})
}

// crew are the clients of a server: each sends a request and waits for its reply, over and over.
type crew struct {
	request []byte
	reply   func(*bufio.Reader) error
	conns   []net.Conn
	done    sync.WaitGroup
	ending  atomic.Bool
	replies atomic.Uint64
	failed  atomic.Pointer[error]
}

// dial waits for the server to listen.
func dial(ctx context.Context, sock string) (net.Conn, error) {
	for end := time.Now().Add(patience); ; {
		c, err := net.Dial("unix", sock)
		if err == nil {
			return c, c.SetDeadline(time.Now().Add(maxLoad))
		}
		if time.Now().After(end) {
			return nil, err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// once sends the request once, and waits for the first line of the reply.
func (c *crew) once(ctx context.Context, sock string) error {
	conn, err := dial(ctx, sock)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(c.request); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadSlice('\n')
	return err
}

func (c *crew) connect(ctx context.Context, sock string) error {
	for range clients {
		conn, err := dial(ctx, sock)
		if err != nil {
			c.end()
			return err
		}
		c.conns = append(c.conns, conn)
		c.done.Go(func() {
			if err := c.talk(conn); !c.ending.Load() {
				c.failed.CompareAndSwap(nil, &err)
			}
		})
	}
	return nil
}

// talk returns when the connection fails or is closed.
func (c *crew) talk(conn net.Conn) error {
	r := bufio.NewReader(conn)
	for {
		if _, err := conn.Write(c.request); err != nil {
			return err
		}
		if err := c.reply(r); err != nil {
			return err
		}
		c.replies.Add(1)
	}
}

func (c *crew) count() (uint64, error) {
	if err := c.failed.Load(); err != nil {
		return 0, fmt.Errorf("its client: %w", *err)
	}
	return c.replies.Load(), nil
}

func (c *crew) end() {
	c.ending.Store(true)
	for _, conn := range c.conns {
		conn.Close()
	}
	c.done.Wait()
}

// maxReply limits the length of a reply that a client accepts, in bytes.
const maxReply = 1 << 20

func discard(r *bufio.Reader, length []byte, more int) error {
	n, err := strconv.Atoi(string(bytes.TrimSpace(length)))
	if err != nil || n < 0 || n > maxReply {
		return fmt.Errorf("invalid length %q of a reply", length)
	}
	_, err = r.Discard(n + more)
	return err
}

// redisReply reads a bulk string.
func redisReply(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if line[0] != '$' {
		return fmt.Errorf("unexpected reply %q", line)
	}
	return discard(r, line[1:], len("\r\n"))
}

var webRequest = []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

// webReply reads an HTTP response of known length.
func webReply(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err == nil && !bytes.Contains(line, []byte(" 200 ")) {
		err = fmt.Errorf("unexpected reply %q", line)
	}
	var length []byte
	for err == nil {
		if line, err = r.ReadSlice('\n'); err == nil && len(bytes.TrimSpace(line)) == 0 {
			return discard(r, length, 0)
		}
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			length = bytes.Clone(line[len(name):])
		}
	}
	return err
}

// serveHTTP is the Go server that servers measures.
func serveHTTP(sock string) error {
	l, err := net.Listen("unix", sock)
	if err != nil {
		return err
	}
	go func() { // its end is that of its standard input
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	type item struct {
		At   int    `json:"at"`
		Name string `json:"name"`
	}
	return (&http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		items := make([]item, 24)
		for i := range items {
			items[i] = item{i, "item-" + strconv.Itoa(i*7919%97)}
		}
		slices.SortFunc(items, func(a, b item) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
		out, _ := json.Marshal(items) // fails for no such value
		_, _ = w.Write(out)
	})}).Serve(l)
}
