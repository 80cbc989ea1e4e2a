package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/telemetry"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/notify"
	"github.com/sliverprof/sliver/web"
)

// manager is the service manager that started sliver, if any.
type manager struct {
	socket string
	log    *slog.Logger
}

// newManager removes the manager's socket from the environment: commands that sliver
// starts must not report in its name.
func newManager(log *slog.Logger) *manager {
	m := &manager{os.Getenv("NOTIFY_SOCKET"), log}
	os.Unsetenv("NOTIFY_SOCKET")
	return m
}

func (m *manager) say(lines ...string) {
	if err := notify.Service(m.socket, lines...); err != nil {
		m.log.Warn("cannot notify", "by", "service manager", "error", err)
	}
}

// serve runs the Watcher until a signal or its targets end it.
func (f *watchFlags) serve(e *env, o watch.Options, src watch.Source, manager *manager, command bool) error {
	// With more targets than this, samplers run at a lower priority too.
	const targets, dumping = 4, 3
	_ = background.Lower(targets*(o.Session.Groups+1) + dumping) // without permission, sliver runs at normal priority
	w, err := watch.New(o)
	if err != nil {
		return err
	}
	// Before it becomes visible to clients: from then on it ends in order, also at a
	// signal.
	ctx, stop := f.signals(e, w, o.Log, manager, command)
	defer stop()
	dir, err := control.Dir()
	if err != nil {
		return err
	}
	l, err := control.Listen(dir, o.Name)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: control.Handler(w), ReadHeaderTimeout: 10 * time.Second}
	go srv.Serve(l)
	defer srv.Close() // removes the socket
	tel, err := newTelemetry(telemetry.Config{Listen: f.metrics, Page: f.http != ""}, func(s string) { o.Log.Warn("telemetry", "trouble", s) })
	if err != nil {
		return err
	}
	defer tel.Close()
	if tel.Addr() != "" {
		o.Log.Info("metrics", "address", tel.Addr())
	}
	if err := tel.Watch(watched{w}); err != nil {
		return err
	}
	if f.http != "" {
		stop, err := f.listen(w, o.Log, tel.Page())
		if err != nil {
			return err
		}
		defer stop()
	}
	manager.say("READY=1", "STATUS=keeps the last "+w.Status().Keep+" of "+f.watched(src))
	defer manager.say("STOPPING=1")
	if src.Fixed != nil {
		o.Log.Info("started", "recorder", o.Name, "dir", o.Store.Dir, "triggers", len(o.Rules))
	}
	err = w.Run(ctx, src)
	if errors.Is(err, sampler.ErrNoThreads) {
		return noThreads(f.threads, src.Fixed[0])
	}
	return explain(err)
}

// maxToken limits a file with a token, in bytes.
const maxToken = 4 << 10

// checkHTTP checks --http and --http-token, and reads the token that the user chose.
func (f *watchFlags) checkHTTP() error {
	switch {
	case f.http == "" && f.httpToken == "":
		return nil
	case f.http == "":
		return usagef("watch", "--http-token is for the HTTP interface: add --http")
	}
	f.token = os.Getenv("SLIVER_HTTP_TOKEN")
	if f.httpToken != "" {
		var err error
		if f.token, err = readSecret(f.httpToken); err != nil {
			return fmt.Errorf("http-token: %w", err)
		}
	}
	if err := web.CheckAddress(f.http, f.token, "--http-token or $SLIVER_HTTP_TOKEN"); err != nil {
		return usagef("watch", "http: %v", err)
	}
	return nil
}

// listen serves the control interface over TCP.
func (f *watchFlags) listen(w *watch.Watcher, log *slog.Logger, metrics http.Handler) (stop func(), err error) {
	token, made := f.token, f.token == ""
	if made {
		token = control.Token()
	}
	host, _, err := net.SplitHostPort(f.http)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", f.http)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	own, _ := os.Hostname()
	srv := control.Server(control.Web(w, token, []string{"localhost", host, own}, metrics))
	go srv.Serve(control.Limit(l))
	if made {
		log.Info("http", "address", l.Addr().String(), "token", token)
	} else {
		log.Info("http", "address", l.Addr().String())
	}
	return func() { srv.Close() }, nil
}

// signals stops watching at Ctrl-C or SIGTERM, dumps at SIGUSR2 and reloads the
// configuration at SIGHUP.
func (f *watchFlags) signals(e *env, w *watch.Watcher, log *slog.Logger, manager *manager, command bool) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	end := &ender{stderr: e.stderr, hurry: f.hurry}
	ch, gone := make(chan os.Signal, 8), make(chan struct{})
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR2)
	go func() {
		for {
			var sig os.Signal
			select {
			case sig = <-ch:
			case <-gone:
				return
			}
			switch {
			case sig == syscall.SIGUSR2:
				go func() {
					if _, err := w.Dump(ctx, control.Request{Kind: "signal", Text: "SIGUSR2"}, nil); err != nil {
						log.Error("no dump", "error", err)
					}
				}()
			case sig == syscall.SIGHUP && f.config != "":
				manager.say("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", target.Now()/1000))
				f.reload(w, log)
				manager.say("READY=1")
			case sig == syscall.SIGINT && command: // it is for the command
			default:
				end.watching(sig, cancel, log)
			}
		}
	}()
	return ctx, sync.OnceFunc(func() { signal.Stop(ch); close(gone); cancel() })
}

// watching handles a signal that ends watching. One that comes twice, to the program and to its group, is logged once.
func (x *ender) watching(sig os.Signal, cancel func(), log *slog.Logger) {
	if x.signaled(sig) {
		cancel() // before the log, which may block
		log.Info("ended by a signal", "signal", unix.SignalName(sig.(syscall.Signal)))
	}
}

// watched describes the targets.
func (f *watchFlags) watched(s watch.Source) string {
	var names []string
	for _, p := range s.Fixed {
		names = append(names, fmt.Sprintf("%s (%d)", printable(p.Facts().Comm), p.PID()))
	}
	if len(names) == 0 {
		return s.What
	}
	return strings.Join(names, ", ")
}
