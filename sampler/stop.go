package sampler

import "fmt"

// StopPolicy defines when a thread may be stopped.
type StopPolicy uint8

// Stop policies.
const (
	StopAuto    StopPolicy = iota // running threads, and blocked ones if their state needs a stop that does no harm
	StopAlways                    // the same, and blocked ones whose call's timeout restarts, if the delay is small
	StopRunning                   // running threads only
)

// ParseStopPolicy parses auto, always or running.
func ParseStopPolicy(s string) (StopPolicy, error) {
	for p, n := range stopNames {
		if n == s {
			return StopPolicy(p), nil
		}
	}
	return 0, fmt.Errorf("stop-policy: %q is none of auto, always, running", s)
}

var stopNames = [...]string{"auto", "always", "running"}

func (p StopPolicy) String() string { return stopNames[p] }
