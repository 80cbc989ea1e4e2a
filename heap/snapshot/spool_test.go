package snapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// slow takes nothing until it is let go.
type slow struct {
	io.Writer
	let chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	<-s.let
	return s.Writer.Write(b)
}

// The output equals the input, although chunks beyond spoolRaw are compressed in between.
func TestSpool(t *testing.T) {
	s, err := newSpool(spoolLimit)
	if err != nil {
		t.Fatal(err)
	}
	in, out := sha256.New(), sha256.New()
	let := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- s.drain(&slow{out, let}) }()
	rng := rand.New(rand.NewPCG(1, 2))
	for total := 0; total < 40<<20; {
		b := bytes.Repeat([]byte{byte(rng.Uint32()), 0, 0, byte(rng.Uint32())}, rng.IntN(100_000)) // halves of it compress
		for i := range len(b) / 2 {
			b[i] = byte(rng.Uint32())
		}
		in.Write(b)
		if n, err := s.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		total += len(b)
	}
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held < spoolRaw || held > 36<<20 {
		t.Errorf("%d bytes wait", held)
	}
	close(let)
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !bytes.Equal(in.Sum(nil), out.Sum(nil)) {
		t.Errorf("other bytes came out, %v", err)
	}
}

// Write waits while the spool is full, until its reader takes a chunk or the spool is left.
func TestSpoolFull(t *testing.T) {
	gone := errors.New("gone")
	for name, end := range map[string]func(*spool, chan struct{}){
		"left":  func(s *spool, _ chan struct{}) { s.leave(gone) },
		"taken": func(_ *spool, let chan struct{}) { close(let) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSpool(3 * spoolChunk)
			if err != nil {
				t.Fatal(err)
			}
			let := make(chan struct{})
			var got bytes.Buffer
			ended := make(chan error, 1)
			go func() { ended <- s.drain(&slow{&got, let}) }()
			noise := make([]byte, 20*spoolChunk)
			rand.NewChaCha8([32]byte{}).Read(noise)
			wrote := make(chan error, 1)
			go func() {
				_, err := s.Write(noise)
				wrote <- errors.Join(err, s.end())
			}()
			s.mu.Lock()
			for s.held < 2*spoolChunk {
				s.moved.Wait()
			}
			if s.held > s.limit {
				t.Errorf("%d bytes wait", s.held)
			}
			s.mu.Unlock()
			select {
			case err := <-wrote:
				t.Fatalf("all was taken: %v", err)
			default:
			}
			end(s, let)
			err = <-wrote
			if name == "left" {
				close(let)
				if !errors.Is(err, gone) || !errors.Is(<-ended, gone) {
					t.Errorf("%v", err)
				}
			} else if err != nil || <-ended != nil || !bytes.Equal(got.Bytes(), noise) {
				t.Errorf("%v, %d bytes", err, got.Len())
			}
		})
	}
}
