package oneshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

var rubies = []string{"ruby3.4", "ruby3.1", "ruby3.3"}

func startRuby(t *testing.T, version, program string, args ...string) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	return testprog.Start(t, testprog.Tool(t, version), append([]string{filepath.Join(testprog.Root(t), "lang", "ruby", "testdata", program)}, args...)...)
}

// TestRubyStacks: the functions of Ruby of each thread must be those of its own backtrace, in order, and no
// stack may have a gap.
func TestRubyStacks(t *testing.T) {
	for _, v := range versions(rubies) {
		t.Run(v, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "moment")
			p := startRuby(t, v, "shapes.rb", "1", "5", file)
			p.Line("parked 1")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, tid := map[int][]string{}, 0
			for line := range strings.Lines(string(b)) {
				kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				if kind == "T" {
					if tid, err = strconv.Atoi(rest); err != nil {
						t.Fatal(err)
					}
					continue
				}
				want[tid] = append(want[tid], rest[strings.LastIndexByte(rest, '\t')+1:])
			}
			until(t, Options{}, "all threads in the calls in which they wait", func(s []*stacks.Snapshot) bool {
				seen := 0
				for i := range s[0].Threads {
					th := &s[0].Threads[i]
					var got []string
					for _, f := range th.Frames {
						if f.Kind == stack.KindError && f.Func == stack.ReasonParent.String() {
							break // the functions that resumed the Fiber follow
						}
						if f.Kind == stack.KindError {
							t.Errorf("%s has a gap: %s", th.Name, f.Func)
						}
						if f.Kind == stack.KindRuby {
							got = append(got, f.Func)
						}
					}
					places := want[int(th.TID)]
					if int(th.TID) == p.PID && len(got) > 0 { // the one that parks, and its call
						if got = got[1:]; len(got) != len(places) {
							return false // it is still on the way to the call
						}
					}
					if !slices.Equal(got, places) {
						t.Errorf("%s:\n%s\nwant\n%s", th.Name, strings.Join(got, "\n"), strings.Join(places, "\n"))
					}
					if len(got) > 0 {
						seen++
					}
				}
				return seen == len(want)
			}, open1(t, p.PID))
		})
	}
}

// TestRubyFold: as with Python, the interpreter's own functions are counted and not shown, except one that is
// the leaf, and Natives shows them. They are those of libruby or of the program "ruby", so each version has them.
func TestRubyFold(t *testing.T) {
	for _, v := range versions(rubies) {
		t.Run(v, func(t *testing.T) {
			p := startRuby(t, v, "shapes.rb", "1", "5", filepath.Join(t.TempDir(), "moment"))
			p.Line("parked 1")
			until(t, Options{}, "a stack with functions of Ruby and of the interpreter", func(snaps []*stacks.Snapshot) bool {
				s := snaps[0]
				seen := 0
				for i := range s.Threads {
					th := &s.Threads[i]
					whole, natives := th.Frames, 0
					hide := stacks.Runtime(whole)
					managed := slices.ContainsFunc(whole, func(f stacks.Frame) bool { return f.Kind == stack.KindRuby })
					for k := range whole {
						name := filepath.Base(whole[k].Module)
						if !strings.HasPrefix(name, "libruby") && !strings.HasPrefix(name, "ruby") {
							continue
						}
						natives++
						if managed && k > 0 && !hide[k] {
							t.Errorf("%s: frame %d of %d, %s of %s, is shown", th.Name, k, len(whole), whole[k].Func, name)
						}
						if !managed && hide[k] {
							t.Errorf("%s: %s is hidden, and the thread runs no function of Ruby", th.Name, whole[k].Func)
						}
					}
					if managed && natives > 2 {
						seen++
					}
				}
				return seen > 0
			}, open1(t, p.PID))
		})
	}
}

