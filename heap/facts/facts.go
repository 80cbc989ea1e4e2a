// Package facts reads the running information of KOOM's report from a process.
// Its functions may be called concurrently.
package facts

import (
	"time"

	"github.com/sliverprof/sliver/heap/leak"
	"github.com/sliverprof/sliver/heap/snapshot"
	"github.com/sliverprof/sliver/target"
)

// Of reads the running information of a process. Values that cannot be read are omitted.
func Of(p *target.Process, reason leak.DumpReason) *leak.Running {
	r := &leak.Running{Reason: reason, Now: time.Now()}
	if f, err := p.Footprint(); err == nil {
		r.VSS, r.PSS, r.RSS = f.Virtual, f.Share, f.Resident
		r.Threads, r.FDs, r.Usage = f.Threads, f.FDs, f.Age
		r.DeviceTotal, r.DeviceFree = f.RAM, f.RAMFree
	}
	if m, err := snapshot.NewMeter(p); err == nil {
		if used, limit, err := m.Read(); err == nil {
			r.JVMUsed, r.JVMMax = used, limit
		}
	}
	return r
}
