package files

import (
	"bytes"
	"fmt"
	"strconv"
)

// FileLock is a line of /proc/locks (proc_locks(5); kernel: fs/locks.c,
// lock_get_status).
type FileLock struct {
	ID      uint64 // number of the line, shared by the waiters for that lock
	Waiting bool   // "->": the process waits for the lock
	Class   string // "POSIX", "FLOCK", "OFDLCK", "LEASE", "DELEG"
	Write   bool
	PID     int // -1: of an open file description; 0: of a process outside this namespace
	Major   uint32
	Minor   uint32
	Inode   uint64
	Start   uint64
	End     uint64 // the last byte; MaxUint64: to the end of the file
}

// Limits of /proc/locks.
const (
	maxLocksFile = 4 << 20
	maxLocks     = 1 << 16
)

// ParseLocks reads /proc/locks. With an error it returns the locks before the line that
// it could not parse.
//
//	1: POSIX  ADVISORY  WRITE 2113 00:2b:2086 0 EOF
//	1: -> POSIX  ADVISORY  WRITE 2120 00:2b:2086 0 EOF
func ParseLocks(b []byte) ([]FileLock, error) {
	var out []FileLock
	off := 0
	for line := range bytes.Lines(b) {
		at := off
		off += len(line)
		if len(out) == maxLocks {
			return out, fmt.Errorf("locks: offset %d: more than %d locks", at, maxLocks)
		}
		f := bytes.Fields(line)
		if len(f) == 0 {
			continue
		}
		l, ok := parseLock(f)
		if !ok {
			return out, fmt.Errorf("locks: offset %d: not a lock: %.80q", at, line)
		}
		out = append(out, l)
	}
	return out, nil
}

func parseLock(f [][]byte) (l FileLock, ok bool) {
	id, err := strconv.ParseUint(string(bytes.TrimSuffix(f[0], []byte(":"))), 10, 64)
	if err != nil || !bytes.HasSuffix(f[0], []byte(":")) {
		return l, false
	}
	l.ID = id
	f = f[1:]
	for len(f) > 0 && string(f[0]) == "->" {
		l.Waiting = true
		f = f[1:]
	}
	if len(f) != 7 {
		return l, false
	}
	l.Class = string(f[0])
	l.Write = string(f[2]) == "WRITE"
	pid, err := strconv.ParseInt(string(f[3]), 10, 32)
	if err != nil {
		return l, false
	}
	l.PID = int(pid)
	if string(f[4]) == "<none>" {
		return l, true
	}
	where := bytes.Split(f[4], []byte(":"))
	if len(where) != 3 {
		return l, false
	}
	major, e1 := strconv.ParseUint(string(where[0]), 16, 32)
	minor, e2 := strconv.ParseUint(string(where[1]), 16, 32)
	inode, e3 := strconv.ParseUint(string(where[2]), 10, 64)
	start, e4 := strconv.ParseUint(string(f[5]), 10, 64)
	l.End = 1<<64 - 1
	var e5 error
	if string(f[6]) != "EOF" {
		l.End, e5 = strconv.ParseUint(string(f[6]), 10, 64)
	}
	if e1 != nil || e2 != nil || e3 != nil || e4 != nil || e5 != nil {
		return l, false
	}
	l.Major, l.Minor, l.Inode, l.Start = uint32(major), uint32(minor), inode, start
	return l, true
}

// HoldersOf returns the locks that block waiter: the held ones with the same line
// number.
func HoldersOf(all []FileLock, waiter *FileLock) []FileLock {
	var out []FileLock
	for _, l := range all {
		if l.ID == waiter.ID && !l.Waiting {
			out = append(out, l)
		}
	}
	return out
}

// Waiter returns the lock that pid waits for on the file with that inode. class is
// "FLOCK" or "POSIX" (which also matches "OFDLCK", whose lines show no PID).
func Waiter(all []FileLock, class string, pid int, inode uint64) (FileLock, bool) {
	for _, l := range all {
		if l.Waiting && l.Class == class && l.PID == pid && (inode == 0 || l.Inode == inode) {
			return l, true
		}
	}
	return FileLock{}, false
}

// Locks reads /proc/locks of dir.
func Locks(dir Dir) ([]FileLock, error) {
	b, err := dir.ReadFile("locks", maxLocksFile)
	if err != nil {
		return nil, err
	}
	return ParseLocks(b)
}
