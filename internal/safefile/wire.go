package safefile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"syscall"
)

// Requests and replies are one message each on a socket that preserves message boundaries
// (SOCK_SEQPACKET): the length of the header in four bytes, the header as JSON, and the
// data of a reply. Descriptors are passed along (SCM_RIGHTS).

// An op is the kind of a request.
type op uint8

const (
	opOpen  op = iota // open a file; returns a descriptor or a handle
	opReal            // resolve a path
	opRead            // read from a handle
	opInfo            // stat a handle
	opStat            // stat a file by its path
	opData            // find the next data of a handle
	opClose           // close a handle; no reply
)

type request struct {
	Op       op
	HasProc  bool   `json:",omitempty"` // a descriptor of the process's directory is attached
	Root     string `json:",omitempty"`
	Base     string `json:",omitempty"`
	Path     string `json:",omitempty"`
	NoFollow bool   `json:",omitempty"`
	Magic    bool   `json:",omitempty"` // Path is a kernel link in the process's directory
	Remote   bool   `json:",omitempty"` // the helper reads, whatever the file system
	Handle   uint64 `json:",omitempty"`
	Off      int64  `json:",omitempty"`
	N        int    `json:",omitempty"`
}

type answer struct {
	Errno  int    `json:",omitempty"`
	Kind   string `json:",omitempty"` // of errors without a number
	Info   Info
	Handle uint64 `json:",omitempty"` // 0: a descriptor is attached
	Real   string `json:",omitempty"`
	Off    int64  `json:",omitempty"`

	data   []byte
	helper *helper
}

// maxMessage limits a message, in bytes: a block, and a header with a path in it.
const maxMessage = blockSize + 32<<10

const (
	kindNotRegular = "regular"
	kindKernelFile = "kernel"
)

func (a *answer) setError(err error) {
	var no syscall.Errno
	switch {
	case errors.Is(err, ErrNotRegular):
		a.Kind = kindNotRegular
	case errors.Is(err, ErrKernelFile):
		a.Kind = kindKernelFile
	case errors.As(err, &no):
		a.Errno = int(no)
	default:
		a.Errno = int(syscall.EIO)
	}
}

func (a *answer) err() error {
	switch {
	case a.Kind == kindNotRegular:
		return ErrNotRegular
	case a.Kind == kindKernelFile:
		return ErrKernelFile
	case a.Errno != 0:
		return syscall.Errno(a.Errno)
	}
	return nil
}

func pack(head any, data []byte) ([]byte, error) {
	h, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	if 4+len(h)+len(data) > maxMessage {
		return nil, syscall.ENAMETOOLONG
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(h)+len(data)), uint32(len(h)))
	return append(append(b, h...), data...), nil
}

func unpack(b []byte, head any) (data []byte, err error) {
	if len(b) < 4 {
		return nil, syscall.EPROTO
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if n > uint64(len(b)-4) {
		return nil, syscall.EPROTO
	}
	return b[4+n:], json.Unmarshal(b[4:4+n], head)
}
