package testprog

//sliver:layer live unraced

import (
	"debug/elf"
	"debug/gosym"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ianlancetaylor/demangle"
)

// Times of the scripts in unscaled ms: see include/script.h.
const (
	long, apart = 30, 45
	unit        = 1 // scale of these tests: a sixth
)

// scriptHash is the hash of the three scripts of one second with seed 1.
const scriptHash = "998fc207490b54a8"

func scaled(ms int) time.Duration { return time.Duration(ms) * time.Millisecond * unit / 6 }

// runChain runs a chain program alone.
func runChain(t *testing.T, path string, args ...string) ([]Call, Summary) {
	t.Helper()
	p := StartChain(t, path, append(args, "--unit", fmt.Sprint(unit))...)
	return finishChain(p)
}

func finishChain(p *Proc) ([]Call, Summary) {
	p.t.Helper()
	p.Ready()
	p.Go()
	p.Done()
	calls, sum := p.Calls()
	p.Finish()
	return calls, sum
}

// check checks the guarantees of a report for the calls of one thread: they nest, at the
// depths that they name, and an activation calls the same function again only after a
// while. It returns how many were long.
func check(t *testing.T, calls []Call) (longs int) {
	t.Helper()
	type open struct {
		Call
		ended map[string]int64 // when each callee last ended
	}
	var stack []open
	for _, c := range calls {
		if c.Call > c.Begin || c.Begin > c.End || c.End > c.Return || c.Call == 0 {
			t.Fatalf("times out of order: %+v", c)
		}
		if c.Depth > len(stack) {
			t.Fatalf("depth %d below %d open calls: %+v", c.Depth, len(stack), c)
		}
		stack = stack[:c.Depth]
		if c.Depth == 0 {
			if c.Call != calls[0].Call {
				t.Fatalf("a second root: %+v", c)
			}
		} else {
			caller := stack[c.Depth-1]
			from, to := caller.Begin, caller.End
			if c.Func == "chain_on_signal" { // it may come before a function has noted its begin, and after it has noted its end
				from, to = caller.Call.Call, caller.Return
			}
			if same := c.Begin == caller.Begin && c.End == caller.End; !same && (c.Call < from || c.Return > to) {
				t.Fatalf("%+v\nis not within its caller\n%+v", c, caller.Call)
			}
			// The kernel determines when a signal is delivered, not the script.
			if last, ok := caller.ended[c.Func]; ok && c.Func != "chain_on_signal" && time.Duration(c.Begin-last) < scaled(apart) {
				t.Fatalf("%s is called again after %v: %+v", c.Func, time.Duration(c.Begin-last), c)
			}
			caller.ended[c.Func] = c.End
		}
		if c.Duration() >= scaled(long) {
			longs++
		}
		stack = append(stack, open{c, map[string]int64{}})
	}
	return longs
}

func perThread(calls []Call) map[string][]Call {
	m := map[string][]Call{}
	for _, c := range calls {
		m[c.Thread] = append(m[c.Thread], c)
	}
	return m
}

func TestChainsRunAlone(t *testing.T) {
	for _, program := range Programs() {
		if filepath.Base(program) != "chain" {
			continue
		}
		for _, variant := range Variants(program) {
			t.Run(program+"/"+variant, func(t *testing.T) {
				if quick := []string{"O2", "musl", "arm64", "release", "default"}; testing.Short() && !slices.Contains(quick, variant) {
					t.Skip("short: one variant of each kind is enough")
				}
				t.Parallel()
				path := Build(t, program, variant)
				args := []string{"--seconds", "1", "--threads", "2"}
				if strings.HasPrefix(variant, "arm64") && runtime.GOARCH != "arm64" {
					args = append([]string{"-L", "/usr/aarch64-linux-gnu", path}, args...)
					path = Tool(t, "qemu-arm64")
				}
				calls, sum := runChain(t, path, args...)
				threads := perThread(calls)
				for _, name := range []string{"worker-0", "worker-1"} {
					if len(threads[name]) < 10 {
						t.Errorf("%d calls of %s", len(threads[name]), name)
					}
				}
				if len(threads) != 3 {
					t.Errorf("%d threads", len(threads))
				}
				longs, tids := 0, map[int]bool{}
				for _, calls := range threads {
					longs += check(t, calls)
					tids[calls[0].TID] = true
					if d := calls[0].Duration(); d < time.Second {
						t.Errorf("the root of %s took %v", calls[0].Thread, d)
					}
				}
				if longs < 20 {
					t.Errorf("%d calls of %v or longer", longs, scaled(long))
				}
				if len(tids) != len(threads) {
					t.Errorf("TIDs %v", tids)
				}
				if sum.Script != scriptHash {
					t.Errorf("script %s, want %s: it is the same in every language", sum.Script, scriptHash)
				}
			})
		}
	}
}

