package safefile

import (
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/caps"
)

// HelperName is argv[0] and the name of a helper process.
const HelperName = "sliver-files"

// helperFD is the helper's socket.
const helperFD = 3

// maxHandles limits the files that a helper holds open.
const maxHandles = 4096

// Any program that links this package can be its own helper, including test programs: the
// program is started again under the helper's name, and does not reach main.
func init() {
	if len(os.Args) > 0 && os.Args[0] == HelperName {
		os.Exit(serve(helperFD))
	}
}

// server is the helper's side: it opens and reads files, and may hang.
type server struct {
	sock  int
	next  uint64
	files map[uint64]int
}

func serve(sock int) (status int) {
	if kind, err := unix.GetsockoptInt(sock, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		os.Stderr.WriteString(HelperName + ": this is a helper of sliver: it cannot be started by itself\n")
		return 2
	}
	// It exits when its socket closes, and not when a terminal or a service manager
	// signals the group while the last names are read.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTSTP)
	if err := caps.Limit(caps.TargetFiles); err != nil {
		os.Stderr.WriteString(HelperName + ": " + err.Error() + "\n")
		return 1
	}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(namePointer()), 0, 0, 0)
	unix.CloseOnExec(sock)
	debug.SetGCPercent(50)
	s := &server{sock: sock, files: map[uint64]int{}}
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	for {
		n, on, _, _, err := unix.Recvmsg(sock, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return 0
		}
		proc := received(oob[:on])
		var q request
		if _, err := unpack(buf[:n], &q); err != nil {
			return 1
		}
		err = s.handle(&q, proc)
		if proc >= 0 {
			unix.Close(proc)
		}
		if err != nil {
			return 1
		}
	}
}

// received returns the descriptor that came with a message; -1: none.
func received(oob []byte) int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil && len(fds) > 0 {
			for _, fd := range fds[1:] {
				unix.Close(fd)
			}
			return fds[0]
		}
	}
	return -1
}

// handle executes one request; it returns socket errors.
func (s *server) handle(q *request, proc int) error {
	var a answer
	var data []byte
	give := -1
	var err error
	switch q.Op {
	case opClose:
		if fd, ok := s.files[q.Handle]; ok {
			delete(s.files, q.Handle)
			unix.Close(fd)
		}
		return nil
	case opOpen:
		give, err = s.open(q, proc, &a)
	case opReal:
		a.Real, err = real(q, proc)
	case opStat:
		a.Info, _, err = find(q, proc, func(int) error { return nil })
	case opInfo:
		a.Info, err = describe(s.file(q.Handle))
	case opData:
		a.Off = nextData(s.file(q.Handle), q.Off)
	case opRead:
		data = make([]byte, min(max(q.N, 0), blockSize))
		n := 0
		for n < len(data) {
			var got int
			got, err = unix.Pread(s.file(q.Handle), data[n:], q.Off+int64(n))
			if err == unix.EINTR {
				continue
			}
			if err != nil || got == 0 {
				break
			}
			n += got
		}
		data = data[:n]
		if n > 0 {
			err = nil // a short read; the next one reports the error
		}
	default:
		err = unix.EPROTO
	}
	if err != nil {
		a.setError(err)
	}
	b, err := pack(&a, data)
	if err != nil {
		b, err = pack(&answer{Errno: int(unix.ENAMETOOLONG)}, nil)
	}
	if err != nil {
		return err
	}
	var oob []byte
	if give >= 0 {
		oob = unix.UnixRights(give)
		defer unix.Close(give)
	}
	for {
		err := unix.Sendmsg(s.sock, b, oob, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

func (s *server) file(h uint64) int {
	if fd, ok := s.files[h]; ok {
		return fd
	}
	return -1
}

// open opens a file. It returns a descriptor if the file system is local, otherwise -1
// and a handle in a.
func (s *server) open(q *request, proc int, a *answer) (int, error) {
	var fd int
	info, ours, err := find(q, proc, func(path int) (err error) {
		fd, err = reopen(path)
		return err
	})
	if err != nil {
		return -1, err
	}
	a.Info = info
	if !q.Remote && (localFS[info.FS] || info.FS == magicOverlay && ours()) {
		return fd, nil
	}
	if len(s.files) >= maxHandles {
		unix.Close(fd)
		return -1, unix.EMFILE
	}
	s.next++
	a.Handle = s.next
	s.files[s.next] = fd
	return -1, nil
}

// find looks up a request's file and passes it to use, as an O_PATH descriptor. ours
// reports, while proc is open, whether only processes in this process's user namespace
// can have mounted the file's file system.
func find(q *request, proc int, use func(path int) error) (in Info, ours func() bool, err error) {
	ours = func() bool { return true }
	dir := ""
	switch {
	case q.HasProc:
		if proc < 0 {
			return in, ours, unix.EBADF
		}
		dir = "/proc/self/fd/" + strconv.Itoa(proc)
	case strings.HasSuffix(q.Root, "/root"):
		dir = strings.TrimSuffix(q.Root, "/root")
	}
	var fd int
	switch {
	case q.Magic:
		fd, err = unix.Open(dir+"/"+q.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	case q.Base != "": // a folder named by the user: with the user's rights
		inner := use
		caps.AsUser(func() { fd, err = q.lookup(dir) })
		use = func(path int) (err error) {
			caps.AsUser(func() { err = inner(path) })
			return err
		}
	default:
		fd, err = q.lookup(dir)
	}
	if err != nil {
		return in, ours, err
	}
	defer unix.Close(fd)
	if in, err = describe(fd); err != nil {
		return in, ours, err
	}
	err = use(fd)
	if dir != "" {
		// A process that has left this user namespace cannot return, so one that is in it
		// now was in it when the file was looked up.
		ours = func() bool {
			a, err1 := os.Readlink("/proc/self/ns/user")
			b, err2 := os.Readlink(dir + "/ns/user")
			return err1 == nil && err2 == nil && a == b
		}
	}
	return in, ours, err
}

// lookup calls lookup in the place that q names; dir is the process's directory.
func (q *request) lookup(dir string) (int, error) {
	root, path, inRoot := "/", q.Path, true
	switch {
	case q.Base != "":
		root, path, inRoot = q.Base, strings.TrimLeft(q.Path, "/"), false
	case q.HasProc:
		root = dir + "/root"
	case q.Root != "":
		root = q.Root
	}
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return lookup(at, path, inRoot, q.NoFollow)
}

// real resolves the links of a path.
func real(q *request, proc int) (string, error) {
	var name string
	_, _, err := find(q, proc, func(path int) (err error) {
		name, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(path))
		return err
	})
	return name, err
}
