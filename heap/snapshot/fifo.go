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
var ErrStalled = errors.New("the dump was given up: 256 MB waited to be written, and nothing was written for 2 s, with the process stopped; choose a faster disk or format (.hprof.zst)")

// stallLimit is how long the reader of a dump may keep the process standing.
const stallLimit = 2 * time.Second

// silentLimit is how long HotSpot may write nothing in the middle of a dump.
const silentLimit = 30 * time.Second

// Stream has HotSpot itself write a dump of all objects, or of the live ones after a collection, through FIFOs to w: for collectors
// and virtual machines whose heap cannot be read in a copy. HotSpot stops the process until
// all is written or waits in memory for w (a spool). No file is written.
func Stream(ctx context.Context, p *target.Process, w io.Writer, live bool) (s Streamed, err error) {
	return stream(ctx, p, w, live, spoolLimit)
}

// stream is Stream with a bound on the bytes that wait for w.
func stream(ctx context.Context, p *target.Process, w io.Writer, live bool, limit int64) (s Streamed, err error) {
	version, err := Attachable(ctx, p)
	if err != nil {
		return s, err
	}
	place, err := p.NewWorkplace()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	names, options := dumpOptions(version, live)
	sp, err := newSpool(limit)
	if err != nil {
		return s, err
	}
	j := &joiner{w: sp, place: place, names: names, stop: make(chan struct{})}
	defer j.close()
	if err := j.open(); err != nil {
		return s, err
	}
	wrote := make(chan error, 1)
	go func() { wrote <- sp.drain(w) }()
	defer context.AfterFunc(ctx, func() { sp.leave(ctx.Err()) })()
	defer func() { err = drained(ctx, sp, wrote, err) }()
	j.moved.Store(time.Now().UnixNano())
	answered := make(chan error, 1)
	go func() {
		_, err := p.JavaCommand(context.Background(), "GC.heap_dump "+options+" "+place.Path+"/"+names[0])
		answered <- err
	}()
	done := j.start()
	answer := j.await(ctx, answered)
	if answer != nil {
		j.giveUp()
	}
	// A writer that is stuck in w keeps its reader: the process goes on all the same.
	select {
	case <-done:
	case <-time.After(stallLimit):
		j.fail(ErrStalled)
		return s, j.failed()
	}
	s.Bytes = j.bytes
	s.Stood = time.Duration(time.Now().UnixNano() - j.begin.Load())
	return s, j.finish(answer)
}

