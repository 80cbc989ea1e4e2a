package leak

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"
	"time"
)

// The running information has the names and types of each version: numbers of MB in 1, texts in 2.
func TestKOOMRunning(t *testing.T) {
	r := &Running{JVMMax: 512 << 20, JVMUsed: 400<<20 + 1<<19, VSS: 5 << 30, PSS: 600 << 20, RSS: 700 << 20, Threads: 31, FDs: 57,
		Usage: 90 * time.Second, DeviceTotal: 8 << 30, DeviceFree: 1 << 30, Now: time.Date(2026, 2, 3, 4, 5, 6, 78e6, time.UTC), Reason: ReasonGrowth}
	for version, want := range map[int]map[string]any{
		1: {"jvmMax": 512., "jvmUsed": 400., "vss": 5120., "pss": 600., "rss": 700., "threadCount": 31., "usageSeconds": 90.,
			"nowTime": "2026-02-03_04-05-06", "dumpReason": "HEAP_OVER_THRESHOLD", "analysisReason": "RIGHT_NOW"},
		2: {"jvmMax": "512.0", "jvmUsed": "400.5", "vss": "5120.0mb", "pss": "600.0mb", "rss": "700.0mb", "threadCount": "31", "fdCount": "57", "usageSeconds": "90",
			"deviceMemTotal": "8192.0", "deviceMemAvaliable": "1024.0", "nowTime": "2026-02-03_04-05-06_078", "dumpReason": "reason_fast_huge_delta"},
	} {
		k := &KOOM{version: version}
		k.Of(r)
		var b bytes.Buffer
		if err := k.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		var doc struct{ RunningInfo map[string]any }
		if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		got := doc.RunningInfo
		for _, other := range [...]string{"filterInstanceTime", "findGCPathTime", "threadList", "fdList"} {
			delete(got, other)
		}
		if !maps.Equal(got, want) {
			t.Errorf("version %d:\n got %v\nwant %v", version, got, want)
		}
	}
}
