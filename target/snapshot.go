package target

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// SnapshotOptions say how a Snapshot is made. The zero value is usual.
type SnapshotOptions struct {
	// Gate is the address of a byte of the process that must be 0 when it is stopped; else
	// it is let go, and stopped again 2 ms later. 0: none.
	Gate uint64
	// GateFor bounds the tries; 0: 5 s.
	GateFor time.Duration
	// StopFor bounds how long all threads may take to stop in one try; 0: 250 ms.
	StopFor time.Duration
	// Force: make the copy also where a seccomp filter may kill the process for it.
	Force bool
	// Reserve is how many bytes must stay free below the limit of the process's control
	// group: with less the copy is ended. 0: 1/32 of the limit.
	Reserve int64
}

// SnapshotThread is a thread at the moment of the copy.
type SnapshotThread struct {
	TID  stack.TID
	Regs stack.Regs
}

// Snapshot is a copy of a process's memory at one moment: a child that the process itself
// was made to clone, which never runs. The process shares its pages with it and copies
// those that it writes to, as after a fork. Its methods may be used by several goroutines
// at once but for Close.
type Snapshot struct {
	Threads []SnapshotThread
	Frozen  time.Duration // from the first request to stop until the last thread went on, of the last try
	Tries   int

	child  int
	mem    *os.File // /proc/CHILD/mem
	maps   []stack.Mapping
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr *bytes.Buffer
	short  atomic.Bool // memory was short, and the copy was ended
	stop   chan struct{}
	watch  sync.WaitGroup
}

// Snapshot copies the process. Its threads stop for about half a millisecond, and 17 ms for
// each GB of resident memory in pages of 4 KiB (the kernel copies the page tables). Calls
// that they are blocked in go on; see StopRisk. Errors: ErrGone, ErrTraced, ErrDenied,
// ErrTimeout (a thread does not stop), ErrGroupStop, ErrSeccomp, ErrNoThread, ErrBusy (the
// gate), ErrShort, *CloneError. After an error the process is as it was.
func (p *Process) Snapshot(o SnapshotOptions) (*Snapshot, error) {
	if o.GateFor <= 0 {
		o.GateFor = 5 * time.Second
	}
	if o.StopFor <= 0 {
		o.StopFor = 250 * time.Millisecond
	}
	if room, err := p.MemoryRoom(); err == nil && room.Free < o.reserve(room) {
		return nil, fmt.Errorf("%w: %d MB of %d MB are free", ErrShort, room.Free>>20, room.Limit>>20)
	}
	s := &Snapshot{cmd: &exec.Cmd{Path: "/proc/self/exe", Args: []string{KeeperName}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}},
		stderr: &bytes.Buffer{}, stop: make(chan struct{})}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a keeper: %w", err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a keeper: %w", err)
	}
	s.cmd.Stderr = s.stderr
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a keeper: %w", err)
	}
	s.out = json.NewDecoder(out)
	q := keeperRequest{PID: p.pid, Start: p.facts.StartTicks, Gate: o.Gate, GateFor: int64(o.GateFor), StopFor: int64(o.StopFor), Force: o.Force}
	if err := json.NewEncoder(s.in).Encode(&q); err != nil {
		return nil, errors.Join(err, s.end())
	}
	var r keeperReply
	if err := s.out.Decode(&r); err != nil {
		return nil, errors.Join(fmt.Errorf("the keeper of the copy ended: %w", err), s.end())
	}
	if err := r.error(); err != nil {
		go s.end() // it waits for threads that are late, which it has to let go
		return nil, err
	}
	s.child, s.Tries, s.Frozen = r.Child, r.Tries, time.Duration(r.Frozen)
	for _, t := range r.Threads {
		var regs [regWords]uint64
		copy(regs[:], t.Regs)
		st := SnapshotThread{TID: stack.TID(t.TID)}
		nativeRegs(&regs, &st.Regs)
		s.Threads = append(s.Threads, st)
	}
	s.watch.Add(1)
	go s.guard(p, &o)
	// Not process_vm_readv: it pins pages, for which the kernel copies each one that the
	// copy shares with the process (mm/gup.c, gup_must_unshare).
	if s.mem, err = os.Open("/proc/" + strconv.Itoa(s.child) + "/mem"); err != nil {
		return nil, errors.Join(fmt.Errorf("memory of the copy: %w", s.why(err)), s.Close())
	}
	if s.maps, err = s.readMaps(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (o *SnapshotOptions) reserve(r Room) int64 {
	if o.Reserve > 0 {
		return o.Reserve
	}
	return r.Limit / 32
}

// guardEach is how often the memory of the process's control group is looked at.
const guardEach = 20 * time.Millisecond

// guard ends the copy when memory is short: what the process writes to is copied, and
// charged to the process's control group.
func (s *Snapshot) guard(p *Process, o *SnapshotOptions) {
	defer s.watch.Done()
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(guardEach):
		}
		room, err := p.MemoryRoom()
		if err == nil && room.Free < o.reserve(room) {
			s.short.Store(true)
			_ = s.in.Close() // the keeper ends the copy
			return
		}
	}
}

