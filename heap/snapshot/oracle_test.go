package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// java starts HeapLeaks with kinds of objects on a version of Java.
func java(t testing.TB, version, kinds string, flags ...string) *testprog.Proc {
	t.Helper()
	bin := testprog.Tool(t, "java"+version)
	args := append(append([]string{"-Xmx256m"}, flags...), "-cp", testprog.JavaClasses(t, "HeapLeaks"), "HeapLeaks", kinds)
	p := testprog.StartCmd(t, exec.Command(bin, args...))
	p.Line("READY")
	return p
}

func open(t testing.TB, pid int) *target.Process {
	t.Helper()
	testprog.Need(t, "ptrace")
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// patient are options for a busy machine.
var patient = target.SnapshotOptions{StopFor: 10e9, GateFor: 60e9}

// take copies a process and reads its heap.
func take(t testing.TB, p *target.Process) *Java {
	t.Helper()
	j, err := Take(t.Context(), p, patient)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// folder is one whose name has no characters that jcmd takes for an option.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sliver-heap-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// write writes the dump of a copy to a file.
func write(t testing.TB, j *Java, path string) *hotspot.Dump {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	b := bufio.NewWriterSize(f, 1<<20)
	d, err := j.Dump(t.Context())
	if err == nil {
		err = d.Write(t.Context(), b)
	}
	if err := errors.Join(err, b.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return d
}

// record is an object of a dump: what it is, and a hash of its content.
type record struct {
	tag   uint8
	class uint64
	hash  uint64
}

// dump is a heap dump by objects.
type dump struct {
	objects map[uint64]record
	classes map[uint64]string // by ID
	roots   map[uint8]map[uint64]bool
	refs    map[uint64]bool // elements of arrays of references
}

// load reads a dump.
func load(t testing.TB, path string) *dump {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := hprof.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	d := &dump{map[uint64]record{}, map[uint64]string{}, map[uint8]map[uint64]bool{}, map[uint64]bool{}}
	names := map[uint64]string{}
	for {
		it, err := r.Next()
		if err == io.EOF {
			return d
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch {
		case it.Kind == hprof.KindRecord && it.Tag == hprof.TagString:
			b, err := r.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			names[it.ID] = string(b)
		case it.Kind == hprof.KindRecord && it.Tag == hprof.TagLoadClass:
			d.classes[it.ID] = names[it.Ref]
		case it.Kind == hprof.KindSub:
			switch it.Tag {
			case hprof.SubInstance, hprof.SubObjectArray, hprof.SubPrimitiveArray:
				h := fnv.New64a()
				var rest []byte
				for {
					b, err := r.Chunk()
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					h.Write(b)
					if it.Tag == hprof.SubObjectArray {
						rest = append(rest, b...)
						for ; len(rest) >= 8; rest = rest[8:] {
							if id := hprof.ID(rest, 8); id != 0 {
								d.refs[id] = true
							}
						}
					}
				}
				d.objects[it.ID] = record{it.Tag, it.Ref + uint64(it.Type), h.Sum64()}
			case hprof.SubClass:
			default:
				if d.roots[it.Tag] == nil {
					d.roots[it.Tag] = map[uint64]bool{}
				}
				d.roots[it.Tag][it.ID] = true
			}
		}
	}
}

func jcmd(t testing.TB, pid int, args ...string) string {
	t.Helper()
	out, err := exec.Command(testprog.Tool(t, "jcmd17"), append([]string{fmt.Sprint(pid)}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("jcmd %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// oneGoroutine is why tests are not under the race detector. TestChurn and TestStream are, for copies and dumps have several.
const oneGoroutine = "one goroutine reads a copy"

// configurations are flags of HotSpot that change how objects look.
var configurations = map[string][][]string{
	"17": {{"-XX:+UseG1GC"}, {"-XX:+UseSerialGC"}, {"-XX:+UseParallelGC"}, {"-XX:+UseG1GC", "-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers"}},
	"21": {{"-XX:+UseG1GC"}, {"-XX:+UseSerialGC"}, {"-XX:+UseParallelGC"}, {"-XX:+UseSerialGC", "-XX:-UseCompressedOops"}},
	"25": {{"-XX:+UseG1GC"}, {"-XX:+UseSerialGC"}, {"-XX:+UseParallelGC"},
		{"-XX:+UseParallelGC", "-XX:-UseCompressedOops"}, {"-XX:+UseG1GC", "-XX:ObjectAlignmentInBytes=16"},
		{"-XX:+UseParallelGC", "-XX:+UseCompactObjectHeaders"}},
}

// chosen returns the configurations to test: all with SLIVER_LONG=1, otherwise some with each version, each
// collector and each form of addresses.
func chosen() map[string][][]string {
	if os.Getenv("SLIVER_LONG") != "" {
		return configurations
	}
	few := map[string][][]string{}
	for version, of := range map[string][]int{"17": {0, 3}, "21": {1, 3}, "25": {4, 5}} {
		if testing.Short() {
			of = of[:1]
		}
		for _, i := range of {
			few[version] = append(few[version], configurations[version][i])
		}
	}
	return few
}

// Every object of an idle process is in both dumps, with the same bytes.
func TestEqualsJcmd(t *testing.T) {
	testprog.Unraced(t, oneGoroutine)
	for version, all := range chosen() {
		if version == "25" && os.Getenv("SLIVER_LONG") != "" { // G1 loads classes of its own between the two dumps now and then
			all = append(slices.Clone(all), []string{"-XX:+UseG1GC", "-XX:+UseCompactObjectHeaders"})
		}
		for _, flags := range all {
			t.Run(version+strings.Join(flags, ""), func(t *testing.T) {
				kinds := "map,list,loader,threadlocal,duplicates,fill,zeros,nulls,array,heads"
				if version != "17" {
					kinds += ",virtual"
				}
				proc := java(t, version, kinds, flags...)
				jcmd(t, proc.PID, "VM.version") // starts the thread that answers it
				dir := folder(t)
				ours, theirs := filepath.Join(dir, "ours.hprof"), filepath.Join(dir, "theirs.hprof")
				j := take(t, open(t, proc.PID))
				d := write(t, j, ours)
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				jcmd(t, proc.PID, "GC.heap_dump", "-all", theirs)
				compare(t, load(t, ours), load(t, theirs))
				if d.Nulled() > 0 || j.Heap.Skipped > 0 {
					t.Errorf("of an idle process %d references were dropped and %d bytes skipped", d.Nulled(), j.Heap.Skipped)
				}
				t.Logf("froze %v in %d tries, scan %v, %d objects, %d references dropped, %d bytes skipped", j.Frozen, j.Tries, j.Scan, j.Heap.Objects, d.Nulled(), j.Heap.Skipped)
			})
		}
	}
}

func compare(t *testing.T, ours, theirs *dump) {
	t.Helper()
	counts := map[string]int{}
	shown := 0
	show := func(format string, args ...any) {
		if shown++; shown < 12 {
			t.Logf(format, args...)
		}
	}
	for id, o := range ours.objects {
		x, ok := theirs.objects[id]
		switch {
		case !ok && o.tag == hprof.SubPrimitiveArray && o.class == uint64(hprof.TypeInt):
			counts["fillers"]++ // between regions of the archive
		case !ok:
			counts["only ours"]++
			show("only ours: %#x %s", id, ours.name(o))
		case x.tag != o.tag || x.class != o.class:
			counts["other class"]++
			show("other class: %#x %s, %s", id, ours.name(o), theirs.name(x))
		case x.hash != o.hash:
			counts["other bytes"]++
			show("other bytes: %#x %s", id, ours.name(o))
		default:
			counts["equal"]++
		}
	}
	for id, o := range theirs.objects {
		if _, ok := ours.objects[id]; !ok {
			counts["only theirs"]++
			show("only theirs: %#x %s", id, theirs.name(o))
		}
	}
	for id, n := range theirs.classes {
		if _, ok := ours.classes[id]; !ok {
			counts["classes only theirs"]++
			show("class only theirs: %#x %s", id, n)
		}
	}
	t.Logf("%v", counts)
	for tag, set := range theirs.roots {
		both := 0
		for id := range set {
			if ours.roots[tag][id] {
				both++
			}
		}
		t.Logf("roots 0x%02x: %d ours, %d theirs, %d both", tag, len(ours.roots[tag]), len(set), both)
		missing := len(set) - both
		switch tag {
		case hprof.SubRootSticky: // of classes that were replaced before they were loaded, which have no class in either
			missing -= 3
		}
		if missing > 2 {
			t.Errorf("roots 0x%02x: %d of %d are missing", tag, missing, len(set))
		}
	}
	dangling(t, ours)
	// HotSpot's dumps have the fillers of thread-local buffers, and what its own thread has
	// allocated. In 25 one array of the archive refers to mirrors that are in neither dump.
	if counts["equal"] < 40_000 || counts["other class"] > 0 || counts["other bytes"] > 1 || counts["only ours"] > 0 || counts["fillers"] > 8 || counts["classes only theirs"] > 3 {
		t.Errorf("%v", counts)
	}
}

// dangling holds that every reference leads to an object or a class.
func dangling(t *testing.T, d *dump) {
	t.Helper()
	n := 0
	for id := range d.refs {
		if _, ok := d.objects[id]; ok || d.classes[id] != "" {
			continue
		}
		if n++; n < 5 {
			t.Errorf("a reference to %#x, which is not in the dump", id)
		}
	}
	if len(d.refs) < 10_000 {
		t.Errorf("only %d objects are referred to", len(d.refs))
	}
}

// name returns the name of an object's class.
func (d *dump) name(r record) string {
	switch r.tag {
	case hprof.SubPrimitiveArray:
		return hprof.Type(r.class).String() + "[]"
	case hprof.SubObjectArray:
		return d.classes[r.class-uint64(hprof.TypeObject)]
	}
	return d.classes[r.class]
}

// top lists the most frequent names.
func top(counts map[string]int) (all []string) {
	for name, n := range counts {
		all = append(all, fmt.Sprintf("%6d %s", n, name))
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all[:min(len(all), 12)]
}
