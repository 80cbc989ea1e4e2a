package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/wire"
)

// BenchmarkClients records a real program without a page, with a page that
// nobody looks at, and with 100 clients of which 10 never read, and tells what
// share of the ticks came too late, what the program lost of its time, and what
// of the recording was overwritten. Times are by sliver's own accounts. A round
// takes 10 s, with -short 1 s.
func BenchmarkClients(b *testing.B) {
	testprog.Need(b, "ptrace")
	bin, err := build()
	if err != nil {
		b.Fatal(err)
	}
	lasts := "10s"
	if testing.Short() {
		lasts = "1s"
	}
	for _, n := range []struct {
		name        string
		page        bool
		read, stuck int
	}{{"no-page", false, 0, 0}, {"nobody", true, 0, 0}, {"100", true, 90, 10}} {
		b.Run(n.name, func(b *testing.B) {
			for range b.N {
				p := testprog.Start(b, testprog.Build(b, "locks/kitchen", "O2"), "--seconds", "600", "--cooks", "8", "--wait-go")
				p.Ready()
				p.Go()
				args := []string{"record", "-p", pidOfProc(p), "-i", "10ms", "-d", lasts, "--json", "-o", filepath.Join(b.TempDir(), "b.sliver")}
				if n.page {
					args = append(args, "--web")
				}
				cmd := exec.Command(bin, args...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				var out strings.Builder
				cmd.Stdout = &out
				errs, err := cmd.StderrPipe()
				if err != nil {
					b.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				end := func() {}
				if n.page {
					var word, url string
					if _, err := fmt.Fscan(errs, &word, &url); err != nil {
						b.Fatal(err)
					}
					if n.read+n.stuck > 0 {
						end = startClients(b, url, n.read, n.stuck)
					}
				}
				go func() { _, _ = io.Copy(io.Discard, errs) }() // ends with the process
				dec := json.NewDecoder(newTail(b, cmd, &out, end))
				var s summaryJSON
				if err := dec.Decode(&s); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(100*float64(s.Late)/float64(s.Late+s.Samples), "late-%")
				b.ReportMetric(float64(s.Overwritten), "overwritten")
				b.ReportMetric(float64(s.Samples), "samples")
				b.ReportMetric(float64(s.Pause.P50)/1e3, "pause-p50-µs")
				b.ReportMetric(float64(s.Pause.P99)/1e3, "pause-p99-µs")
				b.ReportMetric(float64(s.SelfCPUNS)/float64(s.DurationNS), "CPUs")
				p.Kill()
			}
		})
	}
}

// newTail waits for the summary, which comes when the recording ends, and then
// for the end of the page, which comes when the clients go.
func newTail(b *testing.B, cmd *exec.Cmd, out *strings.Builder, end func()) io.Reader {
	b.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	end()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return strings.NewReader(out.String())
}

func pidOfProc(p *testprog.Proc) string { return fmt.Sprint(p.PID) }

// startClients starts readers, and some that never read, in a program of their
// own, and returns what waits until the recording is over.
func startClients(b *testing.B, url string, read, stuck int) (wait func()) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestClientsOfBenchmark$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", clientsVar, url, read, stuck))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			b.Errorf("the clients: %v", err)
		}
	}
}

const clientsVar = "SLIVER_BENCH_CLIENTS"

// TestClientsOfBenchmark is the other program of BenchmarkClients. It ends when
// the recording has.
func TestClientsOfBenchmark(t *testing.T) {
	var printed string
	var read, stuck int
	if _, err := fmt.Sscan(os.Getenv(clientsVar), &printed, &read, &stuck); err != nil {
		t.Skip("for BenchmarkClients")
	}
	c, err := client.New(printed)
	if err != nil {
		t.Fatal(err)
	}
	page, token, _ := strings.Cut(printed, "#token=")
	for range stuck {
		d := websocket.Dialer{Subprotocols: []string{wire.Protocol}}
		conn, _, err := d.Dial("ws"+strings.TrimPrefix(page, "http")+"ws", http.Header{"X-Sliver-Token": {token}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.NetConn().(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if err := conn.WriteMessage(websocket.TextMessage, []byte(`{"op":"view","id":1,"follow":true,"t0":-1e18,"bin":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan bool, read)
	for range read {
		w, err := c.Watch(t.Context(), client.View{Follow: true, Bin: 4e6})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer w.Close()
			for w.Status == nil || !w.Status.Done {
				if _, err := w.Next(); err != nil {
					t.Error(err)
					break
				}
			}
			done <- true
		}()
	}
	for range read {
		<-done
	}
}
