// Command synthserve serves a synthetic recording or live feed for the page's tests,
// screenshots and benchmarks.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sliverprof/sliver/export/page"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/store"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "synthserve:", err)
		os.Exit(1)
	}
}

func run() error {
	live := flag.Bool("live", false, "serve a feed instead of a recording")
	threads := flag.Int("threads", 12, "threads")
	samples := flag.Int("samples", 8000, "samples of each thread of a recording")
	events := flag.Int("events", 0, "stop each thread of a recording after so many events")
	tasks := flag.Int("tasks", 0, "goroutines of a recording")
	interval := flag.Duration("interval", time.Millisecond, "between samples")
	addr := flag.String("addr", "127.0.0.1:0", "where to listen")
	token := flag.String("token", "", "instead of a random one")
	cut := flag.Bool("cut", false, "a recording without its end")
	idle := flag.Bool("idle", false, "a feed of which no sample comes")
	broken := flag.Bool("broken", false, "a recording that cannot be read")
	held := flag.Duration("held", 31*time.Microsecond, "how long a feed says that a thread is held, in the middle")
	heldMost := flag.Duration("held-most", 62*time.Microsecond, "how long it says that 99 of 100 are held at most, 0 for never")
	control := flag.Bool("control", true, "let clients control the feed")
	processes := flag.Int("processes", 1, "processes of a recording")
	compare := flag.Bool("compare", false, "a second recording beside the first")
	save := flag.String("save", "", "write the recording to a file too")
	flag.Parse()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := web.Options{Addr: *addr, Token: *token, Version: "test", Logf: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }}
	o.Formats = []web.Format{
		{Name: "perfetto", Title: "Perfetto", Ext: ".pftrace", Use: "perfetto"},
		{Name: "speedscope", Title: "speedscope", Ext: ".speedscope.json", Use: "speedscope"},
		{Name: "pprof", Title: "pprof", Ext: ".pb.gz"},
		{Name: "firefox", Title: "Firefox", Ext: ".firefox.json.gz", Use: "firefox"},
		{Name: "html", Title: "html", Ext: ".html"},
	}
	var rec *trace.Recording // nil: a feed
	o.Export = func(_ context.Context, w io.Writer, format string, p web.Part) error {
		if format == "pprof" {
			return errors.New("this format fails here, to show how that looks")
		}
		if format == "html" && rec != nil {
			return page.Write(w, rec, view.Options{Threads: p.Threads, From: p.From, To: p.To})
		}
		// A minimal but complete file for speedscope that contains the request.
		_, err := fmt.Fprintf(w, `{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"main"}]},`+
			`"profiles":[{"type":"evented","name":"one thread","unit":"nanoseconds","startValue":0,"endValue":10,`+
			`"events":[{"type":"O","frame":0,"at":0},{"type":"C","frame":0,"at":10}]}],"format":%q,"from":%d,"to":%d,"threads":%d}`,
			format, p.From, p.To, len(p.Threads))
		return err
	}
	end, deeper := func(string) {}, func() {}
	if *live {
		n := *threads
		if *idle {
			n = 0
		}
		f, err := synth.NewFeed(1, n, *interval)
		if err != nil {
			return err
		}
		src := web.NewLive(f.Rec, web.LiveOptions{Namer: synth.Namer{}, Window: f.Window})
		o.Source = src
		fctx, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { f.Run(fctx); close(done) }()
		deeper = func() { f.Deeper.Store(true) }
		end = func(reason string) { stop(); <-done; src.End(reason) }
		if *control {
			o.Control = web.Control{
				Pause:       func() error { f.Paused.Store(true); return nil },
				Resume:      func() error { f.Paused.Store(false); return nil },
				Stop:        func() error { end("stopped on the page"); return nil },
				SetInterval: f.SetInterval,
			}
		}
		o.Status = func() web.Status {
			return web.Status{Paused: f.Paused.Load(), Interval: f.Interval(), Samples: f.Samples.Load(), Lost: 3, Losses: "2 late, 1 timed out", PauseP50: held.Nanoseconds(), PauseP99: heldMost.Nanoseconds(),
				Overhead: .011, Threads: "all"}
		}
	} else {
		var n int
		var err error
		rec, n, err = record(synth.Options{Seed: 1, Threads: *threads, Interval: int64(*interval), Samples: *samples, Events: *events, Tasks: *tasks, Cut: *cut, Processes: *processes}, *save)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d events\n", n)
		o.Source = web.NewRecording(rec)
		if *broken {
			o.Source = unreadable{o.Source}
		}
		if *compare {
			other, _, err := record(synth.Options{Seed: 2, Threads: *threads, Interval: int64(*interval), Samples: *samples / 2}, "")
			if err != nil {
				return err
			}
			o.Compare = web.NewRecording(other)
		}
	}
	begin := time.Now()
	s, err := web.Serve(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println(s.URL())
	if !*live {
		go func() {
			for !s.Loaded() {
				time.Sleep(5 * time.Millisecond)
			}
			fmt.Fprintf(os.Stderr, "loaded in %v\n", time.Since(begin).Round(time.Millisecond))
		}()
	}
	// The parent process sends commands as lines, and ends this process by closing the
	// pipe.
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "end":
			end("target ended")
		case "deeper":
			deeper()
		}
	}
	return nil
}

// unreadable is a recording that cannot be read.
type unreadable struct{ web.Source }

func (unreadable) Run(context.Context, *store.Store) (string, error) {
	return "", errors.New("chunk at 4096: bad checksum")
}

func record(o synth.Options, save string) (*trace.Recording, int, error) {
	if o.Processes > 1 && save == "" {
		dir, err := os.MkdirTemp("", "synthserve")
		if err != nil {
			return nil, 0, err
		}
		defer os.RemoveAll(dir) // the open file stays readable
		save = filepath.Join(dir, "several.sliver")
	}
	if save != "" {
		return saved(o, save)
	}
	var b bytes.Buffer
	n, err := synth.Write(&b, o)
	if err != nil {
		return nil, 0, err
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	return rec, n, err
}

// saved writes the recording to a file and reads it from there, as it may be long.
func saved(o synth.Options, path string) (*trace.Recording, int, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, 0, err
	}
	n := 0
	if o.Processes > 1 {
		n, err = synth.WriteAll(f, o)
	} else {
		w := bufio.NewWriterSize(f, 1<<20)
		if n, err = synth.Write(w, o); err == nil {
			err = w.Flush()
		}
	}
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	rec, err := trace.Open(f, size)
	return rec, n, err
}
