package leak

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DumpReason is why a heap was looked at.
type DumpReason int

const (
	ReasonManual  DumpReason = iota // a user wanted it
	ReasonNearMax                   // the heap is near its maximum
	ReasonGrowth                    // the heap grew by much
)

// Running is the running information of the process in KOOM's report. Sizes are in bytes; zero
// values are omitted.
type Running struct {
	JVMMax, JVMUsed         int64
	VSS, PSS, RSS           int64
	Threads, FDs            int
	Usage                   time.Duration // since the process was started
	DeviceTotal, DeviceFree int64         // memory of the machine
	Now                     time.Time
	Reason                  DumpReason
}

// koomRunning is the object runningInfo with the names and order of both versions. The types are those of
// version 1's HeapReport.java and of version 2's HeapReport.kt: numbers of MB, or texts.
type koomRunning struct {
	JVMMax             any       `json:"jvmMax,omitempty"`
	JVMUsed            any       `json:"jvmUsed,omitempty"`
	VSS                any       `json:"vss,omitempty"`
	PSS                any       `json:"pss,omitempty"`
	RSS                any       `json:"rss,omitempty"`
	ThreadCount        any       `json:"threadCount,omitempty"`
	FDCount            string    `json:"fdCount,omitempty"`
	ThreadList         *[]string `json:"threadList,omitempty"`
	FdList             *[]string `json:"fdList,omitempty"`
	SDKInt             any       `json:"sdkInt,omitempty"`
	Manufacture        string    `json:"manufacture,omitempty"`
	BuildModel         string    `json:"buildModel,omitempty"`
	UsageSeconds       any       `json:"usageSeconds,omitempty"`
	NowTime            string    `json:"nowTime,omitempty"`
	DeviceMemTotal     any       `json:"deviceMemTotal,omitempty"`
	DeviceMemAvaliable any       `json:"deviceMemAvaliable,omitempty"` // as KOOM spells it
	DumpReason         string    `json:"dumpReason,omitempty"`
	AnalysisReason     string    `json:"analysisReason,omitempty"`
	FilterInstanceTime string    `json:"filterInstanceTime,omitempty"`
	FindGCPathTime     string    `json:"findGCPathTime,omitempty"`
}

const koomTime = "2006-01-02_15-04-05"

// koomNow writes a time as each version does.
func koomNow(t time.Time, version int) string {
	s := t.Format(koomTime)
	if version == 2 {
		s += fmt.Sprintf("_%03d", t.UnixMilli()%1000)
	}
	return s
}

// Of version 1 the names of TriggerReason's enumerations, of version 2 what OOMTracker.reason returns;
// MANUAL_TRIGGER is for a heap that was asked for, which version 2 does not do.
var koomReasons = map[DumpReason][2]string{
	ReasonManual: {"MANUAL_TRIGGER", "manual_trigger"}, ReasonNearMax: {"HEAP_OVER_THRESHOLD", "reason_heap_oom"}, ReasonGrowth: {"HEAP_OVER_THRESHOLD", "reason_fast_huge_delta"},
}

// fill sets what r knows.
func (k *koomRunning) fill(r *Running, version int) {
	megabytes := func(n int64, unit string) any {
		switch {
		case n <= 0:
			return nil
		case version == 1:
			return n >> 20
		}
		s := strconv.FormatFloat(float64(n)/(1<<20), 'f', -1, 32) // as Java prints a Float
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s + unit
	}
	count := func(n int64) any {
		if version == 1 {
			return n
		}
		return strconv.FormatInt(n, 10)
	}
	k.JVMMax, k.JVMUsed = megabytes(r.JVMMax, ""), megabytes(r.JVMUsed, "")
	k.VSS, k.PSS, k.RSS = megabytes(r.VSS, "mb"), megabytes(r.PSS, "mb"), megabytes(r.RSS, "mb")
	if r.Threads > 0 {
		k.ThreadCount = count(int64(r.Threads))
	}
	if r.Usage > 0 {
		k.UsageSeconds = count(int64(r.Usage / time.Second))
	}
	k.NowTime, k.DumpReason = koomNow(r.Now, version), koomReasons[r.Reason][version-1]
	if version == 1 {
		k.AnalysisReason = "RIGHT_NOW"
		return
	}
	if r.FDs > 0 {
		k.FDCount = strconv.Itoa(r.FDs)
	}
	k.DeviceMemTotal, k.DeviceMemAvaliable = megabytes(r.DeviceTotal, ""), megabytes(r.DeviceFree, "")
}
