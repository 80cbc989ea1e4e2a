package oneshot

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/wait/kind"
)

// jstacked is a thread in jstack's output.
type jstacked struct {
	frames string // in the form of javaOf
	wants  string // class of the object that it waits to enter, waits in or parked for; "": none, or unknown to jstack
	mute   bool   // unknown to jstack
}

var (
	jstackFrame = regexp.MustCompile(`^\tat (\S+?)\((?:.*?:(\d+)|.*)\)$`)
	jstackWants = regexp.MustCompile(`^\t- (?:waiting to lock|waiting on|parking to wait for ) ?<(?:0x[0-9a-f]+> \(a (.+)\)|no object reference available>)$`)
	jstackName  = regexp.MustCompile(`^"(.*)" #`)
)

// jstack runs the virtual machine's own tool.
func jstack(t *testing.T, java string, pid int) map[string]*jstacked {
	t.Helper()
	out, err := exec.Command(filepath.Join(filepath.Dir(java), "jstack"), strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		t.Fatalf("jstack: %v\n%s", err, out)
	}
	all := map[string]*jstacked{}
	var now *jstacked
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if m := jstackName.FindStringSubmatch(line); m != nil {
			now = &jstacked{}
			all[m[1]] = now
		}
		if now == nil {
			continue
		}
		if m := jstackFrame.FindStringSubmatch(line); m != nil && !strings.Contains(m[1], "LambdaForm$") && !strings.Contains(m[1], "$Holder.") {
			if m[2] == "" {
				m[2] = "-1"
			}
			now.frames += m[1] + ":" + m[2] + ","
		}
		if m := jstackWants.FindStringSubmatch(line); m != nil {
			now.wants, now.mute = m[1], m[1] == ""
		}
	}
	return all
}

// TestJavaJstack: of 200 threads that block, each frame, its line, and the class of the
// object that it waits for must match jstack.
func TestJavaJstack(t *testing.T) {
	versions := []string{"java17"}
	ways := [][]string{nil}
	if os.Getenv("SLIVER_LONG") != "" {
		versions, ways = javas, append(ways, []string{"-Xint"}, []string{"-Xcomp"})
	}
	const threads = 200
	for _, v := range versions {
		for _, flags := range ways {
			t.Run(v+strings.Join(flags, ""), func(t *testing.T) {
				p := startJavaWith(t, v, "Crowd", "parked", flags, strconv.Itoa(threads))
				s := take(t, Options{}, open1(t, p.PID))[0]
				want := jstack(t, testprog.Tool(t, v), p.PID)
				seen, frames := 0, 0
				for i := range s.Threads {
					th := &s.Threads[i]
					w := want[th.OwnName]
					if w == nil || !strings.HasPrefix(th.OwnName, "crowd-") {
						continue
					}
					seen++
					frames += strings.Count(w.frames, ",")
					if got := javaOf(th.Frames); got != w.frames {
						t.Errorf("%s:\n%s\nnot\n%s", th.OwnName, strings.ReplaceAll(got, ",", "\n"), strings.ReplaceAll(w.frames, ",", "\n"))
					}
					got := ""
					if th.Wait != nil && th.Wait.Lock != nil && th.Wait.Lock.Impl == "hotspot" {
						got = th.Wait.Lock.Type
					}
					if got != w.wants && !w.mute {
						t.Errorf("%s waits for %q, not %q", th.OwnName, got, w.wants)
					}
					if l := th.Wait.Lock; l != nil && (l.Kind == kind.LockMonitor || l.Kind == kind.LockSynchronizer) && l.Holder.TID == 0 {
						t.Errorf("%s: nobody has the %s", th.OwnName, l)
					}
				}
				if seen != threads {
					t.Errorf("%d threads of %d", seen, threads)
				}
				t.Logf("%d threads, %d frames", seen, frames)
			})
		}
	}
}
