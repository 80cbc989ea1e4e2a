package agree

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/oneshot"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// named are stacks by thread or goroutine, each frame "function file:line", leaf first.
type named map[uint64][]string

// peers compares named stacks of a repeatedly stopped program with those of a tool that
// knows its runtime. It returns how many frames were compared and equal. Our stacks before
// and after the tool must be equal, otherwise the program ran. If the tool cannot read a
// moment (theirs returns nil and logs why), peers tries another moment later.
func peers(t *testing.T, p *testprog.Proc, times int, ours func(pid int) named, theirs func(pid int) named) {
	t.Helper()
	var s score
	said, silent := 0, 0
	for n := 0; n < times; n++ {
		from, until := worked(p.PID), time.Now().Add(time.Second/2)
		eventually(t, "work", func() bool { return worked(p.PID) >= from+5_000_000 || time.Now().After(until) }) // some do nothing
		thaw, ok := freeze(t, p.PID)
		if !ok {
			t.Fatal("the program ended")
		}
		before, their, after := ours(p.PID), theirs(p.PID), ours(p.PID)
		thaw()
		if their == nil {
			if silent++; silent > max(times/20, 2) {
				t.Fatalf("the tool failed %d times in %d", silent, n+silent)
			}
			n--
			continue
		}
		for id, our := range before {
			if !slices.Equal(our, after[id]) {
				s.moved++
				continue
			}
			n, eq := max(len(our), len(their[id])), equal(our, their[id])
			s.threads++
			s.frames, s.equal = s.frames+n, s.equal+eq
			if n != eq && said < 20 {
				said++
				t.Logf("%d of %d: ours\n\t%s\ntheirs\n\t%s", eq, n, strings.Join(our, "\n\t"), strings.Join(their[id], "\n\t"))
			}
		}
		for id, x := range their {
			if before[id] == nil {
				s.frames += len(x)
				t.Logf("we lack %d", id)
			}
		}
	}
	t.Logf("%d stacks, %d frames, %d equal (%.2f %%); %d moved", s.threads, s.frames, s.equal, 100*s.share(), s.moved)
	if s.threads < times || s.share() < least {
		t.Errorf("%d of %d frames are equal", s.equal, s.frames)
	}
}

// equal returns the length of the longest common subsequence.
func equal(a, b []string) int {
	ids := map[string]uint64{}
	number := func(fs []string) (out []uint64) {
		for _, f := range fs {
			if ids[f] == 0 {
				ids[f] = uint64(len(ids) + 1)
			}
			out = append(out, ids[f])
		}
		return out
	}
	n, _ := common(number(a), number(b))
	return n
}

