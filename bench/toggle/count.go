package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// counter returns a server's requests per second, over about this time, starting now or
// soon. It calls mark right after each of the two reads of the count.
type counter interface {
	rate(span time.Duration, mark func()) (float64, error)
}

func parseCounter(s string) (counter, error) {
	kind, where, _ := strings.Cut(s, ":")
	switch kind {
	case "redis":
		c, err := net.Dial("tcp", where)
		if err != nil {
			return nil, err
		}
		return differences(func() (float64, error) { return redisCount(c) }), nil
	case "nginx":
		return differences(func() (float64, error) { return nginxCount(where) }), nil
	case "lines":
		f, err := os.Open(where)
		if err != nil {
			return nil, err
		}
		return &lines{f: f}, nil
	case "segments":
		return parseSegments(where)
	}
	return nil, fmt.Errorf("count: %q is none of redis:HOST:PORT, nginx:URL, lines:FILE and segments:PORT", s)
}

// patience limits the time for a server to return its count.
const patience = 10 * time.Second

// differences is the counter of a server that returns its count on request.
type differences func() (float64, error)

func (d differences) rate(span time.Duration, mark func()) (float64, error) {
	a, from, err := d.at()
	if err != nil {
		return 0, err
	}
	mark()
	time.Sleep(span)
	b, to, err := d.at()
	mark()
	return (b - a) / to.Sub(from).Seconds(), err
}

// at returns the count, and the midpoint of the request's time.
func (d differences) at() (n float64, at time.Time, err error) {
	begin := time.Now()
	n, err = d()
	return n, begin.Add(time.Since(begin) / 2), err
}

func redisCount(c net.Conn) (float64, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "INFO stats\r\n"); err != nil {
		return 0, err
	}
	r := bufio.NewReader(c)
	head, err := r.ReadString('\n') // $LENGTH
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil || n < 0 || n > 1<<20 {
		return 0, fmt.Errorf("redis said %q", head)
	}
	body := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(body), "total_commands_processed:")
	num, _, _ := strings.Cut(rest, "\r")
	return strconv.ParseFloat(num, 64)
}

func nginxCount(url string) (float64, error) {
	client := http.Client{Timeout: patience}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return 0, err
	}
	// Format: "… requests", and a line with as many numbers, of which the last is the
	// requests.
	_, rest, _ := strings.Cut(string(b), "requests\n")
	line, _, _ := strings.Cut(rest, "\n")
	f := strings.Fields(line)
	if len(f) == 0 {
		return 0, fmt.Errorf("%s said %q", url, b)
	}
	return strconv.ParseFloat(f[len(f)-1], 64)
}

// lines is a growing file of counts.
type lines struct {
	f    *os.File
	rest string // of an incomplete line
}

// next waits for a new line, and returns the last one.
func (l *lines) next() (line string, at time.Time, err error) {
	if _, err := l.f.Seek(0, io.SeekEnd); err != nil {
		return "", at, err
	}
	l.rest = ""
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		b, err := io.ReadAll(l.f)
		if err != nil {
			return "", at, err
		}
		l.rest += string(b)
		if i := strings.LastIndexByte(l.rest, '\n'); i >= 0 {
			return l.rest[strings.LastIndexByte(l.rest[:i], '\n')+1 : i], time.Now(), nil
		}
		if time.Since(begin) > patience {
			return "", at, fmt.Errorf("%s does not grow", l.f.Name())
		}
	}
}

func (l *lines) rate(span time.Duration, mark func()) (float64, error) {
	a, from, err := l.next()
	if err != nil {
		return 0, err
	}
	mark()
	time.Sleep(span)
	b, to, err := l.next()
	mark()
	if err != nil {
		return 0, err
	}
	before, err := strconv.ParseFloat(strings.TrimSpace(a), 64)
	if err != nil {
		return 0, err
	}
	after, err := strconv.ParseFloat(strings.TrimSpace(b), 64)
	return (after - before) / to.Sub(from).Seconds(), err
}
