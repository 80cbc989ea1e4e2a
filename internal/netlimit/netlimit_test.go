package netlimit

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// Half-open connections, however many, neither lock out authenticated requests nor interrupt
// one in progress.
func TestHalfOpenConnections(t *testing.T) {
	const most = 20
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New(inner, most)
	release := make(chan struct{})
	began := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", func(w http.ResponseWriter, q *http.Request) {
		Keep(q.Context())
		close(began)
		<-release
		fmt.Fprint(w, "slow")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) { Keep(q.Context()); fmt.Fprint(w, "ok") })
	srv := &http.Server{Handler: mux, ConnContext: Context, ConnState: State}
	go srv.Serve(l)
	defer srv.Close()
	url := "http://" + inner.Addr().String()
	slow := make(chan string, 1)
	go func() {
		res, err := http.Get(url + "/slow")
		if err != nil {
			slow <- err.Error()
			return
		}
		b, _ := io.ReadAll(res.Body)
		slow <- string(b)
	}()
	<-began
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	one := &http.Client{Transport: &http.Transport{}} // its connection stays open, idle
	for round := range 5 {
		for range most {
			c, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"); err != nil { // an incomplete request
				t.Log(err)
			}
			open = append(open, c)
		}
		res, err := one.Get(url + "/")
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if b, _ := io.ReadAll(res.Body); string(b) != "ok" {
			t.Errorf("round %d: %q", round, b)
		}
		res.Body.Close()
		if n := l.Len(); n > most {
			t.Errorf("%d connections", n)
		}
	}
	close(release)
	if got := <-slow; got != "slow" {
		t.Errorf("the one that was being answered: %q", got)
	}
}

// If all permitted connections are kept, another one is rejected.
func TestAllKept(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New(inner, 1)
	hold, began := make(chan struct{}), make(chan struct{})
	srv := &http.Server{ConnContext: Context, ConnState: State, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		Keep(q.Context())
		began <- struct{}{}
		<-hold
	})}
	go srv.Serve(l)
	defer srv.Close()
	url := "http://" + inner.Addr().String()
	done := make(chan error, 1)
	go func() {
		res, err := http.Get(url)
		if err == nil {
			res.Body.Close()
		}
		done <- err
	}()
	<-began
	if _, err := (&http.Client{Transport: &http.Transport{}}).Get(url); err == nil {
		t.Error("a second one was answered")
	}
	close(hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
