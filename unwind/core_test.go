package unwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// A core is an amd64 core dump that gdb wrote of a stopped process.
type core struct {
	file  *elf.File
	maps  []stack.Mapping
	tids  []int
	regs  []stack.Regs
	loads []*elf.Prog
}

func readCore(path string) (*core, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	c := &core{file: f}
	files := map[uint64]stack.Mapping{}
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_LOAD:
			c.loads = append(c.loads, p)
		case elf.PT_NOTE:
			b, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			if err := c.notes(b, files); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range c.loads {
		m := stack.Mapping{Start: p.Vaddr, End: p.Vaddr + p.Memsz, Exec: p.Flags&elf.PF_X != 0, Write: p.Flags&elf.PF_W != 0}
		if f, ok := files[p.Vaddr]; ok {
			m.Path, m.Off, m.Inode = f.Path, f.Off, f.Inode
		} else if m.Exec && p.Filesz > 0 {
			var b [4]byte
			if _, err := p.ReadAt(b[:], 0); err == nil && string(b[:]) == elf.ELFMAG {
				m.Path = "[vdso]"
			}
		}
		c.maps = append(c.maps, m)
	}
	// gdb leaves out mappings that equal their files: code.
	for start, m := range files {
		if slices.ContainsFunc(c.maps, func(o stack.Mapping) bool { return o.Start == start }) {
			continue
		}
		m.Start = start
		if f, err := elf.Open(m.Path); err == nil {
			for _, p := range f.Progs {
				// V8 maps a part of the code a second time.
				if p.Type == elf.PT_LOAD && m.Off >= p.Off&^4095 && m.Off < p.Off+p.Filesz {
					m.Exec = p.Flags&elf.PF_X != 0
				}
			}
			f.Close()
		}
		c.maps = append(c.maps, m)
	}
	return c, nil
}

func (c *core) notes(b []byte, files map[uint64]stack.Mapping) error {
	le := binary.LittleEndian
	for len(b) >= 12 {
		nn, dn, typ := int(le.Uint32(b)+3)&^3, int(le.Uint32(b[4:])+3)&^3, le.Uint32(b[8:])
		if len(b) < 12+nn+dn {
			return errors.New("note ends early")
		}
		d := b[12+nn : 12+nn+dn]
		b = b[12+nn+dn:]
		const ntFile = 0x46494c45
		switch typ {
		case uint32(elf.NT_PRSTATUS):
			// struct elf_prstatus of amd64: pr_pid at 32, pr_reg at 112.
			var r stack.Regs
			for i, reg := range []int{15, 14, 13, 12, 6, 3, 11, 10, 9, 8, 0, 2, 1, 4, 5, -1, 16, -1, -1, 7, -1, 17} {
				v := le.Uint64(d[112+8*i:])
				switch reg {
				case -1:
				case 16:
					r.PC = v
				case 17:
					r.TLS = v
				default:
					r.Set(reg, v)
				}
			}
			c.regs = append(c.regs, r)
			c.tids = append(c.tids, int(le.Uint32(d[32:])))
		case ntFile:
			n := int(le.Uint64(d))
			page := le.Uint64(d[8:])
			names := bytes.Split(d[16+24*n:], []byte{0})
			inodes := map[string]uint64{}
			for i := range n {
				e := d[16+24*i:]
				name := string(names[i])
				if inodes[name] == 0 {
					inodes[name] = uint64(len(inodes) + 1)
				}
				files[le.Uint64(e)] = stack.Mapping{End: le.Uint64(e[8:]), Path: name, Off: le.Uint64(e[16:]) * page, Inode: inodes[name]}
			}
		}
	}
	return nil
}

func (c *core) ReadAt(b []byte, addr int64) (int, error) {
	for _, p := range c.loads {
		if o := uint64(addr) - p.Vaddr; o < p.Filesz {
			return p.ReadAt(b, int64(o))
		}
	}
	// gdb leaves out what the files hold.
	for _, m := range c.maps {
		if o := uint64(addr) - m.Start; uint64(addr) >= m.Start && uint64(addr) < m.End && m.Path != "" && m.Inode != 0 {
			f, err := os.Open(m.Path)
			if err != nil {
				return 0, err
			}
			defer f.Close()
			return f.ReadAt(b, int64(m.Off+o))
		}
	}
	return 0, fmt.Errorf("%#x is not in the core", addr)
}

// copyOf copies what a stop does: Plan, the stack, More.
func (c *core) copyOf(w *Walker, th *Thread, regs *stack.Regs) *Copy {
	mem := &Copy{}
	read := func(s rule.Span) Block {
		b := make([]byte, s.Len)
		n := 0
		for n < len(b) {
			k, err := c.ReadAt(b[n:], int64(s.Addr)+int64(n))
			n += k
			if err != nil && k == 0 {
				break
			}
		}
		return Block{s.Addr, b[:n]}
	}
	for _, s := range w.Plan(th) {
		mem.Blocks = append(mem.Blocks, read(s))
	}
	top := read(w.StackSpan(th, regs.R[7]))
	for range 3 {
		mem.Blocks = append(mem.Blocks, top)
		more, _ := w.More(th, regs, mem)
		if len(more) == 0 {
			return mem
		}
		mem.Blocks = mem.Blocks[:len(mem.Blocks)-1]
		for _, s := range more {
			mem.Blocks = append(mem.Blocks, read(s))
		}
	}
	mem.Blocks = append(mem.Blocks, top)
	return mem
}

