package vmtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// image is an initial RAM file system: a cpio archive of the form "newc"
// (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel).
type image struct {
	b     bytes.Buffer
	inode uint32
	made  map[string]bool
}

// File types of a cpio archive, as in stat(2).
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

// add appends a file and its folders; data is a link's target.
func (m *image) add(name string, mode uint32, data []byte) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" || m.made[name] {
		return
	}
	if dir := path.Dir(name); dir != "." {
		m.add(dir, modeDir|0o755, nil)
	}
	m.entry(name, mode, data)
	if m.made == nil {
		m.made = map[string]bool{}
	}
	m.made[name] = true
}

func (m *image) entry(name string, mode uint32, data []byte) {
	m.inode++
	fmt.Fprintf(&m.b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		m.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	m.pad()
	m.b.Write(data)
	m.pad()
}

func (m *image) pad() {
	for m.b.Len()%4 != 0 {
		m.b.WriteByte(0)
	}
}

// bytes ends the archive.
func (m *image) bytes() []byte {
	m.entry("TRAILER!!!", 0, nil)
	return m.b.Bytes()
}

// unpack calls each for the files and links in a package of Debian's.
func unpack(t *testing.T, deb string, each func(name string, mode uint32, data []byte)) {
	t.Helper()
	cmd := exec.Command("dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", deb, err)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatalf("%s: %s: %v", deb, h.Name, err)
			}
			each(h.Name, modeFile|uint32(h.FileInfo().Mode()&fs.ModePerm), data)
		case tar.TypeSymlink:
			each(h.Name, modeLink|0o777, []byte(h.Linkname))
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", deb, err)
	}
}

// TestImage lists a small image with a reader of another project.
func TestImage(t *testing.T) {
	var m image
	m.add("/bin/sh", modeLink|0o777, []byte("busybox"))
	m.add("bin/busybox", modeFile|0o755, []byte("12345"))
	m.add("./init", modeFile|0o755, nil)
	cmd := exec.Command("cpio", "--list", "--quiet")
	if _, err := exec.LookPath("cpio"); err != nil {
		cmd = exec.Command("busybox", "cpio", "-t")
	}
	cmd.Stdin = bytes.NewReader(m.bytes())
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("neither cpio nor busybox is installed")
	}
	if err != nil || string(out) != "bin\nbin/sh\nbin/busybox\ninit\n" {
		t.Errorf("%q, %v", out, err)
	}
}