// The names of a report are the demangled symbols of the program.
func TestNamesAreSymbols(t *testing.T) {
	for _, pv := range [][2]string{{"c/chain", "O0"}, {"c/chain", "static"}, {"cpp/chain", "O0"}, {"cpp/chain", "O2"},
		{"rust/chain", "debug"}, {"rust/chain", "release"}, {"rust/chain", "legacy"}, {"go/chain", "default"}, {"go/chain", "cgo"}} {
		t.Run(pv[0]+"/"+pv[1], func(t *testing.T) {
			t.Parallel()
			path := Build(t, pv[0], pv[1])
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			syms, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			names := map[string]bool{}
			for _, s := range syms {
				if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
					names[demangle.Filter(s.Name, demangle.NoParams)] = true
				}
			}
			calls, _ := runChain(t, path, "--seconds", "1")
			seen := map[string]bool{}
			for _, c := range calls {
				if !seen[c.Func] && !names[c.Func] {
					t.Errorf("no symbol %q", c.Func)
				}
				seen[c.Func] = true
			}
			if len(seen) < 9 {
				t.Errorf("only %v ran", seen)
			}
		})
	}
}

func TestInlineReportsInlinedFrames(t *testing.T) {
	calls, _ := runChain(t, Build(t, "c/chain", "inline"), "--seconds", "1")
	check(t, calls)
	inlined := 0
	for i, c := range calls {
		if c.Func == "chain_inlined" {
			inlined++
			if up := calls[i-1]; up.Func != "chain_alpha" && up.Func != "chain_epsilon" || up.Depth != c.Depth-1 || up.Begin != c.Begin {
				t.Errorf("%+v\nfollows\n%+v", c, up)
			}
		}
	}
	if inlined == 0 {
		t.Error("no inlined frame")
	}
}

func TestDeepRecursion(t *testing.T) {
	const deep, rounds = 10000, 3
	calls, _ := runChain(t, Build(t, "c/chain", "O2"), "--seconds", "1", "--deep", fmt.Sprint(deep))
	if len(calls) != deep*rounds+1 {
		t.Fatalf("%d calls", len(calls))
	}
	check(t, calls)
	for _, c := range calls[1:] {
		if c.Func != "chain_deep" || c.Duration() < time.Second/rounds {
			t.Fatalf("%+v took %v", c, c.Duration())
		}
	}
}

func TestLibraryIsLoadedInMidRun(t *testing.T) {
	for _, v := range []string{"O2", "stripped", "musl"} {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			calls, _ := runChain(t, Build(t, "c/chain", v), "--seconds", "1", "--library", Build(t, "c/chainlib", v))
			check(t, calls)
			lib := 0
			for _, c := range calls {
				if strings.HasPrefix(c.Func, "chainlib_") {
					lib++
				} else if lib > 0 && (c.Func == "chain_eta" || c.Func == "chain_theta") {
					t.Errorf("the library's functions do not stand in for %+v", c)
				}
			}
			if lib == 0 {
				t.Error("no call of the library's functions")
			}
		})
	}
}

func TestSignalHandlers(t *testing.T) {
	for _, v := range []string{"O2", "musl"} {
		for _, stack := range []string{"normal", "alt"} {
			t.Run(v+"/"+stack, func(t *testing.T) {
				t.Parallel()
				calls, sum := runChain(t, Build(t, "c/chain", v), "--seconds", "1", "--signals", stack, "--threads", "1")
				handlers, longs := 0, 0
				for _, calls := range perThread(calls) {
					check(t, calls)
					for i, c := range calls {
						switch c.Func {
						case "chain_on_signal":
							handlers++
						case "chain_handler":
							if up := calls[i-1]; up.Func != "chain_on_signal" || up.Depth != c.Depth-1 {
								t.Errorf("%+v\nfollows\n%+v", c, up)
							}
							if c.Duration() >= scaled(long) {
								longs++
							}
						}
					}
				}
				if handlers < 10 || longs < 3 {
					t.Errorf("%d handlers, %d of them long", handlers, longs)
				}
				if sum.Interrupted == 0 {
					t.Error("no signal met a blocking call")
				}
			})
		}
	}
}

