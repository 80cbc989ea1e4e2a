// Package hungfs is a FUSE file system for tests that can stop responding, like a file
// system whose server is gone. Callers then wait in the kernel, even through SIGKILL once
// the request was read. Resume, or the end of the test, releases them. Only tests import
// it.
package hungfs

import (
	"context"
	"hash/fnv"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sliverprof/sliver/internal/testprog"
)

// FS is a mounted file system of one folder.
type FS struct {
	Dir  string
	gate gate
}

// gate passes operations, or blocks them.
type gate struct {
	mu   sync.Mutex
	shut map[string]bool
	wait chan struct{}
	held int // blocked operations
	cond *sync.Cond
}

func (g *gate) pass(op string) {
	g.mu.Lock()
	if !g.shut[op] && !g.shut["all"] {
		g.mu.Unlock()
		return
	}
	wait := g.wait
	g.held++
	g.cond.Broadcast()
	g.mu.Unlock()
	<-wait
	g.mu.Lock()
	g.held--
	g.cond.Broadcast()
	g.mu.Unlock()
}

// Hang stops the replies to an operation: "lookup", "getattr", "open", "read" or "all".
func (f *FS) Hang(op string) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.shut[op] = true
}

// Resume replies to blocked and new operations.
func (f *FS) Resume() {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	clear(f.gate.shut)
	close(f.gate.wait)
	f.gate.wait = make(chan struct{})
}

// Held waits until an operation is blocked.
func (f *FS) Held() {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	for f.gate.held == 0 {
		f.gate.cond.Wait()
	}
}

type dir struct {
	fs.Inode
	g     *gate
	files map[string][]byte
}

var (
	_ fs.NodeLookuper  = (*dir)(nil)
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
)

// Lookup implements fs.NodeLookuper.
func (d *dir) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	d.g.pass("lookup")
	b, ok := d.files[name]
	if !ok {
		return nil, syscall.ENOENT
	}
	out.Mode, out.Size = fuse.S_IFREG|0o755, uint64(len(b))
	return d.NewInode(ctx, &file{g: d.g, data: b}, fs.StableAttr{Mode: fuse.S_IFREG, Ino: inode(name)}), 0
}

// inode returns a stable number for a name.
func inode(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()>>1 | 2 // 1 is the folder
}

type file struct {
	fs.Inode
	g    *gate
	data []byte
}

// Getattr implements fs.NodeGetattrer.
func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.g.pass("getattr")
	out.Mode, out.Size = fuse.S_IFREG|0o755, uint64(len(f.data))
	return 0
}

// Open implements fs.NodeOpener.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.g.pass("open")
	return nil, 0, 0
}

// Read implements fs.NodeReader.
func (f *file) Read(_ context.Context, _ fs.FileHandle, b []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.g.pass("read")
	if off >= int64(len(f.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(b[:copy(b, f.data[off:])]), 0
}

// Mount mounts a file system with some files, by name. Without the required rights it
// skips or fails the test as testprog.Need does.
func Mount(t testing.TB, files map[string][]byte) *FS {
	t.Helper()
	return MountAt(t, t.TempDir(), files)
}

// MountAt is Mount on an existing folder.
func MountAt(t testing.TB, at string, files map[string][]byte) *FS {
	t.Helper()
	testprog.Need(t, "fuse")
	f := &FS{Dir: at, gate: gate{shut: map[string]bool{}, wait: make(chan struct{})}}
	f.gate.cond = sync.NewCond(&f.gate.mu)
	s, err := fs.Mount(at, &dir{g: &f.gate, files: files}, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, FsName: "hungfs", Name: "hungfs", Options: []string{"default_permissions"}, AllowOther: true}})
	if err != nil {
		t.Fatalf("hungfs: mount: %v", err)
	}
	t.Cleanup(func() {
		f.Resume()
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil && !os.IsNotExist(err) {
			t.Errorf("hungfs: unmount: %v", err)
		}
		s.Wait()
	})
	return f
}
