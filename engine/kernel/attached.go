package kernel

import (
	"errors"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// attached are the programs of an engine that run in the kernel, with their maps and the ring that they write.
type attached struct {
	maps   map[string]*ebpf.Map
	progs  []*ebpf.Program
	links  []io.Closer
	reader *ringbuf.Reader
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
