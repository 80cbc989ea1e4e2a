package ringfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A file stays in use until its program, and the processes that it left, have closed it.
func TestClaimWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rings")
	m, err := Create(path, MinSize)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(path, time.Now().Add(20*time.Millisecond)); !errors.Is(err, ErrInUse) {
		t.Errorf("a running program's file: %v", err)
	}
	claimed := make(chan error)
	go func() {
		f, err := Claim(path, time.Now().Add(time.Minute))
		if err == nil {
			f.Close()
		}
		claimed <- err
	}()
	if err := m.Close(false); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Errorf("a closed file: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(path, time.Now()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// If a name's file was replaced during the wait for the lock, the claim is of the new one.
func TestClaimFollowsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rings")
	if _, err := Create(path, MinSize); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(path) // another opening of the same file: the lock belongs to the Memory's
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if named(old, path) {
		t.Error("a removed file has its name")
	}
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if named(old, path) {
		t.Error("a file has the name of another")
	}
	f, err := Claim(path, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := os.ReadFile(f.Name()); err != nil || string(b) != "new" || !named(f, path) {
		t.Errorf("%q, %v", b, err)
	}
}

// Of many programs that claim and remove leftover files, only one gets each file; a program that
// creates a new file at the same time keeps it.
func TestClaimOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rings")
	const rounds, many = 20, 8
	for range rounds {
		if err := os.WriteFile(path, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var had, made atomic.Int32
		gone := make(chan struct{})
		var once sync.Once
		var kept atomic.Pointer[Memory]
		for i := range many {
			wg.Go(func() {
				if i%4 == 3 { // like a recorder that begins
					if i == many-1 {
						<-gone // it may create one
					}
					m, err := Create(path, MinSize)
					if err == nil {
						made.Add(1)
						kept.Store(m)
					} else if !errors.Is(err, fs.ErrExist) {
						t.Error(err)
					}
					return
				}
				f, err := Claim(path, time.Now().Add(20*time.Millisecond))
				for err == nil { // a file that Create has just made is unlocked for a moment
					fi, e := f.Stat()
					if e != nil {
						t.Error(e)
					} else if fi.Size() == int64(len("left")) {
						had.Add(1)
					}
					if err := os.Remove(path); err != nil {
						t.Error(err)
					}
					once.Do(func() { close(gone) })
					f.Close()
					f, err = Claim(path, time.Now())
				}
				if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if had.Load() != 1 || made.Load() > 1 {
			t.Fatalf("%d had what was left, %d made a file", had.Load(), made.Load())
		}
		if m := kept.Load(); m != nil {
			if !named(m.file, path) {
				t.Fatal("a running program's file was taken away")
			}
			if err := m.Close(true); err != nil {
				t.Fatal(err)
			}
		}
	}
}
