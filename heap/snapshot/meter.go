package snapshot

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/target"
)

// Meter reads how much of a Java heap is in use, without a stop: from the collector's own
// structures, or, of collectors whose heap cannot be copied, from the counters that HotSpot
// keeps for jstat. It belongs to one goroutine.
type Meter struct {
	p   *target.Process
	max int64
	vm  *hotspot.VM // nil: by the counters
	at  uint64      // of these in the process
	buf []byte
}

// errNoCounters says that a process has no counters, for example with -XX:-UsePerfData or
// -XX:+PerfDisableSharedMem.
var errNoCounters = errors.New("HotSpot keeps no counters: no hsperfdata is mapped")

// NewMeter finds the heap of a process. Errors: ErrNoJVM, *jvm.VersionError and those of
// reading.
func NewMeter(p *target.Process) (*Meter, error) {
	s, err := source(p)
	if err != nil {
		return nil, err
	}
	m := &Meter{p: p}
	if m.max, err = hotspot.MaxHeap(s); err != nil {
		return nil, err
	}
	if m.vm, err = hotspot.Examine(s); err == nil {
		return m, nil
	}
	const most = 4 << 20 // bytes of counters; HotSpot has 32 KiB
	for _, x := range s.Maps {
		if strings.Contains(x.Path, "/hsperfdata_") && x.End-x.Start <= most {
			m.at, m.buf = x.Start, make([]byte, x.End-x.Start)
			return m, nil
		}
	}
	return nil, errNoCounters
}

// Read returns the bytes of the heap that are in use, and the most that it may have.
func (m *Meter) Read() (used, limit int64, err error) {
	if m.vm != nil {
		used, err = m.vm.Used()
		return used, m.max, err
	}
	if _, err := m.p.ReadAt(m.buf, m.at); err != nil {
		return 0, 0, fmt.Errorf("counters of HotSpot: %w", err)
	}
	used, err = hotspot.PerfUsed(m.buf)
	return used, m.max, err
}
