package main

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// build compiles a program of the given number of units in dir, and reuses existing files.
func build(dir, source string, units, works int) (program string, err error) {
	program = filepath.Join(dir, fmt.Sprintf("program-%d-%d", units, works))
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	objects := make([]string, units)
	errs := make([]error, units)
	slots := make(chan struct{}, runtime.NumCPU())
	var wg sync.WaitGroup
	for i := range units {
		objects[i] = fmt.Sprintf("%s-%d.o", program, i)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out, err := exec.Command("g++", "-std=c++17", "-O1", "-g", fmt.Sprintf("-DUNIT=%d", i), fmt.Sprintf("-DUNITS=%d", units),
				fmt.Sprintf("-DWORKS=%d", works), "-c", source, "-o", objects[i]).CombinedOutput()
			if err != nil {
				errs[i] = fmt.Errorf("g++: %w\n%s", err, out)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return "", err
		}
	}
	defer func() {
		for _, o := range objects {
			os.Remove(o)
		}
	}()
	out, err := exec.Command("g++", append([]string{"-no-pie", "-pthread", "-Wl,--build-id", "-o", program}, objects...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("linking: %w\n%s", err, out)
	}
	return program, nil
}

// task is a program with addresses in it, in the tools' input formats.
type task struct {
	program   string
	buildID   string
	text      []trace.Segment
	addrs     []uint64 // sorted
	aliases   map[uint64][]string
	recording string // without names
	perfData  string
	patience  time.Duration // timeout of the other tools
	took, cpu time.Duration // of the last command
}

const pid = 4711 // a dummy: no tool accesses a process

// newTask selects addresses in the functions of a program, with a probability proportional
// to a function's length, and writes them as a recording and as perf.data.
func newTask(program, dir string, n int) (*task, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Type != elf.ET_EXEC {
		return nil, fmt.Errorf("%s is not linked to fixed addresses", program)
	}
	r, err := os.Open(program)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t := &task{program: program, aliases: map[uint64][]string{}}
	if t.buildID, err = symbol.BuildID(r); err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			t.text = append(t.text, trace.Segment{Off: p.Off, Vaddr: p.Vaddr, Size: p.Filesz})
		}
	}
	syms, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	type span struct{ lo, hi, before uint64 } // before: bytes of the previous spans
	var spans []span
	total := uint64(0)
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
			t.aliases[s.Value] = append(t.aliases[s.Value], s.Name)
			if len(t.aliases[s.Value]) == 1 {
				spans = append(spans, span{s.Value, s.Value + s.Size, total})
				total += s.Size
			}
		}
	}
	if total < 2*uint64(n) {
		return nil, fmt.Errorf("%d bytes of functions in %s are too few for %d addresses", total, program, n)
	}
	rnd := rand.New(rand.NewPCG(1, 2)) // the same ones each time
	seen := map[uint64]bool{}
	for len(t.addrs) < n {
		at := rnd.Uint64N(total)
		i, _ := slices.BinarySearchFunc(spans, at, func(s span, at uint64) int {
			if s.before+s.hi-s.lo <= at {
				return -1
			}
			return 1
		})
		if a := spans[i].lo + at - spans[i].before; !seen[a] {
			seen[a] = true
			t.addrs = append(t.addrs, a)
		}
	}
	slices.Sort(t.addrs)
	if err := t.record(filepath.Join(dir, "places.sliver")); err != nil {
		return nil, err
	}
	return t, t.perf(filepath.Join(dir, "places.data"))
}

