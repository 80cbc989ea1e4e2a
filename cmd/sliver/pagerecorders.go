package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/web"
)

// pageRecorders implements web.Recorders with the user's flight recorders.
type pageRecorders struct{}

// List implements web.Recorders.
func (pageRecorders) List(ctx context.Context) ([]web.Recorder, error) {
	_, says, mute, err := recorders(ctx)
	if err != nil {
		return nil, err
	}
	var out []web.Recorder
	for _, s := range says {
		r := web.Recorder{Name: s.Name, PID: s.PID, Keep: s.Keep, Dir: s.Dir, Targets: []string{}, Waiting: s.Waiting, Trouble: s.Trouble, Dumps: []web.Dump{}}
		for _, t := range s.Targets {
			r.Targets = append(r.Targets, fmt.Sprintf("%s (%d), %s", t.Name, t.PID, plural.Of(t.Threads, "thread")))
		}
		for _, d := range s.Dumps {
			r.Dumps = append(r.Dumps, web.Dump{At: d.At, Reason: d.Reason, Text: d.Text, File: d.Files[0], Bytes: d.Bytes})
		}
		out = append(out, r)
	}
	for _, m := range mute {
		out = append(out, web.Recorder{Name: m.name, Targets: []string{}, Trouble: m.String(), Dumps: []web.Dump{}})
	}
	return out, nil
}

// Dump implements web.Recorders.
func (pageRecorders) Dump(ctx context.Context, name string) ([]string, error) {
	clients, _, _, err := recorders(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(clients, func(c *control.Client) bool { return c.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: %q", web.ErrNoRecorder, name)
	}
	ds, err := clients[i].Dump(ctx, control.Request{Text: "requested on a page"})
	if err != nil {
		return nil, err
	}
	var files []string
	for _, d := range ds {
		files = append(files, d.Files...)
	}
	return files, nil
}