func snapshot(t *testing.T, pid int, o oneshot.Options) *stacks.Snapshot {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	all, _, err := oneshot.Take([]*target.Process{p}, o)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func line(name, file string, line int) string {
	return fmt.Sprintf("%s %s:%d", name, filepath.Base(file), line)
}

// TestPySpy: stopped CPython threads have py-spy's Python frames, with their lines.
func TestPySpy(t *testing.T) {
	testprog.Need(t, "ptrace")
	spy := testprog.Tool(t, "py-spy")
	last := func(name string) string { return name[strings.LastIndexByte(name, '.')+1:] } // it reports no classes
	key := func(name string) (id uint64) {                                                // threads are named after what they do
		for _, c := range []byte(name) {
			id = id*31 + uint64(c)
		}
		return id
	}
	for i, v := range []string{"python3", "python3.8", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13"} {
		t.Run(v, func(t *testing.T) {
			if i > 0 && os.Getenv("SLIVER_LONG") == "" {
				t.Skip("the short form takes the system's version only")
			}
			p := testprog.Start(t, testprog.Tool(t, v), append([]string{filepath.Join(testprog.Root(t), "testdata", "targets", "python", "busy.py")},
				"recursion", "generators", "encoding", "matching", "database", "waiting", "objects")...)
			p.Ready()
			p.Go()
			p.Line("busy")
			peers(t, p, 2*rounds(), func(pid int) named {
				out := named{}
				for _, th := range snapshot(t, pid, oneshot.Options{}).Threads {
					name := th.OwnName
					if int(th.TID) == pid {
						name = "MainThread"
					}
					for _, f := range th.Frames {
						if f.Kind == stack.KindPython {
							id := key(name)
							out[id] = append(out[id], line(last(f.Func), f.File, f.Line))
						}
					}
				}
				return out
			}, func(pid int) named {
				b, errs, err := tool(spy, "dump", "--json", "--nonblocking", "--pid", strconv.Itoa(pid))
				if err != nil {
					t.Fatal(err)
				}
				var threads []struct {
					Name   string `json:"thread_name"` // it reports no TIDs up to 3.10
					Frames []struct {
						Name, Filename string
						Line           int
					}
				}
				if err := json.Unmarshal(b, &threads); err != nil {
					t.Logf("py-spy: %v: %s", err, errs) // it fails while an interpreter's state is being changed
					return nil
				}
				out := named{}
				for _, th := range threads {
					for _, f := range th.Frames {
						id := key(th.Name)
						out[id] = append(out[id], line(last(f.Name), f.Filename, f.Line))
					}
				}
				return out
			})
		})
	}
}

var (
	dlvRoutine = regexp.MustCompile(`^\*? *Goroutine (\d+) - `)
	dlvFrame   = regexp.MustCompile(`^\s+\d+\s+0x([0-9a-f]+) in (.+)$`)
	dlvPlace   = regexp.MustCompile(`^\s+at (.+):(\d+)$`)
	colour     = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

// dlvLine is one frame of a goroutine.
type dlvLine struct {
	pc          uint64
	name, place string
}

// plain returns the frames of a goroutine for comparison. For a parked goroutine, delve uses
// the address at which it will continue as the current one, which may be another line and
// outside an inlined function: for that frame only the function is compared. (runtime.Stack
// agrees with sliver.)
func plain(all []dlvLine, parked bool) (out []string) {
	for i, f := range all {
		switch {
		case !parked || f.pc != all[0].pc:
			out = append(out, f.place)
		case i+1 == len(all) || all[i+1].pc != f.pc:
			out = append(out, f.name)
		}
	}
	return out
}

// TestDelve: goroutines of a stopped program have delve's frames, with inlined ones and
// lines.
func TestDelve(t *testing.T) {
	testprog.Need(t, "ptrace")
	dlv := testprog.Tool(t, "dlv")
	commands := filepath.Join(t.TempDir(), "commands")
	if err := os.WriteFile(commands, []byte("goroutines -t 1000\nquit\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ids := testprog.Start(t, testprog.Build(t, "go/ids", "default"), "-log", filepath.Join(t.TempDir(), "log"), "-seconds", "600")
	ids.Ready()
	ids.Go()
	routines := testprog.Start(t, testprog.Build(t, "go/routines", "default"))
	routines.Line("{")
	for _, x := range []struct {
		name string
		p    *testprog.Proc
	}{{"ids", ids}, {"routines", routines}} {
		t.Run(x.name, func(t *testing.T) {
			peers(t, x.p, max(rounds()/2, 2), func(pid int) named {
				s := snapshot(t, pid, oneshot.Options{Routines: true})
				out := named{}
				for i := range s.Goroutines {
					g := &s.Goroutines[i]
					frames := g.Frames
					if th := s.Thread(g.Thread); th != nil {
						frames = th.Frames // including those of a system call, which runtime.Stack omits
					}
					var all []dlvLine
					for _, f := range frames {
						all = append(all, dlvLine{f.Addr, f.Func, line(f.Func, f.File, f.Line)})
					}
					out[g.ID] = plain(all, g.Thread == 0)
				}
				return out
			}, func(pid int) named {
				b, errs, err := tool(dlv, "attach", strconv.Itoa(pid), "--allow-non-terminal-interactive=true", "--init", commands)
				if err != nil {
					t.Fatal(err)
				}
				out, id, parked := named{}, uint64(0), false
				var all []dlvLine
				end := func() {
					if len(all) > 0 {
						out[id], all = plain(all, parked), nil
					}
				}
				for l := range strings.Lines(colour.ReplaceAllString(string(b), "")) {
					l = strings.TrimRight(strings.ReplaceAll(l, "(dlv) ", ""), "\n")
					if m := dlvRoutine.FindStringSubmatch(l); m != nil {
						end()
						id, _ = strconv.ParseUint(m[1], 10, 64)
						parked = !strings.Contains(l, " (thread ")
					} else if m := dlvFrame.FindStringSubmatch(l); m != nil {
						pc, _ := strconv.ParseUint(m[1], 16, 64)
						all = append(all, dlvLine{pc: pc, name: m[2]})
					} else if m := dlvPlace.FindStringSubmatch(l); m != nil && len(all) > 0 {
						n, _ := strconv.Atoi(m[2])
						x := &all[len(all)-1]
						x.place = line(x.name, m[1], n)
					}
				}
				end()
				if len(out) == 0 {
					t.Fatalf("delve says nothing: %s %s", b, errs)
				}
				return out
			})
		})
	}
}
