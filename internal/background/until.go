package background

import "time"

var begun = time.Now()

// Until returns the time until the next multiple of apart since the program's start.
// Periodic checks of many targets use the same moments, so that the program wakes up once
// for all of them: a wakeup costs more than most checks.
func Until(apart time.Duration) time.Duration {
	return apart - time.Since(begun)%apart
}
