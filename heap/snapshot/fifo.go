package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/target"
)

// Streamed says what a dump through FIFOs has cost.
type Streamed struct {
	Stood time.Duration // from the first byte of the dump to the last, during which HotSpot stops the process
	Bytes int64
}

// ErrStalled says that the dump was given up, since what reads it took nothing for too long.
var ErrStalled = errors.New("the dump was given up: its reader took nothing for 2 s, with the process stopped")

// stallLimit is how long the reader of a dump may keep the process standing.
const stallLimit = 2 * time.Second

// silentLimit is how long HotSpot may write nothing in the middle of a dump.
const silentLimit = 30 * time.Second

// Stream has HotSpot itself write a dump of all objects, through FIFOs to w: for collectors
// and virtual machines whose heap cannot be read in a copy. HotSpot stops the process until
// w has taken all. No file is written.
func Stream(ctx context.Context, p *target.Process, w io.Writer) (s Streamed, err error) {
	// Asked to listen, a virtual machine that does not would write all stacks to its output.
	src, err := source(p)
	if err != nil {
		return s, err
	}
	if off, known, err := hotspot.Flag(src, "DisableAttachMechanism"); err == nil && known && off {
		return s, target.ErrNoAttach
	}
	version, err := p.JavaCommand("VM.version")
	if err != nil {
		return s, err
	}
	place, err := p.NewWorkplace()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	// HotSpot 25 writes objects into a second file and appends that to the first one. To one
	// that does not know -parallel the option is an error.
	names, command := []string{"f", "f.p0"}, "GC.heap_dump -all -overwrite -parallel=1 "+place.Path+"/f"
	if old := strings.Contains(version, "JDK 17.") || strings.Contains(version, "JDK 21.") || strings.Contains(version, "JDK 11."); old {
		names, command = names[:1], "GC.heap_dump -all -overwrite "+place.Path+"/f"
	}
	var in []*os.File
	for _, n := range names {
		if err := place.FIFO(n); err != nil {
			return s, err
		}
		f, err := place.OpenReader(n)
		if err != nil {
			return s, err
		}
		defer f.Close()
		in = append(in, f)
	}
	j := &joiner{w: w, stop: make(chan struct{})}
	j.moved.Store(time.Now().UnixNano())
	answered := make(chan error, 1)
	go func() {
		_, err := p.JavaCommand(command)
		answered <- err
	}()
	var readers sync.WaitGroup
	errs := make([]error, len(in))
	for i, f := range in {
		readers.Go(func() {
			if !target.AwaitWriter(f, j.stop) {
				return
			}
			j.begin.CompareAndSwap(0, time.Now().UnixNano())
			if errs[i] = j.read(f, i == 0); errs[i] != nil {
				j.giveUp(in)
				return
			}
			if i == 1 {
				// HotSpot opens it to append it, and waits for a writer: it reads nothing. While this
				// program had it open for reading, opening it for writing would not wait for HotSpot.
				f.Close()
				for {
					o, err := place.OpenWriter(names[1])
					if err == nil {
						o.Close()
						return
					}
					select {
					case <-j.stop:
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			}
		})
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var answer error
	for waiting := true; waiting; {
		select {
		case answer = <-answered:
			waiting = false
		case <-ctx.Done():
			j.fail(ctx.Err())
			j.giveUp(in)
		case <-tick.C:
			if j.writing.Load() && time.Since(time.Unix(0, j.moved.Load())) > stallLimit {
				j.fail(ErrStalled)
				j.giveUp(in)
			}
			if j.begin.Load() != 0 && !j.writing.Load() && time.Since(time.Unix(0, j.moved.Load())) > silentLimit {
				j.fail(fmt.Errorf("HotSpot wrote nothing for %v in the middle of its dump", silentLimit))
				j.giveUp(in)
			}
			select {
			case <-j.stop:
				place.Release() // HotSpot may wait for the other side of a FIFO
			default:
			}
			if all, err := place.Names(); err == nil && slices.ContainsFunc(all, func(n string) bool { return !slices.Contains(names, n) }) {
				j.fail(fmt.Errorf("HotSpot writes files of its own beside the FIFO: %v", all))
				j.giveUp(in)
			}
		}
	}
	if answer != nil {
		j.giveUp(in)
	}
	// A writer that is stuck in w keeps its reader: the process goes on all the same.
	done := make(chan struct{})
	go func() { readers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(stallLimit):
		j.fail(ErrStalled)
		return s, j.failed()
	}
	s.Bytes = j.bytes
	s.Stood = time.Duration(time.Now().UnixNano() - j.begin.Load())
	if err := j.failed(); err != nil {
		return s, err
	}
	if err := errors.Join(append(errs, answer)...); err != nil {
		return s, err
	}
	if j.end == nil {
		return s, fmt.Errorf("the dump has no end: %w", io.ErrUnexpectedEOF)
	}
	if err := j.write(j.end); err != nil {
		return s, err
	}
	return s, nil
}

// joiner makes one dump of the two parts that HotSpot 25 writes: record by record.
type joiner struct {
	w       io.Writer
	mu      sync.Mutex // one record at a time
	bytes   int64
	end     []byte // the last record, which comes last
	begin   atomic.Int64
	moved   atomic.Int64 // when w last took something, in ns
	writing atomic.Bool  // w was given something and has not returned
	once    sync.Once
	stop    chan struct{}

	why struct {
		sync.Mutex
		err error
	}
}

func (j *joiner) fail(err error) {
	j.why.Lock()
	defer j.why.Unlock()
	if j.why.err == nil {
		j.why.err = err
	}
}

func (j *joiner) failed() error {
	j.why.Lock()
	defer j.why.Unlock()
	return j.why.err
}

// giveUp closes the FIFOs: HotSpot's next write fails, and it goes on.
func (j *joiner) giveUp(in []*os.File) {
	j.once.Do(func() {
		close(j.stop)
		for _, f := range in {
			f.Close()
		}
	})
}

func (j *joiner) write(b []byte) error {
	j.moved.Store(time.Now().UnixNano())
	j.writing.Store(true)
	n, err := j.w.Write(b)
	j.writing.Store(false)
	j.bytes += int64(n)
	return err
}

// maxMain bounds a record of the first of two parts, which has names, classes and roots. It
// is held in memory until it is whole, so that the other part is never kept waiting.
const maxMain = 1 << 30

// read copies one part. The first one begins with the header.
func (j *joiner) read(f io.Reader, main bool) error {
	r := bufio.NewReaderSize(f, 1<<20)
	if main {
		head, err := r.ReadBytes(0)
		if err != nil || len(head) > 64 {
			return fmt.Errorf("the dump has no header: %w", err)
		}
		rest := make([]byte, 12)
		if _, err := io.ReadFull(r, rest); err != nil {
			return fmt.Errorf("the dump has no header: %w", err)
		}
		j.mu.Lock()
		err = j.write(append(head, rest...))
		j.mu.Unlock()
		if err != nil {
			return err
		}
	}
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(r, head); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		n := int64(binary.BigEndian.Uint32(head[5:]))
		if head[0] == hprof.TagHeapDumpEnd {
			j.end = head
			continue
		}
		if main {
			if n > maxMain {
				return fmt.Errorf("a record of %d bytes, more than %d", n, maxMain)
			}
			var b bytes.Buffer
			b.Write(head)
			if _, err := io.CopyN(&b, r, n); err != nil {
				return err
			}
			j.mu.Lock()
			err := j.write(b.Bytes())
			j.mu.Unlock()
			if err != nil {
				return err
			}
			continue
		}
		j.mu.Lock()
		err := j.write(head)
		for buf := make([]byte, 256<<10); err == nil && n > 0; {
			var k int
			k, err = r.Read(buf[:min(n, int64(len(buf)))])
			if k > 0 {
				n -= int64(k)
				err = errors.Join(err, j.write(buf[:k]))
			}
		}
		j.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
