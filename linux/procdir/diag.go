package procdir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Diag queries the kernel for the other ends of UNIX sockets (sock_diag(7)). It sees
// those of the network namespace in which it was opened. It belongs to one goroutine at
// a time.
type Diag struct{ fd int }

// ErrNamespace means that the process's sockets are in another network
// namespace than ours.
var ErrNamespace = errors.New("the sockets are in another network namespace")

// OpenDiag opens a Diag for the process whose directory is d.
func OpenDiag(d *Dir) (*Diag, error) {
	theirs, err := d.ReadLink("ns/net")
	if err != nil {
		return nil, err
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	if ours != theirs {
		return nil, ErrNamespace
	}
	const sockDiag = 4 // NETLINK_SOCK_DIAG
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, sockDiag)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// The answer comes at once, within the request's own system call. The timeout
	// protects us from a kernel that does not answer.
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Usec: 100_000}); err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return &Diag{fd}, nil
}

// Close closes the socket.
func (d *Diag) Close() error { return syscall.Close(d.fd) }

// Peer returns the inode of the other end of a connected UNIX socket, 0 if it has none.
//
// The request is struct unix_diag_req after a netlink header, the answer struct
// unix_diag_msg with attributes (linux/unix_diag.h).
func (d *Diag) Peer(inode uint64) (uint64, error) {
	const (
		byFamily  = 20 // SOCK_DIAG_BY_FAMILY
		header    = 16
		request   = header + 24
		answer    = header + 16
		showPeer  = 4 // UDIAG_SHOW_PEER
		attrPeer  = 2 // UNIX_DIAG_PEER
		maxAnswer = 4096
	)
	if inode > 1<<32-1 {
		return 0, fmt.Errorf("inode %d does not fit in a request", inode)
	}
	var q [request]byte
	le := binary.LittleEndian
	le.PutUint32(q[0:], request)
	le.PutUint16(q[4:], byFamily)
	le.PutUint16(q[6:], syscall.NLM_F_REQUEST)
	q[header] = syscall.AF_UNIX
	le.PutUint32(q[header+4:], ^uint32(0)) // all states
	le.PutUint32(q[header+8:], uint32(inode))
	le.PutUint32(q[header+12:], showPeer)
	le.PutUint64(q[header+16:], ^uint64(0)) // no cookie
	if err := syscall.Sendto(d.fd, q[:], 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}
	var b [maxAnswer]byte
	n, _, err := syscall.Recvfrom(d.fd, b[:], 0)
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	if n < header+4 {
		return 0, fmt.Errorf("sock_diag: %d bytes", n)
	}
	if le.Uint16(b[4:]) == syscall.NLMSG_ERROR {
		return 0, fmt.Errorf("sock_diag: %w", syscall.Errno(-int32(le.Uint32(b[header:]))))
	}
	n = min(n, int(le.Uint32(b[0:])))
	for at := answer; at+4 <= n; {
		size, typ := int(le.Uint16(b[at:])), le.Uint16(b[at+2:])
		if size < 4 || at+size > n {
			break
		}
		if typ == attrPeer && size >= 8 {
			return uint64(le.Uint32(b[at+4:])), nil
		}
		at += (size + 3) &^ 3
	}
	return 0, nil
}