func TestPlainGoroutinesHaveNoThread(t *testing.T) {
	calls, _ := runChain(t, Build(t, "go/chain", "default"), "--seconds", "1", "--plain", "2")
	threads := perThread(calls)
	for _, name := range []string{"goroutine-0", "goroutine-1"} {
		check(t, threads[name])
		if threads[name][0].TID != 0 {
			t.Errorf("%s has TID %d", name, threads[name][0].TID)
		}
	}
}

func TestStrippedTwins(t *testing.T) {
	for _, twin := range [][3]string{{"c/chain", "O2", "stripped"}, {"c/chain", "static", "static-stripped"},
		{"cpp/chain", "O2", "stripped"}, {"rust/chain", "release", "stripped"}, {"c/chain", "O2", "debuglink"}, {"c/chain", "O2", "minidebug"}} {
		t.Run(strings.Join(twin[:], "/"), func(t *testing.T) {
			t.Parallel()
			full, bare := openELF(t, Build(t, twin[0], twin[1])), openELF(t, Build(t, twin[0], twin[2]))
			a, b := full.Section(".text"), bare.Section(".text")
			if a.Addr != b.Addr || a.Size != b.Size {
				t.Fatalf("code at %#x+%#x and at %#x+%#x", a.Addr, a.Size, b.Addr, b.Size)
			}
			x, err := a.Data()
			if err != nil {
				t.Fatal(err)
			}
			if y, err := b.Data(); err != nil || !slices.Equal(x, y) {
				t.Fatalf("the code differs (%v)", err)
			}
			if _, err := bare.Symbols(); err == nil {
				t.Error("it has symbols")
			}
		})
	}
}

// The file of a variant has the variant's property.
func TestVariantsAreWhatTheySay(t *testing.T) {
	has := func(name string) func(*elf.File) bool {
		return func(f *elf.File) bool { return f.Section(name) != nil }
	}
	interp := func(f *elf.File) bool {
		return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	}
	pie := func(f *elf.File) bool { return f.Type == elf.ET_DYN }
	not := func(is func(*elf.File) bool) func(*elf.File) bool { return func(f *elf.File) bool { return !is(f) } }
	for _, c := range []struct {
		program, variant string
		is               []func(*elf.File) bool
	}{
		{"c/chain", "pie", []func(*elf.File) bool{pie, interp, has(".eh_frame_hdr")}},
		{"c/chain", "nopie", []func(*elf.File) bool{not(pie), interp}},
		{"c/chain", "static", []func(*elf.File) bool{not(pie), not(interp)}},
		{"c/chain", "static-pie", []func(*elf.File) bool{pie, not(interp)}},
		{"c/chain", "nohdr", []func(*elf.File) bool{not(has(".eh_frame_hdr")), has(".eh_frame")}},
		{"c/chain", "debugframe", []func(*elf.File) bool{has(".debug_frame")}},
		{"c/chain", "fp", []func(*elf.File) bool{not(has(".debug_frame")), has(".symtab")}},
		{"c/chain", "debuglink", []func(*elf.File) bool{has(".gnu_debuglink"), not(has(".symtab"))}},
		{"c/chain", "minidebug", []func(*elf.File) bool{has(".gnu_debugdata"), not(has(".symtab"))}},
		{"c/chain", "musl", []func(*elf.File) bool{interp}},
		{"c/chain", "musl-static", []func(*elf.File) bool{not(interp)}},
		{"c/chain", "arm64", []func(*elf.File) bool{func(f *elf.File) bool { return f.Machine == elf.EM_AARCH64 }}},
		{"go/chain", "default", []func(*elf.File) bool{has(".symtab"), not(interp)}},
		{"go/chain", "stripped", []func(*elf.File) bool{not(has(".symtab")), has(".gopclntab")}},
		{"go/chain", "pie", []func(*elf.File) bool{pie}},
		{"go/chain", "cgo", []func(*elf.File) bool{interp}},
	} {
		t.Run(c.program+"/"+c.variant, func(t *testing.T) {
			t.Parallel()
			f := openELF(t, Build(t, c.program, c.variant))
			for i, is := range c.is {
				if !is(f) {
					t.Errorf("property %d does not hold", i)
				}
			}
		})
	}
}

