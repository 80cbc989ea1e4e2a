package exporttest

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Golden compares got with testdata/name of the test's package.
func Golden(tb testing.TB, name, got string) {
	tb.Helper()
	p := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(p)
	if err != nil {
		tb.Fatal(err)
	}
	if got != string(want) {
		tb.Errorf("%s differs (-update rewrites it):\n%s", p, diffLines(string(want), got))
	}
}

func diffLines(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	for i := range max(len(a), len(b)) {
		x, y := "", ""
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			out.WriteString("- " + x + "\n+ " + y + "\n")
		}
	}
	return out.String()
}

// Match compares the calls that a reader found with those of the replay, in any order.
func Match(tb testing.TB, want, got []Call) {
	tb.Helper()
	if len(want) == 0 {
		tb.Fatal("nothing to compare with")
	}
	less := func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Thread, b.Thread), cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Depth, b.Depth),
			cmp.Compare(a.End, b.End), cmp.Compare(a.Name, b.Name))
	}
	want, got = slices.Clone(want), slices.Clone(got)
	slices.SortFunc(want, less)
	slices.SortFunc(got, less)
	bad := 0
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			tb.Errorf("too many: %v", got[i])
		case i >= len(got):
			tb.Errorf("missing: %v", want[i])
		case want[i] != got[i]:
			tb.Errorf("replay %v\nreader %v", want[i], got[i])
		default:
			continue
		}
		if bad++; bad == 10 {
			tb.Fatalf("and more; %d calls in the replay, %d in the reader", len(want), len(got))
		}
	}
}

// HostileNames are names that have broken readers of one format or another.
var HostileNames = []string{
	"plain", "with space", "tab\there", "line\nbreak", "cr\rhere", "nul\x00byte", "\x1b[31mred\x1b[0m", "del\x7f",
	"<script>alert(1)</script>", "</script", "<!--", "<img src=x onerror=alert(1)>", "a&b&lt;c", `quo"te'd`, "back\\slash", "`tick`",
	"=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "a;b;c", "a,b", "POP", "+POP", "#meta", "name#meta", "constructor", "__proto__",
	"toString", "hasOwnProperty", "\xff\xfe\xfd", "half\xc3", "ünïcödé 漢字 😀", "\u202egnp.exe", "\u2028sep\u2029", "\ufeffbom",
	"std::vector<int, std::allocator<int> >::operator[](unsigned long) const", "operator<<", "operator<", "a<b", "[bracket]", "{brace}",
	"(anonymous namespace)::f()", "%s%n%x", "${jndi:ldap://x}", "..", "../../etc/passwd", "0", "null", "undefined", "NaN", "\u0085next",
}

// Hostile returns a recording whose functions, files, threads, modules and command have
// hostile names, one of them a megabyte long.
func Hostile(tb testing.TB) *trace.Recording {
	b := New(tb)
	names := append(slices.Clone(HostileNames), strings.Repeat("long ", 1<<20/5))
	b.Proc.Cmdline = names
	b.Proc.Comm = "<b>\x00=cmd\n"
	b.Proc.Exe = "/opt/\"app\"\n<x>"
	b.Proc.Host = "\xffhost<i>"
	t := b.Thread(1234, "ma\"in\n<u>\xff")
	for i, n := range names {
		t.LookAt(Look{At: int64(i) * 10 * Ms, CPU: int64(i) * 10 * Ms, State: stack.StateRunning}, "main:1", n+":2", names[(i*7+3)%len(names)]+":3")
	}
	u := b.Thread(1235, strings.Repeat("t", 1<<16))
	u.Look(Look{At: 0, Stack: "main:1"})
	u.Look(Look{At: 20 * Ms, Stack: "main:1"})
	return b.Finish(int64(len(names)) * 10 * Ms)
}

// Raw returns a recording of one thread with the events encoded in data, 10 bytes per
// event, valid or not.
func Raw(tb testing.TB, data []byte) *trace.Recording {
	b := New(tb)
	t := b.Thread(1234, "fuzz")
	b.frame("a:1", 0, false)
	var es []event.Event
	at := Start
	for len(data) >= 10 && len(es) < 1<<12 {
		var v uint64
		for _, c := range data[2:10] {
			v = v<<8 | uint64(c)
		}
		switch data[1] & 3 {
		case 0:
			at += stack.Time(data[0]) * Ms
		case 1:
			at -= stack.Time(data[0]) * Ms
		case 2:
			at = stack.Time(v)
		}
		if len(es) == 0 { // the reader rejects a chunk that begins before 0
			at = max(at, 0)
		}
		k := event.Kind(v >> 56 & 31)
		p := v & (1<<56 - 1)
		switch k {
		case event.Sync:
			p &= 7
		case event.Enter, event.Move:
			if data[1]&4 != 0 {
				p = modules[0].start + p&0xfff
			}
		}
		es = append(es, event.Make(at, k, p))
		data = data[10:]
	}
	t.Raw(es...)
	return b.Finish(100 * Ms)
}

// FuzzSeeds adds seed recordings: sampler output and random data.
func FuzzSeeds(f *testing.F) {
	f.Helper()
	one := func(dt, how byte, k event.Kind, p uint64) []byte {
		v := uint64(k)<<56 | p
		out := []byte{dt, how}
		for i := 56; i >= 0; i -= 8 {
			out = append(out, byte(v>>i))
		}
		return out
	}
	good := bytes.Join([][]byte{
		one(0, 4, event.Sync, 1), one(0, 4, event.Enter, 0x104), one(10, 4, event.Enter, 0x204), one(10, 4, event.Seen, event.SeenOf(0, 3, 5*Ms)),
		one(0, 4, event.State, event.StateOf(stack.StateBlocked, 7)), one(10, 4, event.Move, 0x208), one(10, 4, event.Exit, 0),
		one(1, 4, event.Gap, event.GapOf(stack.WhyLost, 0)), one(9, 4, event.Sync, 1), one(0, 5, event.Enter, 0x300), one(5, 0, event.Pause, 40_000),
	}, nil)
	f.Add(good)
	f.Add(good[:45])
	f.Add(bytes.Repeat([]byte{200, 1, 1, 255, 3}, 40))
	f.Add(append(one(0, 2, event.Seen, 1<<55), one(0, 0, event.Sync, 0)...))
	f.Add(bytes.Join([][]byte{good, one(0, 2, event.Enter, 1<<62), one(0, 2, event.Exit, 0), good}, nil))
}
