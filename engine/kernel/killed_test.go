package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/testprog"
)

// killedHelper says to the process that is killed which programs it loads.
const killedHelper = "SLIVER_KILLED_HELPER"

// TestSchedKilled: a kill -9 of the recording program leaves no program of context switches in the kernel.
func TestSchedKilled(t *testing.T) {
	testKilled(t, 2, func(pid int) (io.Closer, error) { return OpenSched(pid, SchedOptions{}) })
}

// TestIOKilled: nor of I/O.
func TestIOKilled(t *testing.T) {
	testKilled(t, 2, func(pid int) (io.Closer, error) {
		e, err := OpenIO(pid, IOOptions{Slow: time.Millisecond, Ring: 1 << 20})
		if err != nil {
			return nil, err
		}
		return e, e.Start()
	})
}

// TestAsidesKilled: nor those that clocks run.
func TestAsidesKilled(t *testing.T) {
	for _, lists := range []bool{false, true} {
		t.Run(fmt.Sprint(lists), func(t *testing.T) {
			testKilled(t, 1, func(pid int) (io.Closer, error) {
				e, err := OpenAsides(lists)
				if err != nil {
					return nil, err
				}
				return e, runAside(e, pid)
			})
		})
	}
}

// runAside makes a clock of a thread run the program.
func runAside(e *Asides, tid int) error {
	attr := unix.PerfEventAttr{Size: unix.PERF_ATTR_SIZE_VER1, Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: 1_000_000,
		Sample_type: unix.PERF_SAMPLE_TID, Bits: unix.PerfBitExcludeKernel}
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open a clock: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, e.Program()); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil // until the process ends
}

// testKilled kills a process that has programs loaded for this one, and waits until none of them is.
func testKilled(t *testing.T, least int, open func(pid int) (io.Closer, error)) {
	t.Helper()
	if os.Getenv(killedHelper) != "" {
		e, err := open(os.Getppid())
		if err != nil {
			os.Stdout.WriteString("error " + strings.ReplaceAll(err.Error(), "\n", " ") + "\n")
			t.Fatal(err)
		}
		defer e.Close()
		os.Stdout.WriteString("open\n")
		testprog.UntilKilled()
	}
	if err := errors.Join(rights(), initialSpace()); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	c.Env = append(os.Environ(), killedHelper+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	b := make([]byte, 5)
	if _, err := io.ReadFull(out, b); err != nil || string(b) != "open\n" {
		rest, _ := io.ReadAll(out)
		t.Fatalf("%q, %v", string(b)+string(rest), err)
	}
	ids := programsOf(t, c.Process.Pid)
	if len(ids) < least {
		t.Fatalf("%d programs are there while it runs", len(ids))
	}
	loaded := func(id uint32) bool {
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if err == nil {
			_ = p.Close()
		}
		return err == nil
	}
	if slices.ContainsFunc(ids, func(id uint32) bool { return !loaded(id) }) {
		t.Fatalf("of the programs %v some cannot be found", ids)
	}
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	for limit := time.Now().Add(time.Minute); slices.ContainsFunc(ids, loaded); { // the kernel removes them later
		if time.Now().After(limit) {
			t.Fatal("programs are still loaded")
		}
		runtime.Gosched()
	}
}

// programsOf returns the numbers of the BPF programs that a process has open.
func programsOf(t *testing.T, pid int) (ids []uint32) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fdinfo")
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		b, err := os.ReadFile(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			if id, ok := strings.CutPrefix(line, "prog_id:\t"); ok {
				n, err := strconv.ParseUint(id, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, uint32(n))
			}
		}
	}
	return ids
}
