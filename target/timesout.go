package target

import (
	"io/fs"
	"strconv"

	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/stack"
)

// socketFor is the number of queries after which a descriptor is looked up again.
const socketFor = 64

// lastFile caches the kind of the descriptor that a thread read from last.
type lastFile struct {
	fd     uint64
	socket bool
	left   int // queries until it expires
}

// TimesOut reports whether a stop may restart a timeout of the call c that the thread is blocked
// in. For read(2), StopRisk is not precise enough: only a socket has a timeout (SO_RCVTIMEO).
func (t *Thread) TimesOut(c *stack.Call) bool {
	switch StopRisk(c, 0) {
	case RiskLate:
		return true
	case RiskMaybe:
		return nativeKind(c.Nr) != kindRead || t.reads(c.Args[0])
	}
	return false
}

// reads reports whether a descriptor of the thread's process is a socket, or unknown.
func (t *Thread) reads(fd uint64) (socket bool) {
	f := &t.file
	if f.left > 0 && f.fd == fd {
		f.left--
		return f.socket
	}
	// The file may be on a file system that hangs.
	mode, _, _, err := safefile.Stat("/proc/" + strconv.Itoa(t.pid) + "/fd/" + strconv.FormatUint(fd, 10))
	*f = lastFile{fd: fd, socket: err != nil || mode&fs.ModeSocket != 0, left: socketFor}
	return f.socket
}