// PID of the copy.
func (s *Snapshot) PID() int { return s.child }

// Maps are the copy's mappings by address. Those that the process has excluded from its
// children (MADV_DONTFORK) are missing.
func (s *Snapshot) Maps() []stack.Mapping { return s.maps }

func (s *Snapshot) readMaps() ([]stack.Mapping, error) {
	b, err := readWhole("/proc/"+strconv.Itoa(s.child)+"/maps", maxMaps)
	if err != nil {
		return nil, fmt.Errorf("mappings of the copy: %w", s.why(err))
	}
	return ParseMaps(b)
}

// Copied is how many bytes of pages the process has written to since the copy was made, so
// that the kernel had to copy them (the copy's own pages in smaps_rollup).
func (s *Snapshot) Copied() (int64, error) {
	b, err := readWhole("/proc/"+strconv.Itoa(s.child)+"/smaps_rollup", maxStatus)
	if err != nil {
		return 0, s.why(err)
	}
	sum := int64(0)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && (f[0] == "Private_Clean:" || f[0] == "Private_Dirty:") {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("smaps_rollup of the copy: %w", err)
			}
			sum += kb << 10
		}
	}
	if s.short.Load() { // it is giving its pages back
		return 0, ErrShort
	}
	return sum, nil
}

// why is the reason for an error of a read.
func (s *Snapshot) why(err error) error {
	if s.short.Load() {
		return ErrShort
	}
	return gone(err)
}

// ReadAt copies memory of the copy at address off into b. Fewer bytes come with a
// *MemoryError: of ErrShort if the copy was ended since memory is short, of ErrGone if it
// was ended by others.
func (s *Snapshot) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &MemoryError{Addr: uint64(off), Err: unix.EFAULT}
	}
	n, err := s.mem.ReadAt(b, off)
	switch {
	case s.short.Load(): // pages that the copy has given back read as zeros
		return 0, &MemoryError{Addr: uint64(off), Err: ErrShort}
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF): // its memory is gone
		err = s.why(unix.ESRCH)
	case errors.Is(err, unix.EIO):
		err = unix.EFAULT
	}
	return n, &MemoryError{Addr: uint64(off) + uint64(n), Err: s.why(err)}
}

// Close ends the copy. An error says that something was left in the process: a zombie where
// a seccomp filter forbids wait4.
func (s *Snapshot) Close() error {
	close(s.stop)
	s.watch.Wait()
	if s.mem != nil {
		s.mem.Close()
	}
	return s.end()
}

// end lets the keeper finish and takes its status.
func (s *Snapshot) end() error {
	_ = s.in.Close()
	var r keeperReply
	err := s.out.Decode(&r)
	if e := s.cmd.Wait(); e != nil && err != nil && s.child != 0 {
		return fmt.Errorf("the keeper of the copy ended too soon (%w), so that a zombie may be left: %s", e, bytes.TrimSpace(s.stderr.Bytes()))
	}
	if err != nil {
		return nil // it has said why before
	}
	return r.error()
}

// StackPointer is the number of the stack pointer's register in stack.Regs.
const StackPointer = nativeSP
