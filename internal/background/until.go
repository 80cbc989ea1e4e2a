package background

import "time"

var begun = time.Now()

// Until is how long it is until the next of the moments that lie so far apart in the
// life of this program. What has to be looked at regularly, for each of many targets,
// is looked at in these: then the program wakes up once for all of them, and to wake up
// costs more than most of what is looked at.
func Until(apart time.Duration) time.Duration {
	return apart - time.Since(begun)%apart
}
