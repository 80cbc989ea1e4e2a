package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake answers.
type fake struct{ asked Request }

func (f *fake) Status() Status {
	return Status{Name: "one", PID: 5, Waiting: "godot", Targets: nil, Dumps: []Dump{{Target: "t", Files: []string{"a"}}}}
}

func (f *fake) Dump(_ context.Context, r Request, stream io.Writer) ([]Dump, error) {
	f.asked = r
	if r.Target == "frob" {
		return nil, errors.New("no target is called frob")
	}
	if stream != nil {
		_, err := io.WriteString(stream, "recording")
		return nil, err
	}
	return []Dump{{Target: r.Target, Text: r.Text}}, nil
}

func TestSocket(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi, err)
	}
	l, err := Listen(dir, "one")
	if err != nil {
		t.Fatal(err)
	}
	r := &fake{}
	srv := &http.Server{Handler: Handler(r)}
	go srv.Serve(l)
	defer srv.Close()
	if _, err := Listen(dir, "one"); err == nil || !strings.Contains(err.Error(), "--as") {
		t.Errorf("a second one of that name: %v", err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "one.sock")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	all, err := Clients(dir)
	if err != nil || len(all) != 1 || all[0].Name != "one" {
		t.Fatalf("%v, %v", all, err)
	}
	ctx := context.Background()
	if s, err := all[0].Status(ctx); err != nil || s.PID != 5 || len(s.Dumps) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if ds, err := all[0].Dump(ctx, Request{Target: "t", Text: "why not"}); err != nil || len(ds) != 1 || ds[0].Text != "why not" || r.asked.Kind != "request" {
		t.Errorf("%+v, %v", ds, err)
	}
	if _, err := all[0].Dump(ctx, Request{Target: "frob"}); err == nil || !strings.Contains(err.Error(), "no target is called frob") {
		t.Errorf("%v", err)
	}
	var b strings.Builder
	if n, err := all[0].Fetch(ctx, Request{}, &b); err != nil || n != 9 || b.String() != "recording" {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
	if _, err := all[0].Fetch(ctx, Request{Target: "frob"}, &b); err == nil {
		t.Error("no error")
	}
}

// What a recorder that was killed leaves is told from one that lives.
func TestDeadSocket(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir, "dead")
	if err != nil {
		t.Fatal(err)
	}
	l.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
	l.Close()
	all, err := Clients(dir)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if _, err := all[0].Status(context.Background()); !errors.Is(err, ErrDead) {
		t.Errorf("%v", err)
	}
	if l, err = Listen(dir, "dead"); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestDirRefusesOthers(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	if err := os.Mkdir(filepath.Join(base, "sliver"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(base, "sliver"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Dir(); err == nil {
		t.Error("it takes a folder that everyone may write to")
	}
}

func TestWeb(t *testing.T) {
	r := &fake{}
	srv := httptest.NewServer(Web(r, "secret", []string{"localhost"}, nil))
	defer srv.Close()
	for _, c := range []struct {
		method, path, token, host, origin string
		want                              int
	}{
		{"GET", "/healthz", "", "", "", 200},
		{"GET", "/readyz", "", "", "", 503}, // it waits
		{"GET", "/status", "", "", "", 401},
		{"GET", "/status", "wrong", "", "", 401},
		{"GET", "/status", "secret", "", "", 200},
		{"GET", "/status", "secret", "localhost:99", "", 200},
		{"GET", "/status", "secret", "evil.example", "", 403},
		{"POST", "/dump", "secret", "", "http://evil.example", 403},
		{"POST", "/dump", "", "", "", 401},
		{"POST", "/dump?target=t", "secret", "", "", 200},
		{"POST", "/dump?target=frob", "secret", "", "", 503},
		{"GET", "/dump", "secret", "", "", 405},
		{"GET", "/frob", "secret", "", "", 404},
		{"GET", "/metrics", "", "", "", 404},
	} {
		req, err := http.NewRequest(c.method, srv.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		req.Host = c.host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%+v: %s", c, res.Status)
		}
	}
	if r.asked.Kind != "http" {
		t.Errorf("%+v", r.asked)
	}
	if a, b := Token(), Token(); a == b || len(a) != 32 {
		t.Errorf("tokens %q, %q", a, b)
	}
}