// record writes a recording that visited each address, without names.
func (t *task) record(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := trace.NewWriter(f)
	if err != nil {
		return err
	}
	es := []event.Event{event.Make(1, event.Sync, 0)}
	for i, a := range t.addrs {
		fr := stack.Frame{PC: a, Func: a, Exact: true}
		at := stack.Time(1000 * (i + 1))
		es = append(es, event.Make(at, event.Enter, uint64(event.WordOf(&fr))), event.Make(at+500, event.Exit, 0))
	}
	maps := trace.Maps{}
	for _, s := range t.text {
		maps.Mappings = append(maps.Mappings, trace.Mapping{Start: s.Vaddr &^ 4095, End: (s.Vaddr + s.Size + 4095) &^ 4095, Off: s.Off &^ 4095})
	}
	abs, err := filepath.Abs(t.program)
	if err != nil {
		return err
	}
	for _, err := range []error{
		w.Process(trace.Process{PID: pid, Arch: runtime.GOARCH}), w.Thread(trace.Thread{TID: pid, Main: true}),
		w.Maps(maps, 0, []trace.Module{{Path: abs, BuildID: t.buildID, Segments: t.text}}), w.Events(0, es), f.Close(),
	} {
		if err != nil {
			return err
		}
	}
	t.recording = path
	return nil
}

// perf writes the addresses as perf.data (tools/perf/Documentation/perf.data-file-format.txt
// of Linux): header, one attribute, one mapping of the program, samples.
func (t *task) perf(path string) error {
	le := binary.LittleEndian
	var data []byte
	put := func(kind uint32, body []byte) {
		data = le.AppendUint32(data, kind)
		data = le.AppendUint16(data, 2) // user space
		data = le.AppendUint16(data, uint16(8+len(body)))
		data = append(data, body...)
	}
	ids := le.AppendUint32(le.AppendUint32(nil, pid), pid)
	comm := make([]byte, 16)
	copy(comm, "program")
	put(3, append(slices.Clone(ids), comm...))
	abs, err := filepath.Abs(t.program)
	if err != nil {
		return err
	}
	name := append([]byte(abs), 0)
	for len(name)%8 != 0 {
		name = append(name, 0)
	}
	for _, s := range t.text {
		b := slices.Clone(ids)
		for _, v := range []uint64{s.Vaddr &^ 4095, (s.Size + s.Vaddr%4096 + 4095) &^ 4095, s.Off &^ 4095} {
			b = le.AppendUint64(b, v)
		}
		put(1, append(b, name...))
	}
	for i, a := range t.addrs {
		b := le.AppendUint64(nil, a)
		put(9, le.AppendUint64(append(b, ids...), uint64(1000*(i+1))))
	}
	const head, attr = 104, 112
	out := []byte("PERFILE2")
	for _, v := range []uint64{head, attr + 16, head, attr + 16, head + attr + 16, uint64(len(data)), 0, 0, 0, 0, 0, 0} {
		out = le.AppendUint64(out, v)
	}
	a := make([]byte, attr)
	le.PutUint32(a[0:], 1) // a software event: the clock
	le.PutUint32(a[4:], attr)
	le.PutUint64(a[16:], 1)     // one sample each
	le.PutUint64(a[24:], 1|2|4) // address, thread, time
	le.PutUint64(a[40:], 1<<8|1<<9)
	out = append(append(out, a...), make([]byte, 16)...)
	t.perfData = path
	return os.WriteFile(path, append(out, data...), 0o600)
}

// frame is one function at an address, as a tool reports it.
type frame struct {
	name string // linker name
	line string // "file:line" without folders; "": unknown
}

type answers map[uint64][]frame

// Open implements naming.Modules.
func (t *task) Open(int, *trace.Module) (io.ReaderAt, io.Closer, error) {
	f, err := os.Open(t.program)
	return f, f, err
}

// own returns sliver's names of the addresses.
func (t *task) own() (answers, error) {
	f, err := os.Open(t.recording)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	rec, err := trace.Open(f, fi.Size())
	if err != nil {
		return nil, err
	}
	syms, problems := naming.Symbols(rec, t, naming.Options{Finder: symbol.Dirs{}, FullNames: true})
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(problems, "; "))
	}
	out := answers{}
	for k, frames := range syms.Locs {
		for j := range frames {
			fn := &syms.Funcs[frames[j].Func]
			name := fn.Linkage
			if name == "" {
				name = fn.Name
			}
			out[k.Addr] = append(out[k.Addr], frame{name, place(frames[j].File, frames[j].Line)})
		}
	}
	return out, nil
}

func place(file string, line int) string {
	if file == "" || line == 0 {
		return ""
	}
	return filepath.Base(file) + ":" + strconv.Itoa(line)
}
