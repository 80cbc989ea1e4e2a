package kernel

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// attached are the programs of an engine that run in the kernel, with their maps and the ring that they write.
type attached struct {
	maps   map[string]*ebpf.Map
	progs  []*ebpf.Program
	links  []io.Closer
	reader *ringbuf.Reader
	rec    ringbuf.Record // its memory is used again
}

// records calls f for each record in the ring.
func (a *attached) records(f func(b []byte)) { readRing(a.reader, &a.rec, f) }

// readRing calls f for each record in a ring, at most for one ring's worth: a busy process does not keep the caller here. A
// record is in rec's memory, which is used again; f may replace it.
func readRing(r *ringbuf.Reader, rec *ringbuf.Record, f func(b []byte)) {
	for left := r.AvailableBytes(); left > 0; {
		r.SetDeadline(time.Unix(1, 0)) // it waits for nothing
		err := r.ReadInto(rec)
		left -= len(rec.RawSample) + 8
		switch {
		case err == nil:
			f(rec.RawSample)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return
		}
	}
}

// Stop removes the programs. A last Read still returns the records before that.
func (a *attached) Stop() error {
	var errs []error
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	a.links = nil
	return errors.Join(errs...)
}

// Close removes the programs and frees the maps.
func (a *attached) Close() error {
	errs := []error{a.Stop()}
	if a.reader != nil {
		errs = append(errs, a.reader.Close())
	}
	for _, p := range a.progs {
		errs = append(errs, p.Close())
	}
	for _, m := range a.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
