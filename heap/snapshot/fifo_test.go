package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// leftovers lists what a dump through FIFOs has left in /tmp.
func leftovers(t *testing.T, pid int) []string {
	t.Helper()
	left, err := filepath.Glob(fmt.Sprintf("/tmp/.sliver-%d-*", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	attach, _ := filepath.Glob(fmt.Sprintf("/tmp/.attach_pid%d", pid))
	return append(left, attach...)
}

// A dump through FIFOs is whole, on all versions and for a collector that a copy cannot hold.
func TestStream(t *testing.T) {
	for _, c := range [][]string{{"17", "-XX:+UseG1GC"}, {"21", "-XX:+UseSerialGC"}, {"25", "-XX:+UseG1GC"}, {"25", "-XX:+UseZGC"}} {
		t.Run(strings.Join(c, ""), func(t *testing.T) {
			if testing.Short() && c[0] != "21" {
				t.Skip("the short form takes one of the versions only")
			}
			proc := java(t, c[0], "map,list,duplicates", c[1], "-XX:-UsePerfData")
			p := open(t, proc.PID)
			path := filepath.Join(folder(t), "x.hprof")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b := bufio.NewWriterSize(f, 1<<20)
			s, err := Stream(t.Context(), p, b, false)
			if err = errors.Join(err, b.Flush()); err != nil {
				t.Fatal(err)
			}
			d := load(t, path)
			listeners := 0
			for _, o := range d.objects {
				if d.classes[o.class] == "HeapLeaks$Listener" {
					listeners++
				}
			}
			if listeners != 8000 || len(d.objects) < 40_000 || len(d.roots) < 4 {
				t.Errorf("%d listeners, %d objects, %d kinds of roots", listeners, len(d.objects), len(d.roots))
			}
			if left := leftovers(t, proc.PID); len(left) > 0 {
				t.Errorf("left in /tmp: %v", left)
			}
			t.Logf("%d bytes, stood for %v", s.Bytes, s.Stood)
			if c[1] != "-XX:+UseZGC" {
				return
			}
			var u *hotspot.UnsupportedError
			if _, err := Take(t.Context(), p, patient); !errors.As(err, &u) || !strings.Contains(err.Error(), "ZGC") {
				t.Errorf("a copy of ZGC's heap: %v", err)
			}
		})
	}
}

// stuck is a writer that takes no more after a while, until the test ends.
type stuck struct {
	n   int
	end <-chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	if s.n += len(b); s.n > 1<<20 {
		<-s.end
	}
	return len(b), nil
}

// A reader that takes nothing does not keep the virtual machine standing: it goes on when the whole dump is in memory, and
// a dump for which the memory is not enough is given up.
func TestStreamStalls(t *testing.T) {
	testprog.Whole(t, "a reader that waits for its time")
	for _, version := range []string{"17", "25"} {
		t.Run(version, func(t *testing.T) {
			if testing.Short() && version != "25" {
				t.Skip("the short form takes one of the versions only")
			}
			proc := java(t, version, "map,list", "-XX:-UsePerfData")
			p := open(t, proc.PID)
			if _, err := stream(t.Context(), p, &stuck{end: t.Context().Done()}, false, 1<<20); !errors.Is(err, ErrStalled) {
				t.Errorf("a reader that takes nothing: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := Stream(ctx, p, &stuck{end: t.Context().Done()}, false)
				ended <- err
			}()
			// The answer to a command comes after the dump.
			if out := jcmd(t, proc.PID, "GC.class_histogram"); !strings.Contains(out, "java.lang.String") {
				t.Errorf("the virtual machine does not answer: %s", out)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("a dump whose reader takes nothing, canceled: %v", err)
			}
			if out := jcmd(t, proc.PID, "Thread.print"); !strings.Contains(out, `"main"`) {
				t.Errorf("the virtual machine does not answer: %s", out)
			}
			if left := leftovers(t, proc.PID); len(left) > 0 {
				t.Errorf("left in /tmp: %v", left)
			}
		})
	}
}

// A virtual machine that does not listen is left alone. With -Xrs, which leaves SIGQUIT to the program, it listens from
// its start, and needs no signal.
func TestStreamRefused(t *testing.T) {
	for flag, refused := range map[string]bool{"-XX:+DisableAttachMechanism": true, "-Xrs": false} {
		t.Run(flag, func(t *testing.T) {
			proc := java(t, "17", "map", flag)
			p := open(t, proc.PID)
			s, err := Stream(t.Context(), p, io.Discard, false)
			if refused != errors.Is(err, target.ErrNoAttach) || !refused && (err != nil || s.Bytes == 0) {
				t.Errorf("a dump of %d bytes, %v", s.Bytes, err)
			}
			j := take(t, p) // it lives, and can be copied
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	testprog.Need(t, "ptrace")
}
