package web_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/wire"
)

// TestLeave ends servers while a page sends queries as fast as it can: the page must still
// learn that the server has ended, and not that the connection was lost. Bytes that the server
// has not read when it closes reset the connection, and a reset discards what the page has
// not read.
func TestLeave(t *testing.T) {
	const rounds = 40
	for range rounds {
		s := serve(t, web.Options{})
		conn, _, err := (&websocket.Dialer{Subprotocols: []string{wire.Protocol}}).DialContext(t.Context(), "ws://"+s.Addr().String()+"/ws", http.Header{"X-Sliver-Token": {s.Token()}})
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for conn.WriteMessage(websocket.TextMessage, []byte(`{"op":"view","id":1,"t0":0,"t1":1000000,"bin":1000,"threads":[1]}`)) == nil {
			}
		}()
		ended := false
		for {
			_, _, err = conn.ReadMessage()
			if err != nil {
				break
			}
			if !ended {
				ended = true
				go s.Close()
			}
		}
		conn.Close()
		<-sent
		if c := (*websocket.CloseError)(nil); !errors.As(err, &c) || c.Code != websocket.CloseGoingAway {
			t.Fatalf("the page's connection ended with %v, not with a notice that the server goes away", err)
		}
		s.Close()
	}
}
