package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
)

// webFlags configure the page's server; record, demo and view have them.
type webFlags struct {
	addr  string
	token string
	file  string // that contains the token
	hosts []string
	open  bool

	fs *pflag.FlagSet
}

const webDefault = "127.0.0.1:0"

func (f *webFlags) register(fs *pflag.FlagSet, optional bool) {
	f.fs = fs
	if optional {
		fs.StringVar(&f.addr, "web", "", "serve a live page at this address (without one: "+webDefault+", a free port on this machine)")
		fs.Lookup("web").NoOptDefVal = webDefault
	} else {
		fs.StringVar(&f.addr, "web", webDefault, "serve at this address (0: a free port)")
	}
	fs.StringVar(&f.token, "web-token", "", "token of the page's URL (default: a random one); addresses that other machines can reach need one; other users can see it in the process list: prefer --web-token-file")
	fs.StringVar(&f.file, "web-token-file", "", "file with the token (or $SLIVER_WEB_TOKEN)")
	fs.StringArrayVar(&f.hosts, "web-host", nil, "host name that a proxy or other machines use for the page; repeatable")
	fs.BoolVar(&f.open, "open", false, "open the page in the browser")
}

// wanted checks the flags and reports whether to serve a page.
func (f *webFlags) wanted(help string) (bool, error) {
	if f.addr == "" {
		if f.fs.Changed("web") {
			return false, usagef(help, `web: invalid listen address "": write HOST:PORT (example: 127.0.0.1:8080)`)
		}
		for _, name := range []string{"web-token", "web-token-file", "web-host", "open"} {
			if f.fs.Changed(name) {
				return false, usagef(help, "--%s needs the page: add --web", name)
			}
		}
		return false, nil
	}
	if f.fs.Changed("web-token") && f.token == "" {
		return false, usagef(help, "web-token: it is empty; use at least %d letters, digits, - and _", web.MinToken)
	}
	if err := f.readToken(); err != nil {
		return false, usagef(help, "%v", err)
	}
	if err := web.CheckAddress(f.addr, f.token, "--web-token-file or $SLIVER_WEB_TOKEN"); err != nil {
		return false, usagef(help, "web: %v", err)
	}
	return true, nil
}

// readToken reads the token from a source that other users cannot see.
func (f *webFlags) readToken() error {
	switch {
	case f.file != "" && f.token != "":
		return errors.New("both --web-token and --web-token-file are given; choose one")
	case f.file != "":
		token, err := readSecret(f.file)
		if err != nil {
			return fmt.Errorf("web-token-file: %w", err)
		}
		f.token = token
	case f.token == "":
		f.token = os.Getenv("SLIVER_WEB_TOKEN")
	}
	return nil
}

