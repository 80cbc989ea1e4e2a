package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/wire"
)

func server(t *testing.T) *web.Server {
	t.Helper()
	var b bytes.Buffer
	if _, err := synth.Write(&b, synth.Options{Seed: 3, Threads: 2, Interval: 1_000_000, Samples: 400}); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := web.Serve(t.Context(), web.Options{Source: web.NewRecording(rec)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestURL(t *testing.T) {
	for _, bad := range []string{"", "http://127.0.0.1:80/", "http://127.0.0.1:80/?token=abc", "#token=abc", "http://[::1#token=x"} {
		if _, err := client.New(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestWatch reads a recording over the websocket until its main function appears by name.
func TestWatch(t *testing.T) {
	c, err := client.New(server(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), client.View{Follow: true, T0: -1e18, Bin: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for found := false; !found; {
		f, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range f.Threads {
			for _, r := range th.Rows {
				for _, x := range r.Items {
					found = found || r.Depth < wire.FirstLane && w.Name(x.Value) == "EventLoop::run()" && r.Depth == 2
				}
			}
		}
	}
}

func TestWrongToken(t *testing.T) {
	s := server(t)
	c, err := client.New("http://" + s.Addr().String() + "/#token=0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	var e *client.Error
	if _, err := c.Info(t.Context()); !errors.As(err, &e) || e.Status != 401 {
		t.Errorf("info: %v", err)
	}
	if _, err := c.Watch(t.Context(), client.View{}); !errors.As(err, &e) || e.Status != 401 {
		t.Errorf("watch: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Info(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled request: %v", err)
	}
}

// A program that prints the functions of a recording by self time, given the URL that
// sliver printed.
func ExampleClient_Tree() {
	const printed = "http://127.0.0.1:8080/#token=…"
	c, err := client.New(printed)
	if err != nil {
		log.Fatal(err)
	}
	tree, err := c.Tree(context.Background(), 0, 0, nil)
	if err != nil {
		log.Fatal(err)
	}
	self := make([]float64, len(tree.Names))
	for i := 1; i < len(tree.Parent); i++ {
		self[tree.Func[i]] += tree.Wall[i]
		if p := tree.Parent[i]; p > 0 {
			self[tree.Func[p]] -= tree.Wall[i]
		}
	}
	for i, ns := range self {
		fmt.Printf("%8.1f ms  %s\n", ns/1e6, tree.Names[i].Name)
	}
}
