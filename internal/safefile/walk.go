package safefile

import (
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// File system types (linux/magic.h, and other headers for those that are not in it).
const (
	magicProc = 0x9fa0

	magicOverlay = 0x794c7630
)

// kernelFS are the file systems whose regular files are kernel interfaces: reading one
// may remove a line from a log, wait for an event, or trigger an action.
var kernelFS = map[int64]bool{
	magicProc:  true,
	0x62656572: true, // sysfs
	0x64626720: true, // debugfs
	0x74726163: true, // tracefs
	0x0027e0eb: true, // cgroup
	0x63677270: true, // cgroup2
	0x62656570: true, // configfs
	0x73636673: true, // securityfs
	0xf97cff8c: true, // selinuxfs
	0x43415d53: true, // smackfs
	0x5a3c69f0: true, // aafs (AppArmor)
	0xcafe4a11: true, // bpf
	0x6e736673: true, // nsfs
	0x50495045: true, // pipefs
	0x534f434b: true, // sockfs
	0x50494446: true, // pidfs
	0x6165676c: true, // pstore
	0xde5e81e4: true, // efivarfs
	0x65735543: true, // fusectl
	0x1cd1:     true, // devpts
	0x42494e4d: true, // binfmt_misc
	0x07655821: true, // resctrl
	0x19800202: true, // mqueue
	0x9fa2:     true, // usbdevfs
}

// localFS are the file systems that this machine's kernel serves from its own disks and
// memory. All others (NFS, CIFS, 9p, Ceph, FUSE) may wait for a server, so the helper
// reads them. An overlay depends on its layers.
var localFS = map[int64]bool{
	0xef53:     true, // ext2, ext3, ext4
	0x58465342: true, // XFS
	0x9123683e: true, // btrfs
	0xca451a4e: true, // bcachefs
	0x01021994: true, // tmpfs
	0x858458f6: true, // ramfs
	0x958458f6: true, // hugetlbfs
	0x73717368: true, // squashfs
	0xe0f5e1e2: true, // EROFS
	0x28cd3d45: true, // cramfs
	0xf2f52010: true, // F2FS
	0x2fc12fc1: true, // ZFS
	0x9660:     true, // ISO 9660
	0x15013346: true, // UDF
	0x4d44:     true, // FAT
	0x2011bab0: true, // exFAT
	0x7366746e: true, // ntfs3
	0x3153464a: true, // JFS
	0x52654973: true, // ReiserFS
	0x3434:     true, // NILFS
}

// retries limits how often a lookup is repeated after a rename or a signal.
const retries = 64

// lookup finds path below the directory root without opening it: it returns an O_PATH
// descriptor. With inRoot, root is the root of links too.
func lookup(root int, path string, inRoot, noFollow bool) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if inRoot {
		how.Resolve |= unix.RESOLVE_IN_ROOT
	}
	if noFollow {
		how.Flags |= unix.O_NOFOLLOW
	}
	for range retries {
		fd, err := unix.Openat2(root, path, &how)
		switch err {
		case unix.EINTR, unix.EAGAIN:
			continue
		case unix.ENOSYS, unix.EPERM: // before Linux 5.6, or filtered
			return walk(root, path, inRoot, noFollow)
		}
		return fd, err
	}
	return -1, unix.EAGAIN
}

// Limits on a path that walk follows; the kernel's are 40 links and 4096 bytes.
const (
	maxLinks = 40
	maxParts = 4096
)

// walk is lookup for kernels without openat2(2): it opens one element of the path after
// another and follows links itself.
func walk(root int, path string, inRoot, noFollow bool) (int, error) {
	w := walker{root: root}
	defer func() {
		w.close()
		w.rebase(-1)
	}()
	return w.follow(path, inRoot, noFollow)
}

type walker struct {
	root  int
	own   bool  // the walker must close root
	above []int // open directories from root down to the current one
}

// rebase continues from another directory, which the walker closes.
func (w *walker) rebase(root int) {
	if w.own {
		unix.Close(w.root)
	}
	w.root, w.own = root, root >= 0
}

