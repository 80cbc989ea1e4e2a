package sampler

import "fmt"

// StopPolicy says when a thread may be stopped.
type StopPolicy uint8

// Policies.
const (
	StopAuto    StopPolicy = iota // running threads, and blocked ones that only a stop can tell about where it does no harm
	StopAlways                    // the same, and where a call's timeout starts anew by it, as long as that is little
	StopRunning                   // running threads alone
)

// ParseStopPolicy reads auto, always or running.
func ParseStopPolicy(s string) (StopPolicy, error) {
	for p, n := range stopNames {
		if n == s {
			return StopPolicy(p), nil
		}
	}
	return 0, fmt.Errorf("stop: %q is none of auto, always, running", s)
}

var stopNames = [...]string{"auto", "always", "running"}

func (p StopPolicy) String() string { return stopNames[p] }