// readSecret reads a file with a token.
func readSecret(path string) (string, error) {
	b, err := safefile.ReadNamed(path, maxToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return token, nil
}

// takeAddress accepts an address after --web and a space: an address is neither a flag
// nor a command. It returns the other arguments.
func (f *webFlags) takeAddress(args []string, dash int) ([]string, int) {
	if f.addr != webDefault || len(args) == 0 || dash == 0 {
		return args, dash
	}
	if _, _, err := net.SplitHostPort(args[0]); err != nil {
		return args, dash
	}
	f.addr = args[0]
	return args[1:], max(dash-1, -1)
}

// options returns a server's options without its content.
func (f *webFlags) options(e *env) web.Options {
	overflow := ""
	if cache, err := userCache(); err == nil {
		overflow = filepath.Join(cache, "sliver")
	}
	return web.Options{Overflow: overflow, Addr: f.addr, Token: f.token, Hosts: f.hosts, Version: versionString(), Formats: webFormats(), Recorders: pageRecorders{},
		Logf: func(format string, a ...any) {
			fmt.Fprintf(e.stderr, "sliver: %s\n", oneLine(fmt.Errorf(format, a...)))
		}}
}

// webFormats returns the downloads that the page offers.
func webFormats() []web.Format {
	var out []web.Format
	for _, f := range export.Formats() {
		w := web.Format{Name: f.Name, Title: f.Name, About: f.About, Ext: f.StreamExtension()}
		if f.Name == "perfetto" || f.Name == "speedscope" || f.Name == "firefox" {
			w.Use = f.Name
		}
		out = append(out, w)
	}
	return out
}

// writePart is web.Options.Export for a recording.
func writePart(w io.Writer, rec *trace.Recording, format string, p web.Part) error {
	f, err := export.ByName(format)
	if err != nil {
		return err
	}
	o := export.Options{From: p.From, To: p.To, Threads: p.Threads}
	if len(rec.Others) > 0 {
		by := p.ThreadsOf(rec)
		if o.Threads = by[0]; p.Threads != nil {
			o.Rest = by[1:]
		}
	}
	return f.Stream(w, rec, o)
}

// announce prints the page's address and starts the browser if requested.
func (f *webFlags) announce(e *env, s *web.Server) {
	fmt.Fprintf(e.stderr, "page: %s\n", s.URL())
	forward := forwardLine(s)
	if forward != "" {
		fmt.Fprintf(e.stderr, "      from your own machine: %s\n", forward)
	}
	if !f.open {
		return
	}
	if err := startBrowser(s, forward != ""); err != nil {
		fmt.Fprintf(e.stderr, "sliver: cannot start the browser: %s; open the page yourself\n", oneLine(err))
	}
}

// forwardLine returns the command that makes the page reachable at the same URL on the
// machine from which an SSH session comes; "" without one.
func forwardLine(s *web.Server) string {
	// client address, client port, server address, server port: ssh(1)
	c := strings.Fields(os.Getenv("SSH_CONNECTION"))
	host, port, err := net.SplitHostPort(s.Addr().String())
	if len(c) != 4 || err != nil || !net.ParseIP(host).IsLoopback() {
		return ""
	}
	at := c[2]
	if u, err := user.Current(); err == nil {
		at = u.Username + "@" + at
	}
	line := fmt.Sprintf("ssh -N -L %s:%s %s", port, net.JoinHostPort(host, port), at)
	if c[3] != "22" {
		line += " -p " + c[3]
	}
	return line
}

func startBrowser(s *web.Server, remote bool) error {
	if remote && os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return errors.New("this SSH session has no display")
	}
	path, err := exec.LookPath("xdg-open")
	if err != nil {
		return errors.New("xdg-open is not installed")
	}
	url, err := s.OpenURL()
	if err != nil {
		return err
	}
	cmd := exec.Command(path, url)
	if background.Do(func() { err = cmd.Start() }); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // some browsers keep running; their exit status does not matter
	return nil
}

// held holds back Ctrl-C and similar signals from hold to release.
type held struct {
	ch  chan os.Signal
	got bool
}

func hold() *held {
	h := &held{ch: make(chan os.Signal, 1)}
	signal.Notify(h.ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	return h
}

// wait returns at the first signal, or when done is closed.
func (h *held) wait(done <-chan struct{}) {
	select {
	case <-h.ch:
		h.got = true
	case <-done:
	}
}

// release restores the signals' default action and reports whether one arrived. A nil
// held had none.
func (h *held) release() bool {
	if h == nil {
		return false
	}
	signal.Stop(h.ch)
	select {
	case <-h.ch:
		h.got = true
	default:
	}
	return h.got
}

// noPages returns a channel that is closed when no page has been open for a while.
func noPages(ctx context.Context, s *web.Server) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pagesEvery)
		defer tick.Stop()
		for idle := 0; idle < pagesIdle; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if idle++; s.Clients() > 0 {
				idle = 0
			}
		}
	}()
	return done
}

// A page that is being reloaded is disconnected for a moment.
const (
	pagesEvery = 250 * time.Millisecond
	pagesIdle  = 8
)
