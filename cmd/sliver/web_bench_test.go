package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/wire"
)

// BenchmarkClients records a real program with an unused page and with 100 clients of
// which 10 never read, alternately, b.N pairs after one discarded pair. It reports how
// many ticks were late, the program's lost time, and the overwritten part of the
// recording. Times come from sliver's statistics. "more" is the increase of the late
// ticks with 100 clients: the mean over the pairs with its standard error, and the median
// pair. On a virtual machine a single disturbance can cause more late ticks than
// everything else.
//
// The clients run at the lowest priority, as they would be on other machines. A recording
// takes 6 s, with -short 1 s.
func BenchmarkClients(b *testing.B) {
	testprog.Need(b, "ptrace")
	bin, err := build()
	if err != nil {
		b.Fatal(err)
	}
	type sums struct {
		late, samples, overwritten uint64
		cpus, p50, p99             float64
	}
	kinds := []struct {
		name        string
		read, stuck int
		sums
	}{{name: "nobody"}, {name: "100", read: 90, stuck: 10}}
	var more []float64
	for round := range b.N + 1 {
		var share [2]float64
		for k := range kinds {
			k = (k + round) % len(kinds) // alternate which comes first
			n := &kinds[k]
			s := recordWatched(b, bin, n.read, n.stuck)
			share[k] = 100 * float64(s.Late) / float64(s.Late+s.Samples)
			if round == 0 {
				continue
			}
			n.late, n.samples, n.overwritten = n.late+s.Late, n.samples+s.Samples, n.overwritten+s.Overwritten
			n.cpus += float64(s.SelfCPUNS) / float64(s.DurationNS)
			n.p50, n.p99 = n.p50+float64(s.Pause.P50)/1e3, n.p99+float64(s.Pause.P99)/1e3
		}
		if round > 0 {
			more = append(more, share[1]-share[0])
			b.Logf("late: %.4f %% with nobody, %.4f %% with 100 clients", share[0], share[1])
		}
	}
	for _, n := range kinds {
		b.ReportMetric(100*float64(n.late)/float64(n.late+n.samples), n.name+"-late-%")
		b.ReportMetric(float64(n.samples), n.name+"-samples")
		b.ReportMetric(float64(n.overwritten), n.name+"-overwritten")
		b.ReportMetric(n.cpus/float64(b.N), n.name+"-CPUs")
		b.ReportMetric(n.p50/float64(b.N), n.name+"-pause-p50-µs")
		b.ReportMetric(n.p99/float64(b.N), n.name+"-pause-p99-µs")
	}
	mean, square := 0.0, 0.0
	for _, d := range more {
		mean += d / float64(len(more))
	}
	for _, d := range more {
		square += (d - mean) * (d - mean)
	}
	b.ReportMetric(mean, "more-late-%")
	slices.Sort(more)
	b.ReportMetric((more[(len(more)-1)/2]+more[len(more)/2])/2, "more-late-median-%")
	if n := float64(len(more)); n > 1 {
		b.ReportMetric(math.Sqrt(square/(n-1)/n), "±-%")
	}
}

// recordWatched records a program for some seconds with the given clients.
func recordWatched(b *testing.B, bin string, read, stuck int) summaryJSON {
	p := testprog.Start(b, testprog.Build(b, "locks/kitchen", "O2"), "--seconds", "600", "--cooks", "8", "--wait-go")
	defer p.Kill()
	p.Ready()
	p.Go()
	lasts := "6s"
	if testing.Short() {
		lasts = "1s"
	}
	cmd := exec.Command(bin, "record", "-p", pidOfProc(p), "-i", "10ms", "-d", lasts, "--json", "--web", "-o", filepath.Join(b.TempDir(), "b.sliver"))
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
	var word, url string
	if _, err := fmt.Fscan(errs, &word, &url); err != nil {
		b.Fatal(err)
	}
	end := func() {}
	if read+stuck > 0 {
		end = startClients(b, url, read, stuck)
	}
	go func() { _, _ = io.Copy(io.Discard, errs) }() // ends with the process
	var s summaryJSON
	if err := json.NewDecoder(newTail(b, cmd, &out, end)).Decode(&s); err != nil {
		b.Fatal(err)
	}
	return s
}

// newTail waits for the summary, which comes when the recording ends, and then for the
// end of the page, which comes when the clients disconnect.
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

// startClients starts clients that read, and some that never do, in a separate process.
// wait returns when the recording is over.
func startClients(b *testing.B, url string, read, stuck int) (wait func()) {
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run", "^TestClientsOfBenchmark$")
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

// TestClientsOfBenchmark runs as the child process of BenchmarkClients. It ends when the
// recording does.
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
