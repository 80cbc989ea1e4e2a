// Command slow is an HTTP server with a fast and a slow handler, and a mutex that both want. A client
// in the same program asks for both. It prints "serving" and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"
)

var (
	cache sync.Mutex
	hits  = map[int]int{}
	sink  int
)

//go:noinline
func renderReport(n int) int {
	sum := 0
	for i := range n {
		sum = (sum*31 + i) % 1000003
	}
	return sum
}

//go:noinline
func reportHandler(w http.ResponseWriter, _ *http.Request) {
	cache.Lock()
	sink += renderReport(8_000_000)
	cache.Unlock()
	fmt.Fprintln(w, sink)
}

//go:noinline
func healthHandler(w http.ResponseWriter, _ *http.Request) {
	cache.Lock()
	hits[len(hits)%100]++
	cache.Unlock()
	fmt.Fprintln(w, "ok")
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/report", reportHandler)
	mux.HandleFunc("/health", healthHandler)
	s := httptest.NewServer(mux)
	get := func(path string) {
		if r, err := http.Get(s.URL + path); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
		}
	}
	for range 2 {
		go func() {
			for {
				get("/report")
				time.Sleep(2 * time.Millisecond)
			}
		}()
	}
	for range 6 {
		go func() {
			for {
				get("/health")
				time.Sleep(4 * time.Millisecond)
			}
		}()
	}
	fmt.Println("serving")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