// TestRubyLock: of threads that contend for the global VM lock, those that sleep for it must be reported,
// with another thread of Ruby as the holder.
func TestRubyLock(t *testing.T) {
	for _, v := range versions(rubies) {
		t.Run(v, func(t *testing.T) {
			p := startRuby(t, v, "load.rb", "3", "3600")
			p.Line("ready")
			until(t, Options{}, "two waits for the lock with its holder", func(s []*stacks.Snapshot) bool {
				held := 0
				for _, th := range s[0].Threads {
					if th.Wait == nil || th.Wait.Lock == nil || th.Wait.Lock.Kind != kind.LockGIL {
						continue
					}
					h := th.Wait.Lock.Holder
					if h.TID == th.TID {
						t.Errorf("TID %d waits for itself", th.TID)
					}
					if h.TID == 0 {
						continue
					}
					o := s[0].Thread(h.TID)
					if o == nil || h.By != event.KnownByRuntime || !slices.ContainsFunc(o.Frames, func(f stacks.Frame) bool { return f.Kind == stack.KindRuby }) {
						t.Errorf("the holder is %+v", h)
					}
					var b strings.Builder
					if err := s[0].WriteText(&b); err != nil || !strings.Contains(b.String(), fmt.Sprintf("waits for GIL at %#x\n    held by TID %d ", th.Wait.Lock.Addr, h.TID)) {
						t.Errorf("%v\n%s", err, b.String())
					}
					held++
				}
				return held >= 2
			}, open1(t, p.PID))
		})
	}
}

// TestRubyWaits: what the threads of a program wait for in Ruby's own calls must be what the program
// prints, with the thread that holds it, and two threads with two mutexes must be a deadlock.
func TestRubyWaits(t *testing.T) {
	for _, v := range versions(rubies) {
		t.Run(v, func(t *testing.T) {
			p := startRuby(t, v, "waits.rb")
			p.Line("ready")
			names, want := map[stack.TID]string{}, map[stack.TID]string{}
			for _, line := range p.Output() {
				f := strings.Fields(line)
				if len(f) != 6 || f[0] != "wait" {
					continue
				}
				tid, err := strconv.Atoi(f[2])
				if err != nil {
					t.Fatal(err)
				}
				names[stack.TID(tid)], want[stack.TID(tid)] = f[1], strings.Join(f[3:], " ")
			}
			if len(want) != 14 {
				t.Fatalf("%d of 14 threads: %q", len(want), p.Output())
			}
			wrong := ""
			defer func() {
				if t.Failed() {
					t.Log(wrong)
				}
			}()
			s := until(t, Options{}, "all waits as the program says", func(s []*stacks.Snapshot) bool {
				wrong = ""
				for tid, want := range want {
					th := s[0].Thread(tid)
					if th == nil {
						wrong += fmt.Sprintf("no thread %s\n", names[tid])
					} else if got := waitOf(th.Wait, names); got != want {
						wrong += fmt.Sprintf("%s: %s, not %s: %+v\n", names[tid], got, want, th.Wait)
					}
				}
				return wrong == "" && len(s[0].Deadlocks) == 1
			}, open1(t, p.PID))[0]
			var in []string
			for _, x := range s.Deadlocks[0].Threads {
				in = append(in, names[x.TID])
			}
			if slices.Sort(in); !slices.Equal(in, []string{"left", "right"}) {
				t.Errorf("a deadlock of %v", in)
			}
			for tid, name := range names {
				w := s.Thread(tid).Wait
				switch name {
				case "holder":
					if w.Timeout <= time.Hour || w.Timeout > 2*time.Hour || !strings.HasPrefix(w.Args, "Kernel#sleep, ") {
						t.Errorf("the sleep is %v: %s", w.Timeout, w.Args)
					}
				case "forever":
					if w.Timeout != 0 || w.Args != "Kernel#sleep" {
						t.Errorf("the sleep without end is %v: %s", w.Timeout, w.Args)
					}
				case "locker":
					if w.Lock.Impl != lock.Ruby || !strings.HasPrefix(w.Args, "Ruby mutex at 0x") {
						t.Errorf("%s of %q", w.Args, w.Lock.Impl)
					}
				}
			}
		})
	}
}
