package safefile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree creates a root with the kinds of files that a hostile target may put in it.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("etc/secret", "inside")
	write("lib/a", "a")
	link("/etc/secret", "absolute")
	link("lib", "folder")
	link("../../../../../../../../etc/secret", "up")
	link("/proc/self/fd/0", "magic")
	link("/proc/self/root/etc/secret", "magicroot")
	link("loop", "loop")
	link("/dev/zero", "device")
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func content(t *testing.T, f *File, err error) string {
	t.Helper()
	if err != nil {
		return "error: " + err.Error()
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil {
		return "error: " + err.Error()
	}
	if int64(len(b)) != f.Size() {
		t.Errorf("%s: size %d, read %d", f.Name(), f.Size(), len(b))
	}
	return string(b)
}

// Links lead only into the target's root, and only to regular files.
func TestOpenStaysInTheRoot(t *testing.T) {
	dir := tree(t)
	for _, c := range []struct{ path, want string }{
		{"/lib/a", "a"}, {"lib/a", "a"}, {"/folder/a", "a"}, {"/folder/../lib/a", "a"},
		{"/absolute", "inside"}, {"/up", "inside"}, {"/../../etc/secret", "inside"},
		{"/magic", "error"}, {"/magicroot", "error"}, {"/loop", "error"}, {"/pipe", "error"},
		{"/lib", "error"}, {"/device", "error"}, {"/none", "error"},
	} {
		f, err := Root(dir).Open(c.path)
		if got := content(t, f, err); got != c.want && !(c.want == "error" && strings.HasPrefix(got, "error")) {
			t.Errorf("Open(%q) = %q, want %q", c.path, got, c.want)
		}
	}
	if _, err := Root(dir).OpenNoFollow("/absolute"); err == nil {
		t.Error("OpenNoFollow follows a link")
	}
	if _, err := Root(dir).Open("/pipe"); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a pipe: %v", err)
	}
	if got, err := Root("").Real(filepath.Join(dir, "folder/a")); err != nil || got != filepath.Join(dir, "lib/a") {
		t.Errorf("Real = %q, %v", got, err)
	}
}

// Files of /proc and similar are regular by type, but have effects.
func TestOpenRefusesTheKernelsFiles(t *testing.T) {
	for _, p := range []string{"/proc/kmsg", "/proc/self/mem", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/null"} {
		if _, err := Root("").Open(p); !errors.Is(err, ErrKernelFile) && !errors.Is(err, ErrNotRegular) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%s) = %v", p, err)
		}
	}
	if _, err := Root("").Open("/proc/version"); !errors.Is(err, ErrKernelFile) {
		t.Errorf("Open(/proc/version) = %v, want %v", err, ErrKernelFile)
	}
}