// drained waits until w has what the spool holds, or leaves it if the dump failed: err.
func drained(ctx context.Context, sp *spool, wrote <-chan error, err error) error {
	if err == nil {
		err = sp.end()
	}
	if err == nil {
		select {
		case err := <-wrote:
			return err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	sp.leave(err)
	select { // w is the caller's again, unless a write is stuck
	case <-wrote:
	case <-time.After(stallLimit):
	}
	return err
}

// Attachable returns the version, as jcmd's VM.version prints it, of a HotSpot that accepts commands. One that does not
// accept them is not asked.
func Attachable(ctx context.Context, p *target.Process) (version string, err error) {
	// Asked to listen, a virtual machine that does not would write all stacks to its output.
	src, err := source(p)
	if err != nil {
		return "", err
	}
	if off, known, err := hotspot.Flag(src, "DisableAttachMechanism"); err == nil && known && off {
		return "", target.ErrNoAttach
	}
	return p.JavaCommand(ctx, "VM.version")
}

// dumpOptions returns the options of GC.heap_dump, and the names of the files that it writes.
//
// HotSpot 25 writes objects into a second file and appends that to the first one. To one
// that does not know -parallel the option is an error.
func dumpOptions(version string, live bool) (names []string, options string) {
	options = "-all -overwrite"
	if live {
		options = "-overwrite"
	}
	for _, old := range [...]string{"JDK 11.", "JDK 17.", "JDK 21."} {
		if strings.Contains(version, old) {
			return []string{"f"}, options
		}
	}
	return []string{"f", "f.p0"}, options + " -parallel=1"
}

// joiner makes one dump of the two parts that HotSpot 25 writes: record by record.
type joiner struct {
	w       io.Writer // the spool
	place   *target.Workplace
	names   []string   // of the FIFOs
	in      []*os.File // their reading ends
	errs    []error    // of their readers
	mu      sync.Mutex // one record at a time
	bytes   int64
	end     []byte // the last record, which comes last
	begin   atomic.Int64
	moved   atomic.Int64 // when w was last given something, in ns
	writing atomic.Bool  // w was given something and has not returned
	once    sync.Once
	stop    chan struct{}

	why struct {
		sync.Mutex
		err error
	}
}

// open makes the FIFOs and opens them for reading.
func (j *joiner) open() error {
	for _, n := range j.names {
		if err := j.place.FIFO(n); err != nil {
			return err
		}
		f, err := j.place.OpenReader(n)
		if err != nil {
			return err
		}
		j.in = append(j.in, f)
	}
	j.errs = make([]error, len(j.in))
	return nil
}

func (j *joiner) close() {
	for _, f := range j.in {
		f.Close()
	}
}

// start starts to read the FIFOs. done is closed after all of them have ended.
func (j *joiner) start() (done chan struct{}) {
	done = make(chan struct{})
	var readers sync.WaitGroup
	for i := range j.in {
		readers.Go(func() { j.readPart(i) })
	}
	go func() { readers.Wait(); close(done) }()
	return done
}

// readPart reads one FIFO to its end.
func (j *joiner) readPart(i int) {
	f := j.in[i]
	if !target.AwaitWriter(f, j.stop) {
		return
	}
	j.begin.CompareAndSwap(0, time.Now().UnixNano())
	if j.errs[i] = j.read(f, i == 0); j.errs[i] != nil {
		j.giveUp()
		return
	}
	if i == 1 {
		f.Close()
		j.release(j.names[i])
	}
}

// release lets HotSpot open a part to append it, for which it waits for a writer: it reads
// nothing. While this program had the part open for reading, opening it for writing would not
// wait for HotSpot.
func (j *joiner) release(name string) {
	for {
		o, err := j.place.OpenWriter(name)
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

// await returns HotSpot's answer. It gives up a dump that does not proceed; HotSpot then
// answers with an error.
func (j *joiner) await(ctx context.Context, answered <-chan error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case answer := <-answered:
			return answer
		case <-ctx.Done():
			j.fail(ctx.Err())
			j.giveUp()
		case <-tick.C:
			if err := j.stuck(); err != nil {
				j.fail(err)
				j.giveUp()
			}
			select {
			case <-j.stop:
				j.place.Release() // HotSpot may wait for the other side of a FIFO
			default:
			}
			if err := j.strays(); err != nil {
				j.fail(err)
				j.giveUp()
			}
		}
	}
}

// stuck returns an error if one side has not moved for too long.
func (j *joiner) stuck() error {
	writing := j.writing.Load() // first: write sets it last
	still := time.Since(time.Unix(0, j.moved.Load()))
	switch {
	case writing && still > stallLimit:
		return ErrStalled
	case !writing && j.begin.Load() != 0 && still > silentLimit:
		return fmt.Errorf("HotSpot wrote nothing for %v in the middle of its dump", silentLimit)
	}
	return nil
}

// strays returns an error if HotSpot has written files of its own.
func (j *joiner) strays() error {
	all, err := j.place.Names()
	if err == nil && slices.ContainsFunc(all, func(n string) bool { return !slices.Contains(j.names, n) }) {
		return fmt.Errorf("HotSpot writes files of its own beside the FIFO: %v", all)
	}
	return nil
}

// finish writes the last record. It returns an error if the dump is incomplete.
func (j *joiner) finish(answer error) error {
	if err := j.failed(); err != nil {
		return err
	}
	if err := errors.Join(append(j.errs, answer)...); err != nil {
		return err
	}
	if j.end == nil {
		return fmt.Errorf("the dump has no end: %w", io.ErrUnexpectedEOF)
	}
	return j.write(j.end)
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
func (j *joiner) giveUp() {
	j.once.Do(func() {
		close(j.stop)
		j.close()
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
