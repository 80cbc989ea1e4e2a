// Package otelreceiver runs the OpenTelemetry Collector's own OTLP receiver for tests:
// the program in testdata/receiver, a separate module so that sliver does not depend on
// the Collector. Only tests import this package.
package otelreceiver

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// Batch is what the receiver passed on, with names instead of indexes.
type Batch struct {
	Resource map[string]any
	Profiles []Profile
}

// Profile is one profile of a batch.
type Profile struct {
	Type, Unit string
	Time       uint64 // ns since 1970
	Duration   uint64 // ns
	Samples    []Sample
}

// Sample is a sample with its stack, leaf first. Inlined calls are separate frames, each
// as "function file:line module".
type Sample struct {
	Stack []string
	Attrs map[string]any
	Value int64
}

// Receiver is a running receiver.
type Receiver struct {
	URL     string // of its host
	batches chan Batch
}

// Start builds the receiver if it is not in the cache, and runs it until the
// test ends.
func Start(t testing.TB) *Receiver {
	t.Helper()
	bin := build(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	cmd := exec.Command(bin, addr)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
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
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r := &Receiver{URL: "http://" + addr, batches: make(chan Batch, 1024)}
	b := bufio.NewReader(out)
	if line, err := b.ReadString('\n'); err != nil || strings.TrimSpace(line) != `"ready"` {
		t.Fatalf("the receiver says %q, %v", line, err)
	}
	go func() {
		defer close(r.batches)
		d := json.NewDecoder(b)
		for {
			var x Batch
			if err := d.Decode(&x); err != nil {
				if err != io.EOF && !strings.Contains(err.Error(), "closed") {
					t.Logf("receiver: %v", err)
				}
				return
			}
			r.batches <- x
		}
	}()
	return r
}

// Next returns the next batch received.
func (r *Receiver) Next(t testing.TB) Batch {
	t.Helper()
	select {
	case b, ok := <-r.batches:
		if !ok {
			t.Fatal("the receiver is gone")
		}
		return b
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing was received")
	}
	return Batch{}
}

// build compiles the receiver once per version.
func build(t testing.TB) string {
	t.Helper()
	testprog.Need(t, "go")
	dir := filepath.Join(testprog.Root(t), "internal", "otelreceiver", "testdata", "receiver")
	h := sha256.New()
	for _, f := range []string{"main.go", "go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	bin := filepath.Join(testprog.CacheDir(t), "otelreceiver-"+hex.EncodeToString(h.Sum(nil)[:8]))
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	tmp, err := os.CreateTemp(filepath.Dir(bin), ".otelreceiver-")
	if err != nil {
		t.Fatal(err)
	}
	tmp.Close()
	defer os.Remove(tmp.Name())
	cmd := exec.Command("go", "build", "-o", tmp.Name(), ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		testprog.Missing(t, "otelcol", "the Collector's receiver cannot be built: "+err.Error()+"\n"+string(out))
	}
	if err := os.Rename(tmp.Name(), bin); err != nil {
		t.Fatal(err)
	}
	return bin
}
