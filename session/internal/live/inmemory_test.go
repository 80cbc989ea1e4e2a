package live

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/unwind/rule"
)

// content is a File in memory whose reads are counted.
type content struct {
	*bytes.Reader
	reads int
}

func (c *content) ReadAt(b []byte, off int64) (int, error) {
	c.reads++
	return c.Reader.ReadAt(b, off)
}

func (c *content) Close() error { return nil }

// torn is a File that cannot be read.
type torn struct{ *strings.Reader }

func (torn) ReadAt([]byte, int64) (int, error) { return 0, errors.New("gone") }
func (torn) Close() error                      { return nil }

// TestInMemory: images of the same content are parsed once, others have their own facts, and beyond a few of them each is parsed
// by itself.
func TestInMemory(t *testing.T) {
	testprog.Need(t, "gcc")
	exe, err := os.ReadFile(testprog.Build(t, "c/spin", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewShared()
	defer s.Close()
	first, second := &content{Reader: bytes.NewReader(exe)}, &content{Reader: bytes.NewReader(bytes.Clone(exe))}
	segs, id, err := s.HeadOf(first)
	if err != nil || len(segs) == 0 {
		t.Fatalf("%v, %v", segs, err)
	}
	again, same, err := s.HeadOf(second)
	if err != nil || &again[0] != &segs[0] || same != id || first.reads == 1 || second.reads != 1 {
		t.Errorf("%v, %q, %v; read %d and %d times", again, same, err, first.reads, second.reads)
	}
	if a, b := s.inMemory(exe), s.inMemory(bytes.Clone(exe)); a != b || a.imageFor(rule.AMD64) != b.imageFor(rule.AMD64) {
		t.Error("two images of one content")
	}
	if _, _, err := s.HeadOf(&content{Reader: bytes.NewReader([]byte("no ELF"))}); err == nil {
		t.Error("another content has the same head")
	}
	if _, _, err := s.HeadOf(torn{strings.NewReader("xxxx")}); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("memory that cannot be read: %v", err)
	}
	for i := range byte(10) {
		s.inMemory([]byte{i})
	}
	if len(s.memory) != maxInMemory || s.inMemory([]byte{99}) != nil {
		t.Errorf("%d images are kept", len(s.memory))
	}
	more := append(bytes.Clone(exe), 0)
	if segs, _, err := s.HeadOf(&content{Reader: bytes.NewReader(more)}); err != nil || len(segs) == 0 {
		t.Errorf("beyond the limit: %v, %v", segs, err)
	}
	var none *Shared
	if segs, _, err := none.HeadOf(first); err != nil || len(segs) == 0 {
		t.Errorf("without others: %v, %v", segs, err)
	}
}

// TestSharedVDSO: the vDSO of two processes is one image, with code and tables.
func TestSharedVDSO(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	path := testprog.Build(t, "c/spin", "O2")
	s := NewShared()
	defer s.Close()
	for range 2 {
		p, _ := programOf(t, path)
		x, err := s.New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		x.Preload()
		if errs := x.Space().Errors(); len(errs) > 0 {
			t.Errorf("%v", errs)
		}
		defer x.Release()
	}
	if len(s.memory) != 1 || s.memory[0].image.img == nil {
		t.Errorf("%d images without a file for two processes", len(s.memory))
	}
}
