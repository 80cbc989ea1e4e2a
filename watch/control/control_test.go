package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a Recorder with fixed replies.
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

// A killed recorder's socket is distinguished from a live one.
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

// TestListener is not a test: it is the recorder that TestKilledSocket kills, and it leaves
// a process running for a while that holds its files.
func TestListener(t *testing.T) {
	dir := os.Getenv("SLIVER_TEST_LISTENER")
	if dir == "" {
		return // skip unless it runs as the child process
	}
	l, err := Listen(dir, "killed")
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	left := exec.Command("cat") // until the test closes its input
	left.Stdin, left.ExtraFiles = os.Stdin, []*os.File{f}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("listens")
	_ = http.Serve(l, Handler(&fake{}))
}

// The socket of a killed recorder still accepts connections while a process that it left
// behind holds its files. The name is free nevertheless, for one of the recorders that try
// to take it.
func TestKilledSocket(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestListener$")
	cmd.Env = append(os.Environ(), "SLIVER_TEST_LISTENER="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	defer cmd.Process.Kill()
	for line := bufio.NewScanner(out); line.Scan() && line.Text() != "listens"; {
	}
	ctx := context.Background()
	all, err := Clients(dir)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if s, err := all[0].Status(ctx); err != nil || s.PID != 5 {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := Listen(dir, "killed"); err == nil {
		t.Fatal("it takes the name of one that runs")
	}
	if all[0].Remove(dir); !there(dir, "killed") {
		t.Error("the socket of one that runs is taken away")
	}
	_ = cmd.Process.Kill() // not waited for yet
	all, _ = Clients(dir)  // they have no earlier connection
	for limit := time.Now().Add(time.Minute); ; {
		_, err := all[0].Status(ctx)
		if errors.Is(err, ErrDead) {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("killed, and %v", err)
		}
	}
	if c, err := net.Dial("unix", socket(dir, "killed")); err != nil {
		t.Errorf("nothing is left that takes connections: %v", err)
	} else {
		c.Close()
	}
	var wg sync.WaitGroup
	got := make(chan net.Listener, 16)
	for range cap(got) {
		wg.Go(func() {
			l, err := Listen(dir, "killed")
			switch {
			case err == nil:
				go http.Serve(l, Handler(&fake{}))
				got <- l
			case !strings.Contains(err.Error(), "is running"):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(got) != 1 {
		t.Fatalf("%d have the name", len(got))
	}
	all[0].Remove(dir)
	if s, err := all[0].Status(ctx); err != nil || s.PID != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	(<-got).Close()
}

func there(dir, name string) bool {
	_, err := os.Lstat(socket(dir, name))
	return err == nil
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
		{"GET", "/readyz", "", "", "", 503}, // it waits for a target
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
