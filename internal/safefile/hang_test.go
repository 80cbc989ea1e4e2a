package safefile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/hungfs"
)

// Timeouts: of requests that are answered, however busy the machine is, and of those that are not.
const answered, hung = time.Minute, 300 * time.Millisecond

// waits sets the pool's timeout, and restores its state after the test.
func waits(t *testing.T, d time.Duration) {
	t.Helper()
	helpers.mu.Lock()
	defer helpers.mu.Unlock()
	helpers.wait = d
	t.Cleanup(func() {
		helpers.mu.Lock()
		defer helpers.mu.Unlock()
		helpers.wait, helpers.rushed, helpers.missed, helpers.without = 0, false, false, false
		clear(helpers.hangs)
	})
}

// TestStarved: a helper that has no CPU until the deadline, or has replied when this program reads the reply after it, is not
// taken for one whose file system hangs.
func TestStarved(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &pool{hangs: map[string]*hang{}, wait: time.Microsecond}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, h := range slices.Clone(p.live) {
			p.drop(h)
		}
	}()
	for i := range 50 { // the first one waits for the helper's start
		_, fd, err := p.ask(Root(""), Root("").request(request{Op: opOpen, Path: name}))
		if err != nil || fd < 0 {
			t.Fatalf("request %d: %d, %v", i, fd, err)
		}
		os.NewFile(uintptr(fd), name).Close()
	}
	if len(p.live) != 1 {
		t.Errorf("%d helpers", len(p.live))
	}
}

// A file system that hangs at any point costs its owner an error, and does not affect
// others: their files can still be opened and read.
func TestHungFileSystem(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 3*blockSize/16)
	other := filepath.Join(t.TempDir(), "fine")
	if err := os.WriteFile(other, []byte("fine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"lookup", "getattr", "open", "read"} {
		t.Run(op, func(t *testing.T) {
			fs := hungfs.Mount(t, map[string][]byte{"a": big, "b": big, "c": big})
			waits(t, answered)
			mine := Root("").For("hung " + op)
			f, err := mine.Open(filepath.Join(fs.Dir, "a"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.local != nil {
				t.Error("a file of FUSE is read without the helper")
			}
			b := make([]byte, 100)
			if _, err := f.ReadAt(b, blockSize); err != nil || !bytes.Equal(b, big[blockSize:][:100]) {
				t.Fatalf("before it hangs: %v", err)
			}
			fs.Hang(op)
			waits(t, hung)
			// Only a read from the page cache does not involve the file system.
			_, err = mine.Open(filepath.Join(fs.Dir, "b"))
			if op == "read" && err == nil {
				var g *File
				if g, err = mine.Open(filepath.Join(fs.Dir, "c")); err == nil {
					_, err = g.ReadAt(b, 0)
					g.Close()
				}
			}
			if !errors.Is(err, ErrHung) {
				t.Fatalf("the file system hangs in %s: %v", op, err)
			}
			if all := helpers.hungNow(); !slices.Contains(all, "hung "+op) {
				t.Errorf("not reported as hung: %v", all)
			}
			// A file system known to hang receives no further requests.
			before := helpers.stuckNow()
			for range 100 {
				if _, err := mine.Open(filepath.Join(fs.Dir, "a")); !errors.Is(err, ErrHung) {
					t.Fatalf("asked again: %v", err)
				}
			}
			if now := helpers.stuckNow(); now > before {
				t.Errorf("%d helpers were stuck, now %d", before, now)
			}
			waits(t, answered)
			g, err := Root("").For("fine").Open(other)
			if got := content(t, g, err); got != "fine" {
				t.Errorf("another owner's file: %q", got)
			}
			fs.Held()
			fs.Resume()
			helpers.settled(t)
			helpers.mu.Lock()
			clear(helpers.hangs)
			helpers.mu.Unlock()
			// The helper that had it open is gone, so it is opened again.
			f.blocks = nil
			if _, err := f.ReadAt(b, 2*blockSize); err != nil || !bytes.Equal(b, big[2*blockSize:][:100]) {
				t.Errorf("after it went on: %v", err)
			}
		})
	}
}

// hungNow returns the owners of file systems that do not respond.
func (p *pool) hungNow() (owners []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, h := range p.hangs {
		if time.Now().Before(h.until) {
			owners = append(owners, k)
		}
	}
	return owners
}

func (p *pool) stuckNow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck
}

// settled waits until no helper is stuck.
func (p *pool) settled(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); p.stuckNow() > 0; {
		if time.Now().After(end) {
			t.Fatalf("%d helpers have not ended", p.stuckNow())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// After Hurry the deadlines are short.
func TestHurry(t *testing.T) {
	fs := hungfs.Mount(t, map[string][]byte{"a": []byte("a")})
	waits(t, time.Hour)
	fs.Hang("all")
	failed := make(chan error)
	go func() {
		_, err := Root("").For("slow").Open(filepath.Join(fs.Dir, "a"))
		failed <- err
	}()
	fs.Held()
	Hurry()
	if err := <-failed; !errors.Is(err, ErrHung) {
		t.Errorf("%v", err)
	}
}

// Without helpers, as at a limit of processes, a file system that hangs costs an error too.
func TestHungWithoutHelper(t *testing.T) {
	fs := hungfs.Mount(t, map[string][]byte{"a": []byte("a")})
	waits(t, answered)
	helpers.mu.Lock()
	helpers.without = true
	helpers.mu.Unlock()
	other := filepath.Join(t.TempDir(), "fine")
	if err := os.WriteFile(other, []byte("fine"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Root("").For("fine").Open(other)
	if got := content(t, f, err); got != "fine" {
		t.Fatalf("a local file: %q", got)
	}
	if _, err := Root("").For("remote").Open(filepath.Join(fs.Dir, "a")); !errors.Is(err, errNoHelper) {
		t.Errorf("a file of FUSE: %v", err)
	}
	fs.Hang("all")
	waits(t, hung)
	for _, owner := range []string{"one", "two"} {
		if _, err := Root("").For(owner).Open(filepath.Join(fs.Dir, "b")); !errors.Is(err, ErrHung) {
			t.Errorf("%s: %v", owner, err)
		}
	}
	if n := helpers.stuckNow(); n != 2 {
		t.Errorf("%d requests are stuck, of 2", n)
	}
	fs.Resume()
	helpers.settled(t)
}

// However many file systems hang, the number of helpers is bounded.
func TestManyHang(t *testing.T) {
	fs := hungfs.Mount(t, map[string][]byte{"a": []byte("a")})
	waits(t, 20*time.Millisecond)
	fs.Hang("all")
	for i := range maxStuck + 10 {
		if _, err := Root("").For(strings.Repeat("x", i+1)).Open(filepath.Join(fs.Dir, "a")); !errors.Is(err, ErrHung) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if n := helpers.stuckNow(); n > maxStuck {
		t.Errorf("%d helpers are stuck", n)
	}
	fs.Resume()
	helpers.settled(t)
}
