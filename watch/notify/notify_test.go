package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExec(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	fields := []Field{{"SLIVER_REASON", "stall"}, {"SLIVER_FILE", "a b'c"}}
	if err := Exec(context.Background(), `printf '%s|%s' "$SLIVER_REASON" "$SLIVER_FILE" > `+out, fields); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(out); string(b) != "stall|a b'c" {
		t.Errorf("it saw %q", b)
	}
	if err := Exec(context.Background(), "echo it went wrong; exit 3", nil); err == nil || !strings.Contains(err.Error(), "exit status 3: it went wrong") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Exec(ctx, "sleep 1000", nil); err == nil {
		t.Error("no error of a command that was ended")
	}
}

func TestWebhook(t *testing.T) {
	var got, kind string
	status := http.StatusNoContent
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, kind = r.Method+" "+string(b), r.Header.Get("Content-Type")
		w.WriteHeader(status)
	}))
	defer s.Close()
	if err := Webhook(context.Background(), s.URL, []byte(`{"a":1}`)); err != nil || got != `POST {"a":1}` || kind != "application/json" {
		t.Errorf("%v, %q, %q", err, got, kind)
	}
	status = http.StatusForbidden
	if err := Webhook(context.Background(), s.URL, nil); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("%v", err)
	}
	s.Close()
	if err := Webhook(context.Background(), s.URL, nil); err == nil {
		t.Error("no error without a server")
	}
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if err := Journal(path, nil); !errors.Is(err, ErrNoJournal) {
		t.Errorf("%v", err)
	}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := Journal(path, []Field{{"MESSAGE", "kept it"}, {"MORE", "two\nlines"}}); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if want := "MESSAGE=kept it\nMORE\n\x09\x00\x00\x00\x00\x00\x00\x00two\nlines\n"; string(b[:n]) != want {
		t.Errorf("%q, want %q", b[:n], want)
	}
}

func TestService(t *testing.T) {
	if err := Service("", "READY=1"); err != nil {
		t.Errorf("nobody to tell: %v", err)
	}
	for _, socket := range []string{filepath.Join(t.TempDir(), "socket"), fmt.Sprintf("@sliver-test-%d", os.Getpid())} {
		if err := Service(socket, "READY=1"); err == nil {
			t.Errorf("%s: no error where nobody listens", socket)
		}
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := Service(socket, "READY=1", "STATUS=it is well"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := c.Read(b)
		if err != nil || string(b[:n]) != "READY=1\nSTATUS=it is well" {
			t.Errorf("%q, %v", b[:n], err)
		}
	}
}
