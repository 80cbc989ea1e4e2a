package symbol

//sliver:layer live unraced

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// perfMemLines is the number of lines of TestPerfMapMemory's map.
const perfMemLines = 2_000_000

// TestPerfMapMemory: a map of 2 million lines must cost at most four times its size, at its peak and with
// all that the process keeps. A process of its own parses it.
func TestPerfMapMemory(t *testing.T) {
	if path := os.Getenv("SLIVER_PERF_MAP"); path != "" {
		parseAlone(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "perf.map")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := range perfMemLines {
		fmt.Fprintf(w, "%x %x LazyCompile:*function%d /srv/app/lib/%d.js:%d\n", 0x7f0000000000+64*i, 64, i, i%1000, i%5000)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	size, _ := f.Seek(0, io.SeekCurrent)
	f.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestPerfMapMemory$", "-test.v")
	cmd.Env = append(os.Environ(), "SLIVER_PERF_MAP="+path)
	out, err := cmd.CombinedOutput()
	var entries int
	var before, after int64
	for _, line := range strings.Split(string(out), "\n") {
		_, _ = fmt.Sscanf(line, "parsed %d entries: %d to %d", &entries, &before, &after)
	}
	if err != nil || entries < perfMemLines/2 || before == 0 {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%d MB for a file of %d MB", (after-before)>>20, size>>20)
	if after-before > 4*size {
		t.Errorf("%d bytes for a file of %d", after-before, size)
	}
}

// parseAlone prints the most memory that the process had before and after it parses the map at path.
func parseAlone(t *testing.T, path string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := peak(t)
	m, err := ParsePerfMap(f)
	after := peak(t)
	if m == nil {
		t.Fatal(err)
	}
	fmt.Printf("parsed %d entries: %d to %d\n", len(m.entries), before, after)
	runtime.KeepAlive(m)
}

// peak returns the most resident memory that this process has had, in bytes.
func peak(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