func (w *walker) close() {
	for _, fd := range w.above {
		unix.Close(fd)
	}
	w.above = w.above[:0]
}

func (w *walker) here() int {
	if n := len(w.above); n > 0 {
		return w.above[n-1]
	}
	return w.root
}

func (w *walker) follow(path string, inRoot, noFollow bool) (int, error) {
	parts := split(path)
	links := 0
	for done := 0; len(parts) > 0; done++ {
		if done > maxParts {
			return -1, unix.ENAMETOOLONG
		}
		p := parts[0]
		parts = parts[1:]
		if p == ".." {
			if n := len(w.above); n > 0 {
				unix.Close(w.above[n-1])
				w.above = w.above[:n-1]
			} else if !inRoot { // a link out of the folder named by the user
				up, err := unix.Openat(w.root, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if err != nil {
					return -1, err
				}
				w.rebase(up)
			}
			continue
		}
		fd, err := unix.Openat(w.here(), p, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return -1, err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK || noFollow && len(parts) == 0 {
			if len(parts) == 0 {
				return fd, nil
			}
			w.above = append(w.above, fd)
			continue
		}
		to, err := readLink(fd)
		unix.Close(fd)
		if links++; err == nil && links > maxLinks {
			err = unix.ELOOP
		}
		if err != nil {
			return -1, err
		}
		if strings.HasPrefix(to, "/") {
			w.close()
			if !inRoot {
				slash, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if err != nil {
					return -1, err
				}
				w.rebase(slash)
				inRoot = true
			}
		}
		parts = append(split(to), parts...)
	}
	return unix.Openat(w.here(), ".", unix.O_PATH|unix.O_CLOEXEC, 0)
}

// readLink reads the link that is open as fd. It rejects links of /proc, which lead
// anywhere.
func readLink(fd int) (string, error) {
	var sys unix.Statfs_t
	if err := unix.Fstatfs(fd, &sys); err != nil {
		return "", err
	}
	if int64(sys.Type) == magicProc {
		return "", unix.ELOOP
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

func split(path string) (parts []string) {
	for p := range strings.SplitSeq(path, "/") {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	return parts
}

// describe stats fd, which may be an O_PATH descriptor, and rejects everything except
// regular files of a disk.
func describe(fd int) (Info, error) {
	var st unix.Stat_t
	var sys unix.Statfs_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Info{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Info{}, ErrNotRegular
	}
	if err := unix.Fstatfs(fd, &sys); err != nil {
		return Info{}, err
	}
	in := Info{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), int(st.Uid), int64(sys.Type)}
	if kernelFS[in.FS] {
		return in, ErrKernelFile
	}
	return in, nil
}

// reopen opens the result of lookup for reading.
func reopen(fd int) (int, error) {
	for range retries {
		got, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|flags, 0)
		if err != unix.EINTR {
			return got, err
		}
	}
	return -1, unix.EINTR
}

// Stat follows path, which is below /proc, and returns the file's attributes cached by
// the kernel without a request to its file system: for a descriptor of another process it
// does not wait for a dead server. It is for types and identities.
func Stat(path string) (mode fs.FileMode, dev, inode uint64, err error) {
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_MODE|unix.STATX_INO, &st)
	if err == unix.ENOSYS { // before Linux 4.11
		return oldStat(path)
	}
	if err != nil {
		return 0, 0, 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileMode(uint32(st.Mode)), unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, nil
}

func oldStat(path string) (mode fs.FileMode, dev, inode uint64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, 0, 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileMode(st.Mode), uint64(st.Dev), st.Ino, nil
}

func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFREG:
	default: // an anonymous inode has no type
		mode |= fs.ModeIrregular
	}
	return mode
}

// nextData is File.NextData on a descriptor.
func nextData(fd int, off int64) int64 {
	at, err := unix.Seek(fd, off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO: // no data from there on
		if end, err := unix.Seek(fd, 0, unix.SEEK_END); err == nil {
			return max(off, end)
		}
		return off
	case err != nil:
		return off
	}
	return max(off, at)
}
