package gopcln

import (
	"bufio"
	"debug/elf"
	"errors"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/unwind/rule"
)

// row is a row of .debug_frame: the CFA is register+off in [lo, hi).
type row struct {
	lo, hi uint64
	reg    string
	off    int64
	ra     string // "c-8", "u" (unchanged), …
}

// frameRows reads the file's .debug_frame with readelf.
func frameRows(t *testing.T, path, raColumn string) []row {
	t.Helper()
	if _, err := exec.LookPath("readelf"); err != nil {
		need(t, "readelf", "readelf is not installed")
	}
	cmd := exec.Command("readelf", "-W", "--debug-dump=frames-interp", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var rows []row
	end, column, inFDE, fresh := uint64(0), -1, false, false
	s := bufio.NewScanner(out)
	for s.Scan() {
		f := strings.Fields(s.Text())
		switch {
		case len(f) == 0:
			inFDE = false
		case strings.Contains(s.Text(), " FDE "):
			i := strings.Index(s.Text(), "pc=")
			_, hi, _ := strings.Cut(s.Text()[i:], "..")
			if end, err = strconv.ParseUint(hi, 16, 64); err != nil {
				t.Fatal(s.Text())
			}
			inFDE, fresh = true, true
		case f[0] == "LOC":
			column = -1
			for i, n := range f {
				if n == raColumn {
					column = i
				}
			}
		case inFDE && len(f) >= 2:
			lo, err := strconv.ParseUint(f[0], 16, 64)
			if err != nil {
				continue
			}
			i := strings.IndexAny(f[1], "+-")
			if i < 0 {
				continue
			}
			off, err := strconv.ParseInt(f[1][i:], 10, 64)
			if err != nil {
				t.Fatal(s.Text())
			}
			if !fresh {
				rows[len(rows)-1].hi = lo
			}
			fresh = false
			r := row{lo: lo, hi: end, reg: f[1][:i], off: off}
			if column >= 0 && column < len(f) {
				r.ra = f[column]
			}
			rows = append(rows, r)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestRulesAgreeWithDebugFrame compares the CFA and the return address at every PC of the program
// with .debug_frame, which the same linker wrote from the same tables. knownBetter lists functions
// for which this package is more exact.
func TestRulesAgreeWithDebugFrame(t *testing.T) {
	for _, c := range []struct {
		name, sp, column string
		build            target
	}{{"amd64", "rsp", "rip", plainBuild}, {"arm64", "sp", "ra", arm64Build}} {
		t.Run(c.name, func(t *testing.T) {
			path := build(t, c.build)
			tab, f := load(t, path)
			rows := frameRows(t, path, c.column)
			if uint64(len(rows)) < tab.nfunc {
				t.Fatalf("%d rows for %d functions", len(rows), tab.nfunc)
			}
			better := map[string]int{}
			rules, bytes, saved := 0, uint64(0), uint64(0)
			var r rule.Rule
			for _, row := range rows {
				for pc := row.lo; pc < row.hi; {
					err := tab.Rule(pc, &r)
					_, name, _ := tab.Func(pc)
					if errors.Is(err, rule.ErrNoRule) {
						// .debug_frame extends the last row over the padding.
						if !noRule[c.name+" "+name] && !padding(t, f, pc, row.hi) {
							t.Fatalf("%s %#x: %v", name, pc, err)
						}
						break
					}
					if err != nil || pc < r.Lo || pc >= r.Hi {
						t.Fatalf("%s %#x: %v, [%#x, %#x)", name, pc, err, r.Lo, r.Hi)
					}
					rules++
					same := int64(r.CFAOff) == row.off && int(r.CFAReg) == tab.arch.SP() && row.reg == c.sp
					if same && r.RA.Kind != rule.Undef {
						switch {
						case c.name == "amd64":
							same = r.RA == rule.Loc{Kind: rule.Offset, Off: -8}
						case row.ra == "" || row.ra == "s" || row.ra == "u":
							same = r.RA == rule.Loc{Kind: rule.Register, Off: rule.ARM64RA}
						default:
							same = row.ra == "c"+strconv.Itoa(int(r.RA.Off)) && r.RA.Kind == rule.Offset
						}
					}
					if !same {
						better[name]++
						if !knownBetter[c.name+" "+name] {
							t.Errorf("%s [%#x, %#x): R%d%+d RA %+v, .debug_frame %+v", name, r.Lo, r.Hi, r.CFAReg, r.CFAOff, r.RA, row)
						}
					}
					next := min(r.Hi, row.hi)
					bytes += next - pc
					for _, s := range r.Saved[:r.NSaved] {
						if int(s.Reg) == tab.arch.FP() {
							saved += next - pc
						}
					}
					pc = next
				}
			}
			var names []string
			for n := range better {
				names = append(names, n)
			}
			sort.Strings(names)
			t.Logf("%d rows, %d rules, %d bytes of code, frame pointer saved in %.1f %%; other than .debug_frame: %s",
				len(rows), rules, bytes, 100*float64(saved)/float64(bytes), strings.Join(names, " "))
		})
	}
}

// padding reports whether [lo, hi) holds no executed code.
func padding(t *testing.T, f *elf.File, lo, hi uint64) bool {
	text := f.Section(".text")
	b := make([]byte, hi-lo)
	if _, err := text.ReadAt(b, int64(lo-text.Addr)); err != nil {
		t.Fatal(err)
	}
	for _, c := range b {
		if c != 0xcc && c != 0 {
			return false
		}
	}
	return true
}

// knownBetter lists functions whose SP is not where the frame table says. They keep it in another
// register, or save LR where the table cannot express it.
var knownBetter = map[string]bool{
	"amd64 runtime.nanotime1": true, "amd64 time.now": true, "amd64 runtime.vgetrandom1": true, // R12, for the vDSO
	"amd64 runtime.callCgoSigaction": true, "amd64 runtime.callCgoMmap": true, "amd64 runtime.callCgoMunmap": true, // RBX
	"amd64 runtime.sigfwd":               true, // RBX
	"amd64 runtime.sigreturn__sigaction": true, // the kernel's frame
	"arm64 runtime.asyncPreempt":         true, // return address in R27
	"arm64 runtime.nanotime1":            true, // R20, for the vDSO
	"arm64 runtime.walltime":             true,
	"arm64 runtime.vgetrandom1":          true,
	"arm64 runtime.callCgoSigaction":     true, // LR stored before SP moves further down
	"arm64 runtime.callCgoMmap":          true,
	"arm64 runtime.callCgoMunmap":        true,
	"arm64 runtime.sigtramp":             true, // .debug_frame does not name LR
	"amd64 syscall.rawVforkSyscall":      true, // return address in R12
}

// noRule lists functions with places without a rule.
var noRule = map[string]bool{"arm64 runtime.debugCallV2": true}