// dumpCore starts a program, waits for a line of its output, and makes gdb write its core.
func dumpCore(t *testing.T, name string, args ...string) (*core, string) {
	t.Helper()
	_, err := exec.LookPath("gdb")
	need(t, "gdb", err)
	cmd := exec.Command(name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe() // kept open: programs may wait on it
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s: %q %v", name, line, err)
	}
	waits(cmd.Process.Pid)
	path := filepath.Join(t.TempDir(), "core")
	gdb := exec.Command("gdb", "-nx", "-batch", "-p", strconv.Itoa(cmd.Process.Pid), "-ex", "generate-core-file "+path)
	b, err := gdb.CombinedOutput()
	c, err2 := readCore(path)
	if err2 != nil {
		if strings.Contains(string(b), "ptrace") {
			need(t, "ptrace", fmt.Errorf("gdb: %s", b))
		}
		t.Fatalf("gdb: %v %v\n%s", err, err2, b)
	}
	return c, path
}

// waits returns when the main thread sleeps, as most programs do soon after the line, or after a
// second.
func waits(pid int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < time.Second; <-tick.C {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if k := bytes.LastIndexByte(b, ')'); err != nil || k > 0 && bytes.HasPrefix(b[k:], []byte(") S")) {
			return
		}
	}
}

// euStack returns the PCs of every thread from elfutils' own unwinder.
func euStack(t *testing.T, path string) map[int][]uint64 {
	t.Helper()
	_, err := exec.LookPath("eu-stack")
	need(t, "eu-stack", err)
	b, err := exec.Command("eu-stack", "-n", "0", "--core="+path).Output()
	if len(b) == 0 {
		t.Fatalf("eu-stack: %v", err)
	}
	m := map[int][]uint64{}
	tid := 0
	frame := regexp.MustCompile(`^#\d+\s+0x([0-9a-f]+)`)
	for line := range strings.SplitSeq(string(b), "\n") {
		if s, ok := strings.CutPrefix(line, "TID "); ok {
			tid, _ = strconv.Atoi(strings.TrimSuffix(s, ":"))
		} else if f := frame.FindStringSubmatch(line); f != nil {
			pc, _ := strconv.ParseUint(f[1], 16, 64)
			m[tid] = append(m[tid], pc)
		}
	}
	return m
}

// TestCores walks every thread of real programs and compares each frame with
// elfutils.
func TestCores(t *testing.T) {
	for name, c := range map[string]struct {
		require string
		args    []string
	}{
		"python": {"python3", []string{"python3", "-c", "import threading,time,sys\n" +
			"e=threading.Event()\n[threading.Thread(target=e.wait,daemon=True).start() for _ in range(3)]\n" +
			"def f(n):\n  return f(n-1) if n else (print('ready',flush=True), sorted([1,2],key=lambda x: sys.stdin.read()))\nf(50)"}},
		"node": {"node", []string{"node", "-e", "function f(n){ return n ? f(n-1)+1 : [2,1].sort(()=>{require('fs').writeSync(1,'ready\\n');" +
			"require('fs').readSync(0,Buffer.alloc(1));return 0})} f(30)"}},
		"bash": {"bash", []string{"bash", "-c", "f() { echo ready; read x; }; g() { f; }; g"}},
		"perl": {"perl", []string{"perl", "-e", "$|=1; sub f { my $n=shift; return $n ? f($n-1) : (print(\"ready\\n\"), <STDIN>) } f(40)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && (name == "bash" || name == "perl") {
				t.Skip("not in the short form: python is such a program, too")
			}
			exe, err := exec.LookPath(c.args[0])
			need(t, c.require, err)
			if out, err := exec.Command("pyenv", "which", c.args[0]).Output(); err == nil && c.args[0] == "python3" {
				exe = strings.TrimSpace(string(out)) // a shim would start it as a child
			}
			core, path := dumpCore(t, exe, c.args[1:]...)
			want := euStack(t, path)
			s := NewSpace(rule.AMD64, hostFiles{}, core)
			s.Update(core.maps)
			w := NewWalker(s)
			same, total := 0, 0
			for i := range core.regs {
				var th Thread
				frames, reason := w.Walk(&th, &core.regs[i], core.copyOf(w, &th, &core.regs[i]))
				var got []uint64
				for _, f := range frames {
					if f.Kind != stack.KindError {
						got = append(got, f.PC)
					}
				}
				ref := want[core.tids[i]]
				n := 0
				for n < len(got) && n < len(ref) && got[n] == ref[n] {
					n++
				}
				same, total = same+n, total+len(ref)
				if reason != stack.ReasonNone {
					t.Errorf("thread %d: %v after %d frames, elfutils has %d", core.tids[i], reason, len(got), len(ref))
				}
				if n < len(ref) || n < len(got) {
					t.Errorf("thread %d: %d frames agree, then %#x, elfutils %#x", core.tids[i], n, got[n:], ref[n:])
				}
			}
			t.Logf("%d threads, %d of elfutils' %d frames agree", len(core.regs), same, total)
			if total == 0 {
				t.Error("elfutils has no frames")
			}
		})
	}
}
