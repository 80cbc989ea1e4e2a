package calls

import (
	"bufio"
	"debug/elf"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// Lengths agree with those of binutils for all code of a few large files, among them hand-written
// vector code.
func TestLengthsAgreeWithObjdump(t *testing.T) {
	objdump := testprog.Tool(t, "objdump")
	tried := 0
	for _, file := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"} {
		f, err := elf.Open(file)
		if err != nil {
			continue
		}
		s := f.Section(".text")
		if s == nil {
			f.Close()
			continue
		}
		code, err := s.Data()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		tried++
		cmd := exec.Command(objdump, "-d", "-w", "-j", ".text", "--insn-width=16", file)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(out)
		sc.Buffer(nil, 1<<20)
		n, bad := 0, 0
		for sc.Scan() {
			addr, rest, ok := strings.Cut(strings.TrimSpace(sc.Text()), ":\t")
			if !ok {
				continue
			}
			bytes, text, ok := strings.Cut(rest, "\t")
			if !ok || strings.Contains(text, "(bad)") || strings.HasPrefix(text, ".byte") {
				continue
			}
			at, err := strconv.ParseUint(addr, 16, 64)
			if err != nil || at < s.Addr || at-s.Addr >= uint64(len(code)) {
				continue
			}
			want := len(strings.Fields(bytes))
			if strings.Contains(text, "rex") || strings.HasPrefix(bytes, "9b ") || strings.HasPrefix(text, "jmpw") || strings.Contains(text, "%db") {
				continue // tables between functions, and two instructions that objdump joins
			}
			n++
			x, err := decode(code[at-s.Addr:])
			if err != nil || x.size != want {
				if bad++; bad <= 10 {
					t.Errorf("%s: %#x: %s %s: size %d (%v), want %d", file, at, bytes, text, x.size, err, want)
				}
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if bad > 0 {
			t.Errorf("%s: %d of %d differ", file, bad, n)
		}
		if n < 100_000 {
			t.Errorf("%s: only %d instructions compared", file, n)
		}
	}
	if tried == 0 {
		testprog.Lack(t, "objdump", "no library to compare")
	}
}

func scanOf(t *testing.T, goFunc bool, code string, more ...Part) Code {
	t.Helper()
	c, err := Scan(AMD64, append([]Part{{0x1000, unhex(t, code)}}, more...), goFunc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func unhex(t *testing.T, s string) (b []byte) {
	t.Helper()
	for _, w := range strings.Fields(s) {
		v, err := strconv.ParseUint(w, 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, byte(v))
	}
	return b
}

func TestScan(t *testing.T) {
	for _, c := range []struct {
		name, code string
		goFunc     bool
		more       []Part
		want       Code
	}{
		{name: "push and ret", code: "55 5d c3", want: Code{Entry: 0x1000, Cheap: true, Exits: []Exit{{0x1002, Return}}}},
		{name: "behind endbr64", code: "f3 0f 1e fa 55 5d c3", want: Code{Entry: 0x1004, Cheap: true, Exits: []Exit{{0x1006, Return}}}},
		// The push is a loop's head: a probe there would count rounds.
		{name: "loop to the push", code: "f3 0f 1e fa 55 75 fd c3", want: Code{Entry: 0x1000, Exits: []Exit{{0x1007, Return}}}},
		{name: "loop to the start", code: "85 ff 75 fc c3", want: Code{Entry: 0x1000, Exits: []Exit{{0x1004, Return}}, Loops: true}},
		{name: "two returns, one with rep", code: "85 ff 74 01 c3 f3 c3", want: Code{Entry: 0x1000, Exits: []Exit{{0x1004, Return}, {0x1005, Return}}}},
		{name: "tail call", code: "31 c0 e9 00 10 00 00", want: Code{Entry: 0x1000, Exits: []Exit{{0x1002, Jump}}}},
		{name: "tail call by pointer", code: "48 8b 07 ff 60 18", want: Code{Entry: 0x1000, Exits: []Exit{{0x1003, Jump}}}},
		{name: "tail call by GOT", code: "ff 25 00 10 00 00", want: Code{Entry: 0x1000, Exits: []Exit{{0x1000, Jump}}}},
		{name: "switch, position independent", code: "48 63 04 87 48 01 f8 ff e0 c3", want: Code{Entry: 0x1000, Exits: []Exit{{0x1009, Return}}}},
		{name: "switch, with notrack", code: "3e ff e0 c3", want: Code{Entry: 0x1000, Exits: []Exit{{0x1003, Return}}}},
		{name: "switch, absolute table", code: "ff 24 c5 00 20 40 00 c3", want: Code{Entry: 0x1000, Exits: []Exit{{0x1007, Return}}}},
		{name: "conditional jump out", code: "85 ff 0f 84 00 20 00 00 c3", want: Code{Entry: 0x1000, Exits: []Exit{{0x1008, Return}}, Blind: 1}},
		{name: "cold part", code: "85 ff 0f 84 f8 0f 00 00 c3", more: []Part{{0x2000, []byte{0x5d, 0xc3}}},
			want: Code{Entry: 0x1000, Exits: []Exit{{0x1008, Return}, {0x2001, Return}}}},
		// cmp rsp,[r14+16]; jbe; push rbp; pop rbp; ret; call morestack; jmp start
		{name: "Go", code: "49 3b 66 10 76 03 55 5d c3 e8 00 00 00 00 eb f0", goFunc: true,
			want: Code{Entry: 0x1006, Cheap: true, Exits: []Exit{{0x1008, Return}}}},
		// lea r12,[rsp-0x80]; cmp r12,[r14+16]; jbe …
		{name: "Go, large frame", code: "4c 8d 64 24 80 4d 3b 66 10 76 05 48 83 ec 08 c3 e8 00 00 00 00", goFunc: true,
			want: Code{Entry: 0x100b, Exits: []Exit{{0x100f, Return}}}},
		{name: "Go, nosplit", code: "55 5d c3", goFunc: true, want: Code{Entry: 0x1000, Cheap: true, Exits: []Exit{{0x1002, Return}}}},
	} {
		got := scanOf(t, c.goFunc, c.code, c.more...)
		if got.Entry != c.want.Entry || got.Cheap != c.want.Cheap || got.Blind != c.want.Blind || got.Loops != c.want.Loops ||
			len(got.Exits) != len(c.want.Exits) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			continue
		}
		for i := range got.Exits {
			if got.Exits[i] != c.want.Exits[i] {
				t.Errorf("%s: exit %d: %+v, want %+v", c.name, i, got.Exits[i], c.want.Exits[i])
			}
		}
	}
}

func TestScanARM64(t *testing.T) {
	le := func(ws ...uint32) (b []byte) {
		for _, w := range ws {
			b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
		}
		return b
	}
	// cbz x0,+8; ret; b -8 (inside); b far; br x16; b.eq far
	c, err := Scan(ARM64, []Part{{0x1000, le(0xb4000040, 0xd65f03c0, 0x17fffffe, 0x14001000, 0xd61f0200, 0x54008000)}}, false)
	if err != nil {
		t.Fatal(err)
	}
	want := []Exit{{0x1004, Return}, {0x100c, Jump}, {0x1010, Jump}}
	if c.Entry != 0x1000 || len(c.Exits) != 3 || c.Exits[0] != want[0] || c.Exits[1] != want[1] || c.Exits[2] != want[2] || c.Blind != 1 || !c.Loops == true {
		t.Errorf("%+v", c)
	}
}

func TestScanRefuses(t *testing.T) {
	for name, parts := range map[string][]Part{
		"no code":    nil,
		"no bytes":   {{0x1000, nil}},
		"too large":  {{0x1000, make([]byte, MaxCode+1)}},
		"no opcode":  {{0x1000, []byte{0x06, 0xc3}}},
		"first torn": {{0x1000, []byte{0xe8, 0}}},
	} {
		if c, err := Scan(AMD64, parts, false); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func FuzzScan(f *testing.F) {
	if b, err := os.ReadFile("/proc/self/exe"); err == nil && len(b) > 1<<16 {
		f.Add(b[1<<15:1<<15+512], true)
	}
	f.Add([]byte{0x62, 0xf1, 0x7c, 0x48, 0x10, 0, 0xc3}, false)
	f.Fuzz(func(t *testing.T, b []byte, goFunc bool) {
		for _, a := range []Arch{AMD64, ARM64} {
			c, err := Scan(a, []Part{{0x1000, b}}, goFunc)
			if err != nil {
				continue
			}
			end := 0x1000 + uint64(len(b))
			if c.Entry < 0x1000 || c.Entry > end {
				t.Fatalf("entry %#x", c.Entry)
			}
			for _, e := range c.Exits {
				if e.Vaddr < 0x1000 || e.Vaddr >= end {
					t.Fatalf("exit %#x", e.Vaddr)
				}
			}
		}
	})
}
