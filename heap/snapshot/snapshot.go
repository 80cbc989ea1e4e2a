// Package snapshot reads the Java heap of a running process: it makes a copy of the process
// (package target), reads HotSpot's heap in the copy (package hotspot), and says what that
// cost. The process stops for the copy alone.
//
// A Java belongs to one goroutine at a time.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// Java is the heap of a HotSpot virtual machine as it was at one moment.
type Java struct {
	Heap   *hotspot.Heap
	VM     *hotspot.VM
	At     time.Time     // of the copy
	Frozen time.Duration // the time that the process was stopped for
	Tries  int           // stops until the collector was not at work
	Scan   time.Duration // that the walk through the heap took
	Mark   time.Duration // that Live took

	snap   *target.Snapshot
	stacks []hotspot.Stack
}

// Process is the memory of a process at offsets that are its addresses.
type processMemory struct{ p *target.Process }

func (m processMemory) ReadAt(b []byte, off int64) (int, error) { return m.p.ReadAt(b, uint64(off)) }

// ErrNoJVM says that a process runs no HotSpot.
var ErrNoJVM = errors.New("no HotSpot virtual machine: it has no libjvm.so mapped")

// Examine finds HotSpot in a process and reads whether its heap can be copied. Nothing is
// stopped. Errors: *hotspot.UnsupportedError, *jvm.VersionError, jvm.ErrNotReady and those of
// reading.
func Examine(p *target.Process) (*hotspot.VM, error) {
	s, err := source(p)
	if err != nil {
		return nil, err
	}
	return hotspot.Examine(s)
}

// source finds HotSpot in a process.
func source(p *target.Process) (hotspot.Source, error) {
	var none hotspot.Source
	maps, err := p.Maps()
	if err != nil {
		return none, err
	}
	var lib *stack.Mapping
	for i := range maps {
		name := filepath.Base(maps[i].Path)
		if jvm.IsOpenJ9(name) {
			return none, &hotspot.UnsupportedError{Why: "its virtual machine is OpenJ9, whose heap is not supported"}
		}
		if lib == nil && name == "libjvm.so" && maps[i].Off == 0 {
			lib = &maps[i]
		}
	}
	if lib == nil {
		return none, ErrNoJVM
	}
	f, err := p.OpenMapping(*lib)
	if err != nil {
		return none, fmt.Errorf("open %s: %w", lib.Path, err)
	}
	defer f.Close()
	img, err := jvm.Load(f)
	if errors.Is(err, jvm.ErrNotJVM) {
		return none, &hotspot.UnsupportedError{Why: "its libjvm.so does not describe itself as HotSpot does"}
	}
	if err != nil {
		return none, err
	}
	// libjvm.so has its first segment at 0 (all versions tried).
	return hotspot.Source{Image: img, Bias: lib.Start, Maps: maps, Mem: processMemory{p}}, nil
}

// Take copies the process and walks its heap. See Examine and target.Process.Snapshot for
// errors. Close ends the copy.
func Take(ctx context.Context, p *target.Process, o target.SnapshotOptions) (*Java, error) {
	vm, err := Examine(p)
	if err != nil {
		return nil, err
	}
	o.Gate = vm.Gate
	s, err := p.Snapshot(o)
	if errors.Is(err, target.ErrBusy) {
		return nil, fmt.Errorf("its collector was always at work: %w", err)
	}
	if err != nil {
		return nil, err
	}
	j := &Java{At: time.Now(), Frozen: s.Frozen, Tries: s.Tries, snap: s}
	if err := j.read(ctx, vm); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return j, nil
}

func (j *Java) read(ctx context.Context, vm *hotspot.VM) (err error) {
	begin := time.Now()
	for _, t := range j.snap.Threads {
		j.stacks = append(j.stacks, hotspot.Stack{SP: t.Regs.R[target.StackPointer], Regs: t.Regs})
	}
	j.VM = vm.On(j.snap, j.snap.Maps())
	if j.Heap, err = hotspot.Open(j.VM); err != nil {
		return err
	}
	if err := j.Heap.Scan(ctx); err != nil {
		return err
	}
	j.Scan = time.Since(begin)
	return nil
}

// Dump returns the heap as a dump with all objects, the dead ones too unless Live was called.
// It is read from the copy, until Close.
func (j *Java) Dump(ctx context.Context) (*hotspot.Dump, error) {
	return j.Heap.Dump(ctx, j.stacks, j.At)
}

// Live leaves only the objects that are reachable, see hotspot.Heap.Live.
func (j *Java) Live(ctx context.Context) error {
	begin := time.Now()
	defer func() { j.Mark = time.Since(begin) }()
	return j.Heap.Live(ctx, j.stacks)
}

// Copied is how many bytes the process has written to since, whose pages the kernel had to copy.
func (j *Java) Copied() (int64, error) { return j.snap.Copied() }

// Close ends the copy. An error describes a zombie that could not be removed.
func (j *Java) Close() error { return j.snap.Close() }

// JavaName turns HotSpot's name of a class into Java's: java.lang.String, int[].
func JavaName(name string) string {
	dims := 0
	for strings.HasPrefix(name, "[") {
		name, dims = name[1:], dims+1
	}
	if dims > 0 {
		switch {
		case strings.HasPrefix(name, "L") && strings.HasSuffix(name, ";"):
			name = name[1 : len(name)-1]
		default:
			if t, ok := map[string]string{"Z": "boolean", "C": "char", "F": "float", "D": "double", "B": "byte", "S": "short", "I": "int", "J": "long"}[name]; ok {
				name = t
			}
		}
	}
	return strings.ReplaceAll(name, "/", ".") + strings.Repeat("[]", dims)
}
