package export_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/internal/testprog"
)

// TestWriteBig runs as TestMemory's child process.
func TestWriteBig(t *testing.T) {
	path := os.Getenv("SLIVER_WRITE_BIG")
	if path == "" {
		t.Skip("TestMemory runs it")
	}
	n, err := strconv.Atoi(os.Getenv("SLIVER_WRITE_EVENTS"))
	if err != nil {
		t.Fatal(err)
	}
	exporttest.BigFile(t, path, n, 4, os.Getenv("SLIVER_WRITE_VARIED") != "")
}

// Exports stream: the program stays below 200 MB for one million events (ten million with
// SLIVER_LONG=1), in all formats.
func TestMemory(t *testing.T) {
	testprog.Unraced(t, "one goroutine goes through big files")
	n := 1_000_000
	if os.Getenv("SLIVER_LONG") != "" {
		n = 10_000_000
	}
	if testing.Short() {
		n = 100_000
	}
	dir := t.TempDir()
	sliver := filepath.Join(dir, "sliver")
	if out, err := exec.Command("go", "build", "-o", sliver, "../cmd/sliver").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := []string{"a.pftrace", "a.pb.gz", "a.otlp", "a.nanoscope.txt", "a.firefox.json.gz", "a.speedscope.json", "a.chrome.json",
		"a.folded", "a.cpu.folded", "a.off.folded", "a.flame.svg", "a.svg", "a.png"}
	t.Run("wandering", func(t *testing.T) { memory(t, sliver, n, "", all) })
	// Formats that keep all stacks until the end, with stacks that all differ.
	t.Run("varied", func(t *testing.T) {
		memory(t, sliver, n, "yes", []string{"a.pftrace", "a.pb.gz", "a.otlp", "a.firefox.json.gz", "a.folded", "a.flame.svg"})
	})
}

func memory(t *testing.T, sliver string, n int, varied string, formats []string) {
	dir := t.TempDir()
	rec := filepath.Join(dir, "big.sliver")
	// A process inherits the peak memory of its parent, so another process makes the
	// recording.
	write := exec.Command(os.Args[0], "-test.run=^TestWriteBig$")
	write.Env = append(os.Environ(), "SLIVER_WRITE_BIG="+rec, "SLIVER_WRITE_EVENTS="+strconv.Itoa(n), "SLIVER_WRITE_VARIED="+varied)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range formats {
		cmd := exec.Command(sliver, "export", rec, "-o", filepath.Join(dir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
			continue
		}
		mb := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss / 1024
		t.Logf("%-20s %4d MB, %v", name, mb, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		if mb > 200 {
			t.Errorf("%s takes %d MB", name, mb)
		}
		os.Remove(filepath.Join(dir, name))
	}
}
