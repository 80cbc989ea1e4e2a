package target

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

func own(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("/proc/self/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseStat(t *testing.T) {
	const tail = " S 7 12 12 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 3 0 12345 1000 10 18446744073709551615 4198400 4202496 140737488347136 0 0 0"
	st, err := ParseStat([]byte("12 (a) (b\n c)" + tail + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Stat{PID: 12, Comm: "a) (b\n c", State: 'S', PPID: 7, Flags: 4194560, UTime: 50, STime: 60, Threads: 3, Ticks: 110, Children: 15, Start: 12345,
		StartCode: 4198400, EndCode: 4202496, StartStack: 140737488347136, Exit: -1}
	if st != want {
		t.Errorf("got %+v\nwant %+v", st, want)
	}
	for _, s := range []string{"", "12", "12 (a", "12 a)", ")(", "x (a)" + tail, "12 (a) S 1 2", "12 (a)" + strings.Replace(tail, "12345", "-", 1),
		"12 (a)" + strings.Replace(tail, " S ", " SS ", 1), "12 (a)" + strings.Replace(tail, "S 7", "S -7", 1), "12 (a)" + strings.Replace(tail, " 3 0 12345", " 4294967296 0 12345", 1),
		"12 (a)" + strings.Replace(tail, "12345", "123456789012345678901", 1), "12 (a)" + strings.TrimSuffix(tail, " 140737488347136 0 0 0")} {
		if _, err := ParseStat([]byte(s)); err == nil {
			t.Errorf("no error for %q", s)
		}
	}
	if st, err := ParseStat(own(t, "stat")); err != nil || st.PID != os.Getpid() || st.PPID != os.Getppid() || StateOf(st.State) == stack.StateUnknown {
		t.Errorf("self: %+v %v", st, err)
	}
	line := []byte("12 (a)" + tail)
	if n := testing.AllocsPerRun(100, func() { _, _ = ParseStat(line) }); n > 1 { // the name
		t.Errorf("%v allocations", n)
	}
	if c, ok := stateLetter([]byte("1 (x) y) D 2")); !ok || c != 'D' {
		t.Errorf("state %c %v", c, ok)
	}
}

// parseSwitches reads how often a thread left a CPU from the kernel's lines, and rejects
// everything that is not a number.
func TestParseSwitches(t *testing.T) {
	const good = "Name:\tvoluntary_ctxt_switches:\nCpus_allowed:\t3\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\nx86_Thread_features:\t\n"
	if n, err := parseSwitches([]byte(good)); n != 695 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, c := range [][2]string{{"545\n", "545"}, {"545\nx", "545 x"}, {"\t150", "\tx150"}, {"\t150", "\t"}, {"nonvol", "nvol"}, {"\nvol", "\nVol"},
		{"545", "5450000000000000000000"}} {
		b := strings.Replace(good, c[0], c[1], 1)
		if i := strings.Index(b, "x86"); c[0] == "545\n" {
			b = b[:i]
		}
		if n, err := parseSwitches([]byte(b)); err == nil {
			t.Errorf("%q: %d", b, n)
		}
	}
	b := own(t, "status")
	n, err := parseSwitches(b)
	if err != nil || n <= 0 {
		t.Errorf("own: %d, %v", n, err)
	}
	if got := testing.AllocsPerRun(10, func() { _, _ = parseSwitches(b) }); got > 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestParseStatus(t *testing.T) {
	s, err := ParseStatus([]byte("Name:\ta:b\nTgid:\t5\nTracerPid:\t9\nUid:\t1000\t0\t0\t0\nNSpid:\t5\t2\t1\nCapPrm:\t0000000000080000\nOdd line\n"))
	if err != nil || s.TGID != 5 || s.TracerPid != 9 || s.UID != 1000 || len(s.NSpid) != 3 || s.NSpid[2] != 1 || s.CapPrm != 1<<19 {
		t.Errorf("%+v %v", s, err)
	}
	for _, b := range []string{"", "Name: x\n", "Tgid:\n", "Tgid:\t-1\n", "Tgid:\t1\nUid:\tx\n", "Tgid:\t1\nCapPrm:\tzz\n", "Tgid:\t1\nNSpid:\t1\tx\n"} {
		if _, err := ParseStatus([]byte(b)); err == nil {
			t.Errorf("no error for %q", b)
		}
	}
	if s, err := ParseStatus(own(t, "status")); err != nil || s.TGID != os.Getpid() || s.UID != os.Getuid() {
		t.Errorf("self: %+v %v", s, err)
	}
}

func TestParseSchedstat(t *testing.T) {
	var c Counters
	if err := parseSchedstat([]byte("123 456 7\n"), &c); err != nil || c != (Counters{123, 456, 7}) {
		t.Errorf("%+v %v", c, err)
	}
	for _, s := range []string{"", "1 2", "1 2 x", "-1 2 3", "99999999999999999999 1 1", "18446744073709551615 1 1"} {
		if err := parseSchedstat([]byte(s), &c); err == nil {
			t.Errorf("no error for %q", s)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	var c stack.Call
	running, pc, sp, err := parseSyscall([]byte("202 0x7f01 0x80 0x0 0x0 0x0 0xffffffff 0x7ffd10 0x7f99\n"), &c)
	if err != nil || running || c.Nr != 202 || c.Args != [6]uint64{0x7f01, 0x80, 0, 0, 0, 0xffffffff} || sp != 0x7ffd10 || pc != 0x7f99 {
		t.Errorf("%v %#x %#x %+v %v", running, pc, sp, c, err)
	}
	running, pc, sp, err = parseSyscall([]byte("-1 0x10 0x20\n"), &c)
	if err != nil || running || c.Nr != -1 || sp != 0x10 || pc != 0x20 {
		t.Errorf("%v %#x %#x %+v %v", running, pc, sp, c, err)
	}
	if running, _, _, err = parseSyscall([]byte("running\n"), &c); err != nil || !running || c.Nr != -1 {
		t.Errorf("%v %+v %v", running, c, err)
	}
	for _, s := range []string{"", "x", "1", "1 0x", "1 0x1 0x2 0x3 0x4 0x5 0x6 0x7", "-1 0x1", "4294967296 0x1", "-1 0x11111111111111111 0x1", "-2 0x1 0x2"} {
		if _, _, _, err := parseSyscall([]byte(s), &c); err == nil || c.Nr != -1 {
			t.Errorf("%q: %v, call %d", s, err, c.Nr)
		}
	}
}

const someMaps = `00400000-0048c000 r-xp 00001000 fd:01 1234567 /usr/bin/a b
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
7f0000002000-7f0000003000 r--p 00000000 1234:56789 9 /tmp/line\012end (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestParseMaps(t *testing.T) {
	m, err := ParseMaps([]byte(someMaps))
	if err != nil || len(m) != 5 {
		t.Fatalf("%d mappings, %v", len(m), err)
	}
	want := []stack.Mapping{
		{Start: 0x400000, End: 0x48c000, Off: 0x1000, Dev: 0xfd01, Inode: 1234567, Exec: true, Path: "/usr/bin/a b"},
		{Start: 0x7f0000000000, End: 0x7f0000001000, Write: true},
		{Start: 0x7f0000002000, End: 0x7f0000003000, Dev: makedev(0x1234, 0x56789), Inode: 9, Path: "/tmp/line\nend", Deleted: true},
		{Start: 0x7ffd00000000, End: 0x7ffd00021000, Write: true, Path: "[stack]"},
		{Start: 0xffffffffff600000, End: 0xffffffffff601000, Exec: true, Path: "[vsyscall]"},
	}
	for i := range want {
		if m[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", m[i], want[i])
		}
	}
	for _, s := range []string{"x\n", "1-2 r-xp 0 0:0 0", "2-1 r-xp 0 0:0 0\n", "1-2 r-x 0 0:0 0\n", "1-2 r-xp 0 0:0\n", "1-2 r-xp 0 00 0\n",
		"11111111111111111-2 r-xp 0 0:0 0\n", "1-2 r-xp 0 111111111:0 0\n", "1-2 r-xp 0 0:0 0x\n", "\n"} {
		if m, err := ParseMaps([]byte(someMaps + s)); err == nil || len(m) != 5 || !strings.Contains(err.Error(), "offset") {
			t.Errorf("%q: %d mappings, %v", s, len(m), err)
		}
	}
}

func TestAppendTIDs(t *testing.T) {
	entry := func(name string) []byte {
		n := (19 + len(name) + 1 + 7) &^ 7
		b := make([]byte, n)
		binary.NativeEndian.PutUint16(b[16:], uint16(n))
		copy(b[19:], name)
		return b
	}
	b := append(append(append(entry("."), entry("12")...), entry("345678")...), entry("7x")...)
	if got := appendTIDs(nil, b); len(got) != 2 || got[0] != 12 || got[1] != 345678 {
		t.Errorf("%v", got)
	}
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte(someMaps))
	f.Add(own(f, "maps"))
	f.Add([]byte("1-2 r-xp 0 0:0 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMaps(b)
		if err == nil && len(m) != strings.Count(string(b), "\n") {
			t.Errorf("%d mappings of %d lines", len(m), strings.Count(string(b), "\n"))
		}
		for _, x := range m {
			if x.End < x.Start {
				t.Errorf("%+v", x)
			}
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add(own(f, "stat"))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := ParseStat(b)
		if c, ok := stateLetter(b); err == nil && ok && c != st.State {
			t.Errorf("states %c and %c", c, st.State)
		}
	})
}

func FuzzStatus(f *testing.F) {
	f.Add(own(f, "status"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseStatus(b); err == nil && (s.TGID < 0 || len(s.NSpid) > maxNS) {
			t.Errorf("%+v", s)
		}
	})
}

func FuzzSchedstat(f *testing.F) {
	f.Add([]byte("123 456 7\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Counters
		if parseSchedstat(b, &c) == nil && (c.CPU < 0 || c.Delay < 0) {
			t.Errorf("%+v", c)
		}
	})
}

func FuzzSyscall(f *testing.F) {
	f.Add([]byte("202 0x7f01 0x80 0x0 0x0 0x0 0xffffffff 0x7ffd10 0x7f99\n"))
	f.Add([]byte("-1 0x10 0x20\n"))
	f.Add([]byte("running\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c stack.Call
		if _, _, _, err := parseSyscall(b, &c); err != nil && c.Nr != -1 {
			t.Errorf("call %d with %v", c.Nr, err)
		}
		stopRisk(kindAMD64(c.Nr), &c, true)
		stopRisk(kindARM64(c.Nr), &c, false)
	})
}

func FuzzDirectory(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, tid := range appendTIDs(nil, b) {
			if tid < 0 {
				t.Errorf("%d", tid)
			}
		}
	})
}

func TestIdleCPU(t *testing.T) {
	for _, c := range []struct {
		stat      string
		idle, all uint64
	}{
		{"cpu  10 2 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n", 450, 513},
		{"cpu 1 2 3 4 5\n", 9, 15},
		{"cpu 1 2 3 4\n", 0, 0},
		{"cpu 1 2 x 4 5\n", 0, 0},
		{"intr 1 2 3 4 5\n", 0, 0},
		{"", 0, 0},
	} {
		if idle, all := idleOf(c.stat); idle != c.idle || all != c.all {
			t.Errorf("%q: %d of %d, want %d of %d", c.stat, idle, all, c.idle, c.all)
		}
	}
	if idle, all := IdleCPU(); all == 0 || idle > all {
		t.Errorf("this machine: %d of %d", idle, all)
	}
}
