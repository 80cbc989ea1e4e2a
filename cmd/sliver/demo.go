package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/target"
)

// demoWorkload is the hidden command that demo records.
const demoWorkload = "__demo-workload"

// maxDemo limits the run time of the workload.
const maxDemo = 10 * time.Minute

func demoCommand() *command {
	f := &recordFlags{}
	return &command{
		name: "demo", samples: true, args: "[FLAGS]", short: "record a built-in server: a first timeline within seconds",
		flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			_ = fs.MarkHidden("pid")
			_ = fs.Lookup("duration").Value.Set("3s")
			_ = fs.Lookup("interval").Value.Set("5ms")
			fs.Lookup("duration").DefValue, fs.Lookup("interval").DefValue = "3s", "5ms"
		},
		help: `
The workload is a small server with clients, run by this very program: a main
thread that dispatches, workers that hash, compress, sort and query, a lock that
they fight for, and a thread that writes to disk.

Examples:
  sliver demo
  sliver demo --web --open         watch it live, in the browser
  sliver demo -t main,'worker-*' -i 1ms -o demo.pftrace`,
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) > 0 {
				return usagef("demo", "demo takes no arguments; to record a command: sliver record -- %s", args[0])
			}
			if f.web.addr != "" && !f.fs.Changed("duration") {
				f.duration = maxDemo // until Ctrl-C
			}
			if f.duration <= 0 || f.duration > maxDemo {
				return usagef("demo", "duration: %v is out of range; use up to 10m", f.duration)
			}
			if len(f.outputs) == 0 {
				f.outputs = []string{"sliver-demo.sliver", "sliver-demo.pftrace", "sliver-demo.pb.gz"}
			}
			o, err := f.options()
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			c, err := target.Start([]string{self, demoWorkload, strconv.FormatInt(int64(f.duration+2*time.Second), 10)})
			if err != nil {
				return err
			}
			err = f.record(e, o, c.Process, c)
			c.Release()
			c.Kill()
			if _, werr := c.Wait(); err == nil && werr != nil {
				return werr
			}
			return err
		},
	}
}

// The workload's functions are not inlined (noinline), so that they are visible on the
// timeline.

type order struct {
	ID    int      `json:"id"`
	Items []string `json:"items"`
	Note  string   `json:"note"`
}

type shop struct {
	mu    sync.Mutex
	stock map[string]int
	log   chan []byte
}

func runWorkload(args []string) error {
	if len(args) != 1 {
		return errors.New("the demo's workload is not for use by itself")
	}
	ns, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil || ns <= 0 || ns > int64(time.Hour) {
		return errors.New("the demo's workload wants a duration in ns")
	}
	// It ends with sliver also if a second signal, or a kill, ends that. The thread that started it
	// lasts as long as sliver (background.Do).
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	runtime.LockOSThread()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ns))
	defer cancel()
	s := &shop{stock: map[string]int{}, log: make(chan []byte, 64)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	var wg sync.WaitGroup
	spawn := func(name string, f func(context.Context)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread() // a separate thread with its own name
			target.SetThreadName(name)
			f(ctx)
		}()
	}
	jobs := make(chan int)
	for i := range 3 {
		spawn(fmt.Sprintf("worker-%d", i), func(ctx context.Context) { s.work(ctx, jobs) })
	}
	spawn("journal", s.journal)
	spawn("echo-server", func(ctx context.Context) { s.serve(ctx, ln) })
	spawn("client", func(ctx context.Context) { s.ask(ctx, ln.Addr().String()) })
	s.dispatch(ctx, jobs)
	ln.Close()
	wg.Wait()
	return nil
}

//go:noinline
func (s *shop) dispatch(ctx context.Context, jobs chan<- int) {
	defer close(jobs)
	for i := 0; ctx.Err() == nil; i++ {
		plan(i)
		select {
		case jobs <- i:
		case <-ctx.Done():
		}
		if i%8 == 7 {
			takeStock(s)
		}
	}
}

//go:noinline
func plan(seed int) []int {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	xs := make([]int, 120_000)
	for i := range xs {
		xs[i] = r.IntN(1 << 30)
	}
	sort.Ints(xs)
	return xs
}

//go:noinline
func takeStock(s *shop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.stock {
		s.stock[k] += len(k)
	}
	time.Sleep(25 * time.Millisecond) // workers wait while the lock is held
}

//go:noinline
func (s *shop) work(ctx context.Context, jobs <-chan int) {
	for {
		select {
		case i, ok := <-jobs:
			if !ok {
				return
			}
			s.handleOrder(i)
		case <-ctx.Done():
			return
		}
	}
}

//go:noinline
func (s *shop) handleOrder(i int) {
	o := parseOrder(makeOrder(i))
	s.reserve(o)
	receipt := compressReceipt(o)
	signReceipt(receipt)
	select {
	case s.log <- receipt:
	default:
	}
}

//go:noinline
func makeOrder(i int) []byte {
	o := order{ID: i, Note: string(bytes.Repeat([]byte("please "), 2000))}
	for k := range 3000 {
		o.Items = append(o.Items, "item-"+strconv.Itoa((i*31+k)%997))
	}
	b, _ := json.Marshal(o) // strings and numbers: cannot fail
	return b
}

//go:noinline
func parseOrder(b []byte) *order {
	var o order
	if json.Unmarshal(b, &o) != nil {
		return &order{}
	}
	return &o
}

//go:noinline
func (s *shop) reserve(o *order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range o.Items {
		s.stock[it]--
	}
}

//go:noinline
func compressReceipt(o *order) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 4 {
		_ = json.NewEncoder(z).Encode(o) // into memory
	}
	_ = z.Close()
	return b.Bytes()
}

//go:noinline
func signReceipt(b []byte) [32]byte {
	sum := sha256.Sum256(b)
	for range 3000 {
		sum = sha256.Sum256(append(sum[:], b[:min(len(b), 512)]...))
	}
	return sum
}

//go:noinline
func (s *shop) journal(ctx context.Context) {
	f, err := os.CreateTemp("", "sliver-demo-*")
	if err != nil {
		return
	}
	defer f.Close()
	_ = os.Remove(f.Name()) // the program ends by a signal, and must leave no file
	for {
		select {
		case b := <-s.log:
			writeJournal(f, b)
		case <-ctx.Done():
			return
		}
	}
}

//go:noinline
func writeJournal(f *os.File, b []byte) {
	if _, err := f.Write(b); err == nil {
		_ = f.Sync() // a slow disk shows as time in fsync
	}
}

//go:noinline
func (s *shop) serve(ctx context.Context, ln net.Listener) {
	for ctx.Err() == nil {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		answer(c)
	}
}

//go:noinline
func answer(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	b := make([]byte, 64)
	n, err := io.ReadFull(c, b)
	if err != nil {
		return
	}
	sum := signReceipt(b[:n])
	_, _ = c.Write(sum[:])
}

//go:noinline
func (s *shop) ask(ctx context.Context, addr string) {
	for ctx.Err() == nil {
		lookUp(addr)
		time.Sleep(40 * time.Millisecond)
	}
}

//go:noinline
func lookUp(addr string) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write(make([]byte, 64)); err == nil {
		_, _ = io.ReadAll(c)
	}
}