// The lookup without openat2(2) agrees with the kernel's.
func TestWalkAgreesWithTheKernel(t *testing.T) {
	dir := tree(t)
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	if fd, err := unix.Openat2(root, "lib", &unix.OpenHow{Flags: unix.O_PATH}); err != nil {
		t.Skipf("needs openat2(2) to compare with: %v", err)
	} else {
		unix.Close(fd)
	}
	os.Symlink("../lib/a", filepath.Join(dir, "etc/rel"))
	os.Symlink("/", filepath.Join(dir, "slash"))
	os.Symlink("../"+filepath.Base(dir)+"/lib/a", filepath.Join(dir, "out"))
	ino := func(fd int, err error) string {
		if err != nil {
			return err.Error()
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err.Error()
		}
		return strconv.FormatUint(st.Ino, 10)
	}
	before := descriptors(t)
	for _, path := range []string{"lib/a", "/lib/a", "folder/a", "absolute", "up", "loop", "magic", "none", "lib/none", "lib/a/b", "etc/rel",
		"slash", "slash/lib/./a", "../..", "/..", "pipe", "device", "lib/../etc/../lib/a", "", ".", "out", strings.Repeat("lib/../", 300) + "lib/a"} {
		for _, inRoot := range []bool{true, false} {
			for _, noFollow := range []bool{false, true} {
				if !inRoot && (strings.HasPrefix(path, "/") || strings.HasPrefix(path, "..") || strings.HasPrefix(path, "magic")) || path == "" {
					continue // Under cleans its paths
				}
				a, b := ino(lookup(root, path, inRoot, noFollow)), ino(walk(root, path, inRoot, noFollow))
				if a != b {
					t.Errorf("%q in root %v, follow %v: the kernel finds %s, walk %s", path, inRoot, !noFollow, a, b)
				}
			}
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Reads through a helper return the file's contents, whatever the sizes of the reads, and
// also when the helper was replaced in between.
func TestReadsThroughTheHelper(t *testing.T) {
	dir := t.TempDir()
	want := make([]byte, 3*blockSize+1234)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	p := filepath.Join(dir, "f")
	if err := os.WriteFile(p, want, 0o600); err != nil {
		t.Fatal(err)
	}
	var sys unix.Statfs_t
	if err := unix.Statfs(dir, &sys); err != nil {
		t.Fatal(err)
	}
	f, err := Root("").Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	remote := remotely(t, f)
	for _, off := range []int64{0, 1, blockSize - 1, blockSize, 2*blockSize + 17, int64(len(want)) - 1, int64(len(want)), 1 << 40} {
		for _, n := range []int{0, 1, 100, blockSize + 1, 2 * blockSize} {
			a, b := make([]byte, n), make([]byte, n)
			na, ea := f.ReadAt(a, off)
			nb, eb := remote.ReadAt(b, off)
			if na != nb || ea != eb || string(a[:na]) != string(b[:nb]) {
				t.Fatalf("%d bytes at %d: %d %v, through the helper %d %v", n, off, na, ea, nb, eb)
			}
		}
	}
	remote.blocks = nil
	if err := remote.helper.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	if _, err := remote.ReadAt(b, 5); err != nil || string(b) != string(want[5:15]) {
		t.Errorf("after the helper was killed: %v", err)
	}
	if err := remote.Close(); err != nil {
		t.Error(err)
	}
	if _, err := remote.ReadAt(b, 5); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read of a closed file: %v", err)
	}
}

// remotely returns f read by a helper although its file system is local.
func remotely(t *testing.T, f *File) *File {
	t.Helper()
	q := f.q
	q.Remote = true
	a, fd, err := helpers.ask(f.place, q)
	if err != nil || fd >= 0 {
		t.Fatalf("fd %d, %v", fd, err)
	}
	return &File{place: f.place, q: q, info: a.Info, helper: a.helper, handle: a.Handle}
}

func TestNamed(t *testing.T) {
	dir := tree(t)
	for _, p := range []string{"pipe", "device", "lib"} {
		if _, err := Named(filepath.Join(dir, p)); !errors.Is(err, ErrNotRegular) {
			t.Errorf("Named(%s) = %v", p, err)
		}
	}
	f, err := Named(filepath.Join(dir, "folder/a"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestPrepare: a helper that was started before serves the first request, and another call starts no second one.
func TestPrepare(t *testing.T) {
	p := &pool{hangs: map[string]*hang{}}
	p.prepare()
	p.mu.Lock()
	first := slices.Clone(p.live)
	p.mu.Unlock()
	if len(first) != 1 {
		t.Fatalf("%d helpers", len(first))
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, h := range slices.Clone(p.live) {
			p.drop(h)
		}
	}()
	p.prepare()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, fd, err := p.ask(Root(""), Root("").request(request{Op: opOpen, Path: name}))
	if err != nil || fd < 0 {
		t.Fatalf("%d, %v", fd, err)
	}
	os.NewFile(uintptr(fd), name).Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.live, first) || first[0].used == 0 {
		t.Errorf("%d helpers, the first with %d requests", len(p.live), first[0].used)
	}
}

// TestReplies: data that a helper has sent stay as they are when it answers the next requests, which share a buffer.
func TestReplies(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	want := bytes.Repeat([]byte("0123456789abcdef"), 2*blockSize/16)
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &pool{hangs: map[string]*hang{}}
	q := Root("").request(request{Op: opOpen, Path: name, Remote: true})
	a, _, err := p.ask(Root(""), q)
	if err != nil || a.helper == nil {
		t.Fatal(err)
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(a.helper)
	}()
	var read [2]answer
	for i := range read {
		if read[i], err = p.askOf(a.helper, Root(""), name, request{Op: opRead, Handle: a.Handle, Off: int64(i) * blockSize, N: blockSize}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.askOf(a.helper, Root(""), name, request{Op: opOpen, Path: filepath.Join(t.TempDir(), "none")}); err == nil {
			t.Fatal("a file that does not exist is open")
		}
	}
	for i := range read {
		if !bytes.Equal(read[i].data, want[i*blockSize:(i+1)*blockSize]) {
			t.Errorf("block %d: other bytes than were sent", i)
		}
	}
}
