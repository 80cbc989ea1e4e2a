package idle

import (
	"fmt"
	"strconv"
)

// Left counts the idle waits that a view omits.
type Left struct {
	Threads int   `json:"threads"` // that were idle all the time
	Wait    int64 `json:"ns"`      // their idle waits
	Others  int   `json:"other_threads"`
	Other   int64 `json:"other_ns"` // idle waits of threads that also did something
}

// mostly is the share of its time that a thread must wait idly to count as idle.
const mostly = .99

// Add adds a thread that waited idly for idle of observed ns. Both exclude times of
// waiting for a CPU.
func (l *Left) Add(idle, observed int64) {
	switch {
	case idle <= 0:
	case Thread(idle, observed):
		l.Threads++
		l.Wait += idle
	default:
		l.Others++
		l.Other += idle
	}
}

// Join adds the waits that x counts.
func (l *Left) Join(x *Left) {
	l.Threads, l.Wait = l.Threads+x.Threads, l.Wait+x.Wait
	l.Others, l.Other = l.Others+x.Others, l.Other+x.Other
}

// Thread reports whether a thread that waited idly for idle of observed ns is an idle thread.
func Thread(idle, observed int64) bool {
	return idle > 0 && float64(idle) >= mostly*float64(observed)
}

// Any reports whether any waits were omitted.
func (l *Left) Any() bool { return l.Threads > 0 || l.Others > 0 }

// String describes the omitted waits and the flag that shows them: "4 idle threads,
// 20.1 s; --idle shows them"; "" if there are none.
func (l *Left) String() string {
	switch {
	case l.Threads == 0 && l.Others == 0:
		return ""
	case l.Threads == 0:
		return fmt.Sprintf("idle waits of %s, %s; --idle shows them", count(l.Others, "thread"), seconds(l.Other))
	case l.Others == 0:
		return fmt.Sprintf("%s, %s; --idle shows them", count(l.Threads, "idle thread"), seconds(l.Wait))
	}
	return fmt.Sprintf("%s, %s, and idle waits of %s, %s; --idle shows them", count(l.Threads, "idle thread"), seconds(l.Wait),
		count(l.Others, "other thread"), seconds(l.Other))
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// seconds formats ns with three digits, or to a tenth of a second.
func seconds(ns int64) string {
	switch {
	case ns >= 10e9:
		return fmt.Sprintf("%.1f s", float64(ns)/1e9)
	case ns >= 1e9:
		return fmt.Sprintf("%.2f s", float64(ns)/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%.3g ms", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.3g µs", float64(ns)/1e3)
}
