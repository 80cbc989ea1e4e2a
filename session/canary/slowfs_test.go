package canary

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sliverprof/sliver/internal/testprog"
)

// slowFile is a file of a FUSE file system each of whose reads takes a while.
type slowFile struct {
	fs.Inode
	delay  time.Duration
	size   int
	first  bool // only the first read takes a while
	cached bool // the page cache keeps its data

	call string // if set, only the next call of this kind takes a while: getattr, open, readdir, unlink, rename or flush

	mu   sync.Mutex
	pace time.Duration // instead of delay: the time between the ends of two reads
	last time.Time     // end of the last read

	armed bool
}

// until waits for a time, the last millisecond on a CPU: a timer is late by that.
func until(t time.Time) {
	if d := time.Until(t) - time.Millisecond; d > 0 {
		<-time.After(d)
	}
	for time.Now().Before(t) {
		continue
	}
}

// wait delays a read.
func (f *slowFile) wait() {
	if f.call != "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	switch {
	case f.pace > 0 && now.Sub(f.last) < f.pace:
		f.last = f.last.Add(f.pace)
		until(f.last)
	case f.pace > 0:
		f.last = now
	case !f.first || f.last.IsZero():
		f.last = now
		until(now.Add(f.delay))
	}
}

// arm makes the next call of the kind slow.
func (f *slowFile) arm() {
	f.mu.Lock()
	f.armed = true
	f.mu.Unlock()
}

// once delays a call of a kind, if it is armed.
func (f *slowFile) once(call string) {
	now := time.Now()
	f.mu.Lock()
	armed := f.armed && f.call == call
	f.armed = f.armed && !armed
	f.mu.Unlock()
	if armed {
		until(now.Add(f.delay))
	}
}

// slowDir is the folder of the file.
type slowDir struct {
	fs.Inode
	file *slowFile
}

var (
	_ fs.NodeUnlinker  = (*slowDir)(nil)
	_ fs.NodeRenamer   = (*slowDir)(nil)
	_ fs.NodeReaddirer = (*slowDir)(nil)
	_ fs.NodeFlusher   = (*slowFile)(nil)
)

// Unlink implements fs.NodeUnlinker.
func (d *slowDir) Unlink(context.Context, string) syscall.Errno {
	d.file.once("unlink")
	return 0
}

// Rename implements fs.NodeRenamer.
func (d *slowDir) Rename(context.Context, string, fs.InodeEmbedder, string, uint32) syscall.Errno {
	d.file.once("rename")
	return 0
}

// Readdir implements fs.NodeReaddirer.
func (d *slowDir) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	d.file.once("readdir")
	return fs.NewListDirStream([]fuse.DirEntry{{Name: "file", Mode: fuse.S_IFREG}}), 0
}

// Flush implements fs.NodeFlusher: a close.
func (f *slowFile) Flush(context.Context, fs.FileHandle) syscall.Errno {
	f.once("flush")
	return 0
}

var (
	_ fs.NodeOpener    = (*slowFile)(nil)
	_ fs.NodeReader    = (*slowFile)(nil)
	_ fs.NodeGetattrer = (*slowFile)(nil)
)

// Getattr implements fs.NodeGetattrer.
func (f *slowFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.once("getattr")
	out.Mode, out.Size = fuse.S_IFREG|0o644, uint64(f.size)
	return 0
}

// Open implements fs.NodeOpener.
func (f *slowFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.once("open")
	if f.cached {
		return nil, fuse.FOPEN_KEEP_CACHE, 0
	}
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader.
func (f *slowFile) Read(_ context.Context, _ fs.FileHandle, b []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.wait()
	return fuse.ReadResultData(make([]byte, max(0, min(int64(len(b)), int64(f.size)-off)))), 0
}

// slow mounts a file whose reads take at least a time, and returns its path.
func slow(t *testing.T, delay time.Duration) string {
	t.Helper()
	return mount(t, &slowFile{delay: delay, size: 1 << 20})
}

// mount mounts a file and returns its path.
func mount(t *testing.T, file *slowFile) string {
	t.Helper()
	testprog.Need(t, "fuse")
	dir := t.TempDir()
	root := &slowDir{file: file}
	server, err := fs.Mount(dir, root, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "slow", AllowOther: true},
		OnAdd: func(ctx context.Context) {
			child := root.NewPersistentInode(ctx, file, fs.StableAttr{Mode: fuse.S_IFREG})
			root.AddChild("file", child, false)
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
		server.Wait()
	})
	path := filepath.Join(dir, "file")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}
