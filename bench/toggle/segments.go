package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Constants of the kernel's TCP diagnostics (include/uapi/linux/sock_diag.h, inet_diag.h
// and tcp.h).
const (
	netlinkSockDiag  = 4
	sockDiagByFamily = 20
	inetDiagInfo     = 2
	established      = 1
	diagMsgLen       = 72  // struct inet_diag_msg, followed by attributes
	dataSegsIn       = 152 // tcpi_data_segs_in in struct tcp_info
)

// parseSegments returns the counter of a server on a port of 127.0.0.1 whose clients send
// each request in one segment and stay connected: pgbench -S. It reads only kernel data,
// so it can be read at any rate.
func parseSegments(where string) (counter, error) {
	port, err := strconv.ParseUint(where, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("count: port %q: %w", where, err)
	}
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, netlinkSockDiag)
	if err != nil {
		return nil, fmt.Errorf("count: %w", os.NewSyscallError("netlink socket", err))
	}
	patient := syscall.NsecToTimeval(patience.Nanoseconds())
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &patient); err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	buf := make([]byte, 1<<16)
	return differences(func() (float64, error) { return segments(fd, uint16(port), buf) }), nil
}

// segments returns how many data segments have arrived at a local port, over all existing
// connections.
func segments(fd int, port uint16, buf []byte) (sum float64, err error) {
	seq := uint32(time.Now().UnixNano())
	req := make([]byte, syscall.NLMSG_HDRLEN+56)
	ne := binary.NativeEndian
	ne.PutUint32(req, uint32(len(req)))
	ne.PutUint16(req[4:], sockDiagByFamily)
	ne.PutUint16(req[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_DUMP)
	ne.PutUint32(req[8:], seq)
	body := req[syscall.NLMSG_HDRLEN:]
	body[0], body[1], body[2] = syscall.AF_INET, syscall.IPPROTO_TCP, 1<<(inetDiagInfo-1)
	ne.PutUint32(body[4:], 1<<established)
	binary.BigEndian.PutUint16(body[8:], port)
	if err := syscall.Sendto(fd, req, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("ask for connections", err)
	}
	for {
		n, _, err := syscall.Recvfrom(fd, buf, 0)
		if err != nil {
			return 0, os.NewSyscallError("read connections", err)
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return 0, fmt.Errorf("read connections: %w", err)
		}
		for i := range msgs {
			m := &msgs[i]
			switch {
			case m.Header.Seq != seq:
				continue // of an earlier request
			case m.Header.Type == syscall.NLMSG_DONE:
				return sum, nil
			case m.Header.Type == syscall.NLMSG_ERROR:
				return 0, errors.New("the kernel reports no connections")
			}
			k, err := arrived(m.Data, port)
			if err != nil {
				return 0, err
			}
			sum += k
		}
	}
}

// arrived returns the segments of one connection, 0 if it has another local port.
func arrived(msg []byte, port uint16) (float64, error) {
	if len(msg) < diagMsgLen || binary.BigEndian.Uint16(msg[4:]) != port {
		return 0, nil
	}
	ne := binary.NativeEndian
	for a := msg[diagMsgLen:]; len(a) >= 4; {
		n := int(ne.Uint16(a))
		if n < 4 || n > len(a) {
			break
		}
		if ne.Uint16(a[2:]) == inetDiagInfo && n >= 4+dataSegsIn+4 {
			return float64(ne.Uint32(a[4+dataSegsIn:])), nil
		}
		a = a[min((n+3)&^3, len(a)):]
	}
	return 0, errors.New("the kernel does not count segments of connections")
}
