package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Client sends requests to one of the user's recorders.
type Client struct {
	Name string
	http *http.Client
}

// Clients returns a Client for each socket in dir, by name.
func Clients(dir string) ([]*Client, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.sock"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var out []*Client
	for _, p := range paths {
		out = append(out, newClient(p))
	}
	return out, nil
}

func newClient(path string) *Client {
	return &Client{Name: strings.TrimSuffix(filepath.Base(path), ".sock"),
		http: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, path)
		}}}}
}

const (
	statusPatience = 2 * time.Second
	dumpPatience   = 2 * time.Minute
	maxAnswer      = 16 << 20
)

// ErrDead reports that the recorder no longer listens: it was killed.
var ErrDead = errors.New("the recorder is gone")

func (c *Client) do(ctx context.Context, method, path string, form url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://sliver"+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := c.http.Do(req)
	if err != nil {
		var ne *net.OpError
		if errors.Is(err, ErrDead) || errors.As(err, &ne) && ne.Op == "dial" {
			return nil, fmt.Errorf("%s: %w", c.Name, ErrDead)
		}
		return nil, fmt.Errorf("ask the recorder %s: %w", c.Name, err)
	}
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		res.Body.Close()
		return nil, fmt.Errorf("recorder %s: %s", c.Name, strings.TrimSpace(string(b)))
	}
	return res, nil
}

// Status requests the recorder's status.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	res, err := c.do(ctx, http.MethodGet, "/status", nil)
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	err = json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&s)
	return s, err
}

// Dump requests a dump in the recorder's own folder.
func (c *Client) Dump(ctx context.Context, r Request) (ds []Dump, err error) {
	ctx, cancel := context.WithTimeout(ctx, dumpPatience)
	defer cancel()
	res, err := c.do(ctx, http.MethodPost, "/dump", url.Values{"target": {r.Target}, "text": {r.Text}})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	err = json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&ds)
	return ds, err
}

// Fetch requests a dump and copies it to w; the recorder does not keep it.
func (c *Client) Fetch(ctx context.Context, r Request, w io.Writer) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, dumpPatience)
	defer cancel()
	res, err := c.do(ctx, http.MethodPost, "/dump", url.Values{"target": {r.Target}, "text": {r.Text}, "stream": {"1"}})
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.Header.Get("Content-Type") != recording {
		return 0, fmt.Errorf("recorder %s: it sent no recording", c.Name)
	}
	return io.Copy(w, res.Body)
}

// Remove removes a dead recorder's socket, unless another recorder has taken the name
// since.
func (c *Client) Remove(dir string) {
	unlock, err := lock(dir)
	if err != nil {
		return
	}
	defer unlock()
	if path := socket(dir, c.Name); !running(path) {
		_ = os.Remove(path)
	}
}