// The stripped Go program still has the table from which its names come.
func TestStrippedGoKeepsItsTable(t *testing.T) {
	f := openELF(t, Build(t, "go/chain", "stripped"))
	data, err := f.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, f.Section(".text").Addr))
	if err != nil {
		t.Fatal(err)
	}
	if table.LookupFunc("main.(*run).body") == nil {
		t.Error("main.(*run).body is not in the table")
	}
}

func openELF(t *testing.T, path string) *elf.File {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSmallProgramsRunAlone(t *testing.T) {
	decode := func(t *testing.T, p *Proc, v any) {
		t.Helper()
		p.Wait()
		out := p.Output()
		if len(out) == 0 {
			p.fail("printed nothing")
		}
		if err := json.Unmarshal([]byte(out[len(out)-1]), v); err != nil {
			p.fail("%v", err)
		}
	}
	all := []string{"O2", "static", "musl"}
	if testing.Short() { // TestChainsRunAlone has variants
		all = all[:1]
	}
	for _, v := range all {
		t.Run("spin/"+v, func(t *testing.T) {
			t.Parallel()
			p := Start(t, Build(t, "c/spin", v), "--seconds", "1", "--threads", "2", "--wait-go")
			p.Ready()
			p.Go()
			var got struct{ Loops, NS int64 }
			decode(t, p, &got)
			if got.Loops < 1000 || got.NS < int64(time.Second) {
				t.Errorf("%+v", got)
			}
		})
		t.Run("sleepers/"+v, func(t *testing.T) {
			t.Parallel()
			p := Start(t, Build(t, "c/sleepers", v), "--seconds", "1", "--sleepers", "18", "--running", "1", "--timed", "--wait-go")
			p.Ready()
			if tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID)); err != nil || len(tasks) != 19 {
				t.Errorf("%d threads (%v)", len(tasks), err)
			}
			p.Go()
			var got struct {
				Interrupted         map[string]int
				Early, Late, Rounds int
			}
			decode(t, p, &got)
			if len(got.Interrupted) != 9 || got.Early != 0 || got.Rounds == 0 {
				t.Errorf("%+v", got)
			}
			for call, n := range got.Interrupted {
				if n != 0 {
					t.Errorf("%s was interrupted %d times", call, n)
				}
			}
		})
		t.Run("churn/"+v, func(t *testing.T) {
			t.Parallel()
			p := Start(t, Build(t, "c/churn", v), "--seconds", "1")
			var got struct{ Threads int }
			decode(t, p, &got)
			if got.Threads < 50 {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("exec", func(t *testing.T) {
		t.Parallel()
		for _, thread := range [][]string{nil, {"--from-thread"}} {
			args := append(thread, "--times", "2", "--ms", "1", "--then", "/bin/echo", "--", "then", "this")
			p := Start(t, Build(t, "c/exec", "O2"), args...)
			if s := p.Wait(); !s.Success() {
				p.fail("%v", s)
			}
			want := []string{fmt.Sprintf(`{"pid":%d,"left":2}`, p.PID), fmt.Sprintf(`{"pid":%d,"left":1}`, p.PID),
				fmt.Sprintf(`{"pid":%d,"left":0}`, p.PID), "then this"}
			if got := p.Output(); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
	t.Run("exitcodes", func(t *testing.T) {
		t.Parallel()
		path := Build(t, "c/exitcodes", "O2")
		for _, args := range [][]string{{}, {"--exit-thread"}, {"--threads", "3"}} {
			s := Start(t, path, append(args, "--status", "7")...).Wait().Sys().(syscall.WaitStatus)
			if !s.Exited() || s.ExitStatus() != 7 {
				t.Errorf("%v: ended with %v", args, s)
			}
			s = Start(t, path, append(args, "--signal", "11")...).Wait().Sys().(syscall.WaitStatus)
			if !s.Signaled() || s.Signal() != syscall.SIGSEGV {
				t.Errorf("%v: ended with %v", args, s)
			}
		}
		p := Start(t, path, "--count", "--wait-go")
		p.Ready()
		if err := syscall.Kill(p.PID, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		p.Go()
		p.Go()
		if got := p.Line("{"); got != `{"signals":1,"continued":0,"interrupted":0}` {
			t.Errorf("counted %s", got)
		}
		p = Start(t, path, "--echo")
		p.Go()
		p.CloseInput()
		if s := p.Wait(); !s.Success() || len(p.Output()) != 1 {
			t.Errorf("%v, %q", s, p.Output())
		}
	})
}

// All callers that wait for the same program get it complete, and it is compiled once.
func TestBuildConcurrently(t *testing.T) {
	t.Setenv(CacheVar, t.TempDir())
	var wg sync.WaitGroup
	paths := make([]string, 8)
	for i := range paths {
		wg.Go(func() {
			paths[i] = Build(t, "c/exitcodes", "O0")
			if err := exec.Command(paths[i], "--status", "0").Run(); err != nil {
				t.Errorf("%s: %v", paths[i], err)
			}
		})
	}
	wg.Wait()
	for _, p := range paths[1:] {
		if p != paths[0] {
			t.Errorf("%s and %s", p, paths[0])
		}
	}
	entries, err := os.ReadDir(CacheDir(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 { // the program's folder and its lock
		t.Errorf("the cache holds %v", entries)
	}
}

func TestBuildFollowsTheSources(t *testing.T) {
	Need(t, "gcc")
	sources, cache := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(sources, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := func(r recipe) (string, error) { return r.build(cache, sources, "c/small", "O0") }
	write("include/n.h", "#define N 5\n")
	write("c/small.c", "#include \"n.h\"\nint main(void) { return N; }\n")
	first, err := build(gcc("-O0"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := build(gcc("-O0")); err != nil || again != first {
		t.Errorf("%s (%v), had %s", again, err, first)
	}
	if flags, err := build(gcc("-O1")); err != nil || flags == first {
		t.Errorf("other flags: %s (%v)", flags, err)
	}
	write("include/n.h", "#define N 6\n")
	second, err := build(gcc("-O0"))
	if err != nil || second == first {
		t.Fatalf("other sources: %s (%v)", second, err)
	}
	if s := Start(t, second).Wait(); s.ExitCode() != 6 {
		t.Errorf("ended with %v", s)
	}
	write("c/small.c", "int main(void) { return M; }\n")
	if _, err := build(gcc("-O0")); err == nil || !strings.Contains(err.Error(), "‘M’ undeclared") && !strings.Contains(err.Error(), "'M' undeclared") {
		t.Errorf("a source that does not compile: %v", err)
	}
}

// verdict records the result of a test.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper() {}
func (v *verdict) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestNeed(t *testing.T) {
	t.Setenv("PATH", "") // nothing is installed
	for _, c := range []struct{ require, skipped, failed string }{
		{"", "needs gdb: no gdb on this machine", ""},
		{"ptrace,node", "needs gdb: no gdb on this machine", ""},
		{"node,gdb", "", "gdb is required by SLIVER_REQUIRE: no gdb on this machine"},
		{"all", "", "gdb is required by SLIVER_REQUIRE: no gdb on this machine"},
	} {
		t.Setenv(RequireVar, c.require)
		v := &verdict{TB: t}
		var wg sync.WaitGroup
		wg.Go(func() { Need(v, "gdb") })
		wg.Wait()
		if v.skipped != c.skipped || v.failed != c.failed {
			t.Errorf("%q: skipped %q, failed %q", c.require, v.skipped, v.failed)
		}
	}
}

func TestReadReportRefusesATornOne(t *testing.T) {
	const row = `{"thread":"a","tid":1,"func":"f","depth":0,"call":1,"begin":2,"end":3,"return":4,"work":"spin"}`
	const end = `{"summary":{"calls":1,"interrupted":0,"script":"x"}}`
	if calls, sum, err := ReadReport(strings.NewReader(row + "\n" + end + "\n")); err != nil || len(calls) != 1 || sum.Script != "x" {
		t.Errorf("%v %v %v", calls, sum, err)
	}
	for _, text := range []string{"", row, row + "\n" + row + "\n" + end, row[:20], end + "\n" + row} {
		if _, _, err := ReadReport(strings.NewReader(text)); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}
