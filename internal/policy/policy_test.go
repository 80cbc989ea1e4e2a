package policy

//sliver:layer unit big

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/sliverprof/sliver"

// complete means that every package of the table exists: from then on a row without a
// package is an error.
const complete = true

// A row lists what the code of one package, without its tests, may import in addition to
// the standard library.
type row struct {
	pkg   string
	own   string // packages of this module; "x/*" are those directly below x; "*" is all
	third string // packages of other modules, "x/..." with all below; "*" is all
	why   string
}

// table is ordered from left to right in the diagram of docs/design.md: no package may
// import one that comes later.
var table = []row{
	{"internal/caps", "", "golang.org/x/sys/unix",
		"this process's own rights, for less than it has: it knows no other process"},
	{"internal/elffile", "", "",
		"opens ELF files with the standard library's reader, which trusts their headers"},
	{"internal/limits", "", "",
		"how much memory this process may use: it knows no other"},
	{"internal/limits/atstart", "", "",
		"limits before package syscall changes them: it imports nothing, to be initialized first"},
	{"internal/limits/early", "internal/limits", "",
		"for its effect: a clear line where a limit is too low to begin"},
	{"internal/netlimit", "", "",
		"bounds on the connections of a server: what it answers is not its business"},
	{"internal/outfile", "internal/caps", "",
		"the user's output files, whole or not at all: what is in them is not its business"},
	{"internal/plural", "", "",
		"numbers of things in English: it knows no thing"},
	{"internal/safefile", "internal/caps", "golang.org/x/sys/unix",
		"opens the files that a target or a recording names, with a helper process: it knows neither"},
	{"stack", "", "",
		"the words that all share: whoever imports it gets nothing else"},
	{"wait/kind", "", "",
		"the kinds of waits and locks with their properties: what recordings, waits and outputs share"},
	{"trace/event", "stack", "",
		"the wire words of rings and recordings"},
	{"unwind/rule", "stack", "",
		"what one step of an unwinding is, whatever table it came from"},
	{"unwind/cfi", "internal/elffile stack unwind/rule", "",
		"reads bytes: the same code runs on a live process, on a file and under a fuzzer"},
	{"unwind/gopcln", "internal/elffile stack unwind/rule", "golang.org/x/arch/...",
		"reads bytes; decodes the few instructions of Go's runtime that its tables do not describe"},
	{"unwind/managed", "stack", "",
		"addresses for functions that have none that stays: what all runtimes share, and what a recording keeps of it"},
	{"unwind/meter", "stack", "",
		"what one walk may read of memory as it is now: one account for the readers of all runtimes"},
	{"unwind", "stack unwind/*", "golang.org/x/arch/...",
		"registers and memory in, frames out: no PID, no ptrace, no names; decodes instructions where no table helps"},
	{"ringbuf", "", "",
		"two words an event: a ring that knows nothing of what it holds can be proven by itself"},
	{"ringbuf/ringfile", "ringbuf", "",
		"the memory of rings, and finding them in what a killed program left: knows no event"},
	{"diff", "stack trace/event", "",
		"no clock and no target, so that Replay can be its inverse"},
	{"internal/background", "", "golang.org/x/sys/unix",
		"the priorities of this program's own threads: it knows no other process"},
	{"internal/perfring", "", "golang.org/x/sys/unix",
		"the kernel's buffers of perf events: what a record means is its reader's business"},
	{"internal/perffilter", "internal/caps", "github.com/cilium/ebpf github.com/cilium/ebpf/...",
		"a BPF program of one look-up: which threads the kernel copies at the ticks of a perf event, not what a copy means"},
	{"calls", "stack", "",
		"which functions to trace, where their code is entered and left, and pairs of these: bytes and records in, no process"},
	{"iowatch", "internal/plural stack", "",
		"rules over operations of files: records in, findings out, no process and no clock"},
	{"target", "stack internal/background internal/caps internal/limits internal/limits/atstart internal/perffilter internal/perfring internal/safefile", "golang.org/x/sys/unix",
		"the only package that touches another process; it sets no policy"},
	{"engine", "", "",
		"says what is in the folder"},
	{"engine/breakpoint", "stack calls internal/perfring", "golang.org/x/sys/unix",
		"exact calls by the CPU's breakpoints: addresses in, hits out; which functions, and whose they are, is not its business"},
	{"engine/kernel", "stack calls iowatch internal/caps", "github.com/cilium/ebpf github.com/cilium/ebpf/... golang.org/x/sys/unix",
		"exact calls by the kernel's uprobes, and I/O by its tracepoints: hits and records out; what reads by BPF is here"},
	{"sampler", "stack trace/event unwind unwind/* internal/background", "",
		"declares the target that it drives and the sink that it feeds: tests fake both"},
	{"engine/procfs", "", "",
		"tests only: a second engine for sampler, which reads blocked threads and stops none"},
	{"engine/ptrace", "stack engine/kernel sampler target unwind", "",
		"sampler's engine: stops and reads threads through target, and memory for clocks through engine/kernel; when, and of which, is not its business"},
	{"trace", "internal/plural stack calls iowatch trace/event diff ringbuf wait/kind", "github.com/klauspost/compress/...",
		"a recording can be read where it was not made: no live process, no names looked up"},
	{"session/procset", "stack target trace", "",
		"which processes a recording of several has, and which it has not: how one is sampled is not its business"},
	{"trace/flight", "stack calls trace/event diff ringbuf ringbuf/ringfile trace", "",
		"the recorder that keeps the last seconds: no live process, no names looked up"},
	{"symbol/dwarf", "", "",
		"reads bytes"},
	{"symbol/kallsyms", "", "",
		"the kernel's list of its own symbols: bytes in, names out"},
	{"symbol/dlang", "", "",
		"names of D's linker symbols, from strings alone"},
	{"symbol/swift", "", "",
		"names of Swift's linker symbols, from strings alone"},
	{"symbol", "stack internal/elffile internal/limits internal/safefile symbol/dlang symbol/dwarf symbol/swift unwind/gopcln", "github.com/ianlancetaylor/demangle github.com/klauspost/compress/... github.com/ulikunitz/xz/...",
		"files in, names out: what a recording is, is not its business"},
	{"symbol/cache", "internal/safefile symbol", "",
		"a folder of bounded size; what symbol found out, by build ID"},
	{"symbol/debuginfod", "symbol symbol/cache", "",
		"debug files from servers, for who asks for it"},
	{"symbol/naming", "stack internal/safefile symbol symbol/cache symbol/dwarf trace unwind/cfi unwind/gopcln unwind/managed unwind/rule", "",
		"joins symbol to trace, which do not know each other, and hands symbol what it may not read: Go's table, and where functions without a symbol begin"},
	{"linux", "", "",
		"says what is in the folder"},
	{"linux/syscalls", "", "",
		"tables: system calls by number"},
	{"linux/files", "stack linux/syscalls", "",
		"reads what it is handed of /proc: a test hands it a folder of its own"},
	{"wait/lock", "internal/plural stack trace/event linux/syscalls wait/kind", "",
		"reads a target's memory through what it is handed: no PID, no ptrace"},
	{"linux/procdir", "stack internal/safefile linux/files", "",
		"hands wait/files the live system's /proc"},
	{"wait", "stack trace/event linux/files wait/lock linux/syscalls wait/kind", "",
		"what a thread waits for, from memory and /proc through interfaces: it knows no process"},
	{"wait/data", "internal/elffile", "",
		"reads bytes: variables of a file by address"},
	{"wait/graph", "stack trace/event wait wait/lock wait/kind", "",
		"deadlocks and convoys over waits, pure"},
	{"wait/idle", "stack trace wait/kind", "",
		"whether a wait is idle, from its description and a stack: the same rule for files and live views"},
	{"wait/infer", "internal/plural stack trace/event", "",
		"who let go, from a replay alone"},
	{"lang", "stack unwind unwind/managed wait wait/lock", "",
		"the words in which a language describes itself: it knows no language and no process"},
	{"lang/golang", "lang stack unwind unwind/gopcln unwind/rule", "",
		"Go's part in walks, and the stacks of goroutines that no thread runs"},
	{"lang/jvm", "internal/elffile lang stack unwind unwind/cfi unwind/managed unwind/meter unwind/rule wait wait/lock wait/kind", "golang.org/x/arch/x86/x86asm",
		"all of HotSpot: reads bytes and memory through io.ReaderAt, and takes part in walks; decodes the few instructions around a method's entry and end"},
	{"lang/jvm/jfr", "", "",
		"recordings of Java Flight Recorder: bytes in, values out; it knows no event"},
	{"lang/python", "internal/elffile lang stack unwind unwind/cfi unwind/managed unwind/meter unwind/rule wait", "golang.org/x/arch/x86/x86asm",
		"all of CPython: reads bytes and memory through io.ReaderAt, and takes part in walks"},
	{"lang/v8", "internal/elffile lang stack unwind unwind/managed unwind/meter", "golang.org/x/arch/x86/x86asm",
		"all of V8: reads bytes and memory through io.ReaderAt, and takes part in walks; decodes the few instructions behind a call that has no position"},
	{"lang/ruby", "internal/elffile lang stack unwind unwind/managed unwind/meter unwind/rule wait wait/lock wait/kind", "",
		"all of CRuby: reads bytes and memory through io.ReaderAt, and takes part in walks"},
	{"session/stacks", "internal/plural stack trace/event wait wait/graph wait/kind", "",
		"one look at all threads as text and JSON, from what it is given"},
	{"session/internal/live", "internal/plural stack engine/ptrace internal/elffile internal/limits lang lang/* trace/event symbol/naming sampler symbol target trace unwind unwind/* wait wait/data wait/lock linux/procdir wait/kind", "",
		"joins target to sampler, unwind and wait, which do not know each other"},
	{"session/oneshot", "internal/background stack trace/event lang sampler target unwind unwind/gopcln unwind/managed session/internal/live symbol/naming symbol symbol/cache session/stacks wait wait/graph wait/lock wait/kind", "",
		"one look at a live process: joins sampler, goroutines, names and waits; what it reads like is stacks'; background gives the look its priority"},
	{"heap", "", "",
		"says what is in the folder"},
	{"heap/hprof", "internal/outfile", "github.com/klauspost/compress/...",
		"heap dumps: bytes in, bytes out; no process, no graph of objects, memory that no dump's size changes"},
	{"internal/dumptest", "heap/hprof", "",
		"for tests: small dumps from classes and objects that a test names"},
	{"heap/tally", "heap/hprof", "",
		"counts by class that a graph needs: they are made where the objects are met first"},
	{"internal/ordered", "", "",
		"parts of anything by several goroutines, joined in order: it knows no part"},
	{"heap/graph", "heap/hprof heap/tally internal/ordered", "",
		"the objects of a dump and what holds what: bytes in, no process; what of it is a leak is not its business"},
	{"heap/hotspot", "heap/hprof heap/tally internal/ordered stack lang/jvm", "",
		"a Java heap in memory through io.ReaderAt, and a dump of it: no process; how the memory was copied is not its business"},
	{"heap/python", "stack", "",
		"the objects of CPython in memory through io.ReaderAt: no process; how the memory was copied is not its business"},
	{"heap/snapshot", "heap/hotspot heap/hprof heap/python stack target lang/jvm", "github.com/klauspost/compress/zstd",
		"joins target to hotspot and python: the heap of a live process"},
	{"heap/leak", "internal/plural heap/graph heap/hprof", "github.com/google/pprof/profile",
		"what of a heap's graph is a leak, and reports of it; pprof's own package writes its profile, which is small"},
	{"heap/facts", "heap/leak heap/snapshot target", "",
		"joins snapshot and target to leak: what a report says of the living process"},
	{"export/view", "internal/plural stack calls iowatch trace/event diff trace wait/idle linux/syscalls wait/kind", "",
		"what all formats share; knows none of them"},
	{"export/contend", "stack trace/event diff trace export/view wait/infer wait/kind", "",
		"what threads wanted of each other: what formats with arrows and the report share"},
	{"export/tally", "internal/plural stack trace/event diff trace export/view wait/idle", "",
		"what the formats that add up share; knows none of them"},
	{"internal/exporttest", "stack calls iowatch trace/event diff trace export/view", "",
		"for tests: recordings that every format is tried on"},
	{"export/nanoscope", "stack trace/event diff trace export/view export/tally", "",
		"one format: it knows neither the others nor who calls it"},
	{"export/between", "stack diff trace export/view wait/kind", "",
		"joins the waits of all processes of a recording with their lives"},
	{"export/perfetto", "internal/plural stack iowatch trace/event diff trace export/view export/tally export/contend export/between", "github.com/klauspost/compress/zlib google.golang.org/protobuf/...",
		"as above"},
	{"export/profile", "internal/plural stack trace/event diff trace export/view export/tally wait/idle", "",
		"a recording as tables of samples, places and functions: what pprof and OTLP share"},
	{"export/internal/pb", "", "google.golang.org/protobuf/...",
		"fields of protobuf messages; what they mean is a format's"},
	{"export/internal/spill", "", "",
		"bytes that wait until they are all there"},
	{"export/pprof", "trace export/view export/profile export/internal/*", "github.com/klauspost/compress/... google.golang.org/protobuf/...",
		"one format; the profile's own package would hold it whole, so that only tests use it, to read back"},
	{"export/chrome", "internal/plural stack trace/event diff trace export/view export/tally export/contend", "",
		"a format: a recording in, bytes out"},
	{"export/collapsed", "stack trace/event diff trace export/view export/tally wait/idle", "",
		"a format: a recording in, bytes out"},
	{"export/firefox", "stack trace/event diff trace export/view export/tally", "github.com/klauspost/compress/...",
		"a format: a recording in, bytes out"},
	{"export/speedscope", "stack trace/event diff trace export/view export/tally", "",
		"a format: a recording in, bytes out"},
	{"export/flame", "internal/plural stack trace/event diff trace export/view export/tally wait/idle", "",
		"a format: a recording in, bytes out"},
	{"export/timeline", "internal/plural stack trace/event diff trace export/view", "golang.org/x/image/...",
		"a format: a recording in, bytes out; the fonts of the PNG"},
	{"export/otlp", "trace export/view export/profile export/internal/*", "google.golang.org/protobuf/...",
		"the contents of pprof's profile on another wire"},
	{"export/foreign", "internal/plural internal/limits stack trace/event trace", "google.golang.org/protobuf/...",
		"foreign traces in, a recording out: the way back of some formats"},
	{"query", "internal/limits stack iowatch trace/event diff trace export/tally export/view export/between linux/syscalls", "modernc.org/libc modernc.org/sqlite/...",
		"a recording as tables, in a database that lives as long as a question"},
	{"export/report", "internal/plural stack calls iowatch trace/event trace export/view export/tally export/contend export/between wait/idle wait/kind", "",
		"what threads waited for, as text, JSON and a page; what a recording is made of, exports know too"},
	{"web/analysis", "stack trace export/view export/between export/tally export/report wait/idle wait/kind", "",
		"the tables of the page from a recording: the report's numbers; who asks for them is not its business"},
	{"web/dist", "", "",
		"the page's files, for a server and for a file that holds the page"},
	{"export/page", "internal/plural stack trace/event diff trace export/view export/report web/analysis web/dist wait/kind", "github.com/klauspost/compress/gzip",
		"a format: a recording in, bytes out; the page in them is that of the server"},
	{"export/push", "stack internal/safefile trace export/view export/pprof export/otlp", "",
		"windows of a recording to backends; what is recorded, and when, is not its business"},
	{"export", "internal/outfile stack trace/event diff trace export/* wait/idle", "",
		"chooses the format; a format is a function from a recording to a writer"},
	{"web/wire", "", "",
		"what stands on the wire: a client in Go needs nothing else"},
	{"web/store", "stack trace/event web/wire", "",
		"the timeline that is asked about; where it comes from is not its business"},
	{"web/client", "web/wire", "github.com/gorilla/websocket",
		"what a user's program imports: small"},
	{"web/internal/synth", "*", "*",
		"made-up recordings for the page's tests"},
	{"web/internal/synthserve", "*", "*",
		"a server for the page's tests"},
	{"web", "internal/netlimit calls iowatch stack trace/event diff trace ringbuf export export/* wait/idle linux/syscalls web/* wait/kind", "github.com/gorilla/websocket",
		"reads through the recorder: it cannot reach the sampler, so it cannot slow it"},
	{"session/exact", "internal/plural internal/safefile stack calls engine/breakpoint engine/kernel session/internal/live symbol/naming symbol target", "",
		"exact calls of a live process: joins functions, engine and pairs; what a recording is, and who prints, is not its business"},
	{"session/methods", "calls heap/hotspot heap/snapshot lang/jvm lang/jvm/jfr session/exact stack target", "",
		"exact calls of Java methods of a live process: joins JFR's recordings to calls; snapshot knows which HotSpot may be asked; who prints is not its business"},
	{"session/canary", "internal/plural stack engine/kernel iowatch session/internal/live session/oneshot target unwind linux/files linux/syscalls", "",
		"I/O of a live process: joins programs, rules and stacks; what a recording is, and who prints, is not its business"},
	{"session", "internal/plural calls session/exact session/methods iowatch engine/kernel session/oneshot session/stacks session/canary internal/background internal/limits internal/outfile internal/safefile session/procset stack trace/event diff trace sampler target unwind unwind/managed session/internal/live symbol/naming symbol symbol/cache symbol/kallsyms export export/* trace/flight ringbuf/ringfile",
		"go.opentelemetry.io/otel/attribute go.opentelemetry.io/otel/codes go.opentelemetry.io/otel/trace go.opentelemetry.io/otel/trace/noop",
		"one recording from process to files; command lines and terminals are cmd's, and so is who takes its spans"},
	{"record", "export sampler session target trace", "",
		"what another program imports to record a process: options and a result, nothing else"},
	{"examples/record", "record stack trace trace/event", "",
		"a program that uses only what is for other programs"},
	{"session/top", "internal/plural stack trace/event diff trace wait/idle wait/kind", "",
		"counts over the last window, from events alone: no clock, no process, no terminal"},
	{"session/top/feed", "stack trace/event ringbuf sampler session/internal/live symbol/naming symbol symbol/cache target trace session/top unwind/managed linux/syscalls", "",
		"joins a live process to top, which knows none"},
	{"cmd/sliver/internal/tui", "internal/plural stack session/top", "github.com/gdamore/tcell/v2",
		"draws what it is handed; the terminal library stays here and in cmd"},
	{"internal/telemetry/prom", "", "go.opentelemetry.io/otel/attribute go.opentelemetry.io/otel/sdk/metric/metricdata",
		"collected metrics to text: what they count is not its business"},
	{"internal/telemetry/otlp", "internal/safefile", "go.opentelemetry.io/otel/... google.golang.org/protobuf/encoding/protowire",
		"metrics and spans to a collector: what they count is not its business"},
	{"internal/telemetry", "session internal/telemetry/*", "go.opentelemetry.io/otel/...",
		"reads a session's accounts when somebody asks: no sampler calls it"},
	{"watch/trigger", "internal/plural stack calls iowatch trace/event diff", "",
		"rules over events and numbers that others bring, on a clock that they bring too"},
	{"watch/dumps", "", "",
		"a folder of files"},
	{"watch/notify", "internal/background", "",
		"commands, web hooks and the journal: what there is to tell is not its business"},
	{"watch/control", "internal/netlimit", "",
		"questions and answers of a recorder, on both sides of a socket"},
	{"watch/config", "watch/trigger", "go.yaml.in/yaml/v3",
		"a file's settings and triggers; what a setting means is cmd's business"},
	{"watch", "calls iowatch session/oneshot session/canary session/exact heap/hprof heap/graph heap/facts heap/leak heap/snapshot internal/background internal/safefile stack trace/event trace/flight ringbuf ringbuf/ringfile trace sampler target session export linux/syscalls watch/trigger watch/dumps watch/notify watch/control", "",
		"the flight recorder: joins session to rules, dumps and those who ask"},
	{"cmd/sliver", "*", "*",
		"flags and wiring"},
	{"bench/hprof", "", "",
		"runs sliver hprof as anybody would, beside other programs: it knows its command line alone"},
	{"bench/heapgen", "", "",
		"writes a heap dump of any size, whose retained sizes are known"},
	{"bench/iocost/floor", "", "github.com/cilium/ebpf github.com/cilium/ebpf/...",
		"programs that do nothing, for the cost of the tracepoints alone"},
	{"bench/names", "trace/event symbol/naming stack symbol trace", "",
		"the names of a recording without a process, beside other tools"},
	{"bench/toggle", "", "",
		"holds a running recorder and lets it go on: it looks at it from outside, as at the server"},
	{"bench/peers", "", "",
		"runs sliver as anybody would, beside others: it knows its command line alone"},
	{"bench/busy", "", "",
		"the same, on threads that all run, beside a C loop"},
	{"bench/accuracy", "", "",
		"the same, on programs that count their own CPU time"},
	{"bench/runtimes", "", "",
		"the same, beside profilers of Python, Node and Java"},
	{"internal/truth", "*", "*",
		"holds recordings against programs that know their own CPU time; nothing imports it"},
	{"session/internal/agree", "*", "*",
		"holds the unwinder against gdb and elfutils; nothing imports it"},
	{"internal/vmtest", "internal/testprog", "",
		"runs sliver in a virtual machine, by its command line; nothing imports it"},
	{"internal/testprog", "", "",
		"for tests: what it knew of the product, it could not test"},
	{"internal/hungfs", "internal/testprog", "github.com/hanwen/go-fuse/v2/...",
		"for tests: a file system that stops answering"},
	{"internal/otelreceiver", "internal/testprog", "",
		"for tests: the Collector's receiver, a module of its own"},
	{"internal/policy/typecheck", "", "",
		"a program of the checks, with the standard library's type checker"},
	{"internal/policy", "", "",
		"this test"},
}

// onlyTests are packages that only tests may import.
var onlyTests = []string{"internal/testprog", "session/internal/agree", "internal/policy", "internal/otelreceiver", "internal/hungfs", "internal/exporttest", "internal/dumptest"}

// file is one Go file of the module, with its package's folder relative to the root.
type file struct {
	path, dir string
	test      bool
	lines     int
	fset      *token.FileSet
	ast       *ast.File
}

// files parses every Go file of the module, for all systems and architectures, except
// files in testdata.
func files(t *testing.T) []file {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go files found")
	}
	return all
}

var parsed = sync.OnceValues(func() (all []file, err error) {
	root := filepath.Join("..", "..")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "testdata" || name == "node_modules" || rel != "." && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, rel, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, file{rel, filepath.ToSlash(filepath.Dir(rel)), strings.HasSuffix(name, "_test.go"),
			strings.Count(string(text), "\n"), fset, tree})
		return nil
	})
	return all, err
})

func (f *file) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// allows reports whether a list of the table contains the package.
func allows(list, pkg string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(p string) bool {
		if p == "*" || p == pkg {
			return true
		}
		if above, ok := strings.CutSuffix(p, "/*"); ok {
			below, ok := strings.CutPrefix(pkg, above+"/")
			return ok && !strings.Contains(below, "/")
		}
		above, ok := strings.CutSuffix(p, "/...")
		return ok && (pkg == above || strings.HasPrefix(pkg, above+"/"))
	})
}

func rowOf(pkg string) (row, bool) {
	for _, r := range table {
		if r.pkg == pkg {
			return r, true
		}
	}
	return row{}, false
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestImports(t *testing.T) {
	for _, f := range files(t) {
		r, known := rowOf(f.dir)
		if !known {
			continue // TestTableIsExact reports it
		}
		for _, path := range f.imports(t) {
			own, isOwn := strings.CutPrefix(path, module+"/")
			switch {
			case isOwn && f.test:
				if own == "internal/policy" {
					t.Errorf("%s imports %s: nothing does", f.path, own)
				}
			case f.test || standard(path):
			case isOwn && slices.Contains(onlyTests, own) && !slices.Contains(onlyTests, f.dir):
				t.Errorf("%s imports %s: only tests may", f.path, own)
			case isOwn && !allows(r.own, own):
				t.Errorf("%s imports %s: package %s may import %q of this module (%s)", f.path, own, r.pkg, r.own, r.why)
			case !isOwn && !allows(r.third, path):
				t.Errorf("%s imports %s: package %s may import %q of other modules (%s)", f.path, path, r.pkg, r.third, r.why)
			}
		}
	}
}

func TestTableIsExact(t *testing.T) {
	found := map[string]bool{}
	for _, f := range files(t) {
		found[f.dir] = true
	}
	for dir := range found {
		if _, ok := rowOf(dir); !ok {
			t.Errorf("package %s is not in the table of imports: say what it may import, and why", dir)
		}
	}
	var missing []string
	for i, r := range table {
		if !found[r.pkg] {
			missing = append(missing, r.pkg)
		}
		if slices.ContainsFunc(table[:i], func(o row) bool { return o.pkg == r.pkg }) {
			t.Errorf("package %s is in the table twice", r.pkg)
		}
		if r.why == "" {
			t.Errorf("package %s: no reason", r.pkg)
		}
	}
	switch {
	case complete && len(missing) > 0:
		t.Errorf("in the table of imports, but not there: %v", missing)
	case !complete && len(missing) == 0:
		t.Error("every package of the table is there: set complete")
	case !complete:
		t.Logf("not written yet: %v", missing)
	}
}

// Every import listed in a row comes earlier in the table: the diagram has no cycles and
// reads from left to right.
func TestTableIsInOrder(t *testing.T) {
	for i, r := range table {
		for _, below := range table[i+1:] {
			if r.own != "*" && allows(r.own, below.pkg) && !strings.HasPrefix(below.pkg, "internal/") {
				t.Errorf("%s may import %s, which stands below it", r.pkg, below.pkg)
			}
		}
		for _, p := range strings.Fields(r.own) {
			if _, known := rowOf(p); p != "*" && !strings.HasSuffix(p, "/*") && !known {
				t.Errorf("%s may import %s, which is not in the table", r.pkg, p)
			}
		}
	}
}

// The compiler's checks end at unsafe, so file names mark those places.
func TestUnsafeIsInFilesThatSaySo(t *testing.T) {
	for _, f := range files(t) {
		if slices.Contains(f.imports(t), "unsafe") && !strings.Contains(filepath.Base(f.path), "_unsafe") {
			t.Errorf("%s imports unsafe: only *_unsafe.go files may", f.path)
		}
	}
}

// Only package target traces. It, the engines and the command line call the
// kernel directly.
func TestTheKernelIsTargetsBusiness(t *testing.T) {
	for _, f := range files(t) {
		if f.dir == "target" || f.test {
			continue
		}
		if slices.Contains(f.imports(t), "golang.org/x/sys/unix") && !strings.HasPrefix(f.dir, "cmd/") && !strings.HasPrefix(f.dir, "engine/") && f.dir != "internal/background" && f.dir != "internal/perfring" && f.dir != "internal/safefile" && f.dir != "internal/caps" {
			t.Errorf("%s imports x/sys/unix: only package target, engine/*, internal/background, internal/perfring, internal/safefile, internal/caps and cmd may", f.path)
		}
		if f.dir == "internal/testprog" {
			continue // checks whether tests may trace
		}
		f.selectors(func(at token.Position, pkg, name string) {
			if (pkg == "syscall" || pkg == "unix") && strings.HasPrefix(strings.ToLower(strings.TrimPrefix(name, "SYS_")), "ptrace") {
				t.Errorf("%v: %s.%s: only package target traces", at, pkg, name)
			}
		})
	}
}

// A test that sleeps is slow on an idle machine and wrong on a busy one.
func TestTestsDoNotSleep(t *testing.T) {
	for _, f := range files(t) {
		if !f.test {
			continue
		}
		f.selectors(func(at token.Position, pkg, name string) {
			if pkg == "time" && name == "Sleep" {
				t.Errorf("%v: time.Sleep in a test: wait for a condition", at)
			}
		})
	}
}

// selectors calls yield for every pkg.Name of the file.
func (f *file) selectors(yield func(at token.Position, pkg, name string)) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok {
				yield(f.fset.Position(sel.Pos()), pkg.Name, sel.Sel.Name)
			}
		}
		return true
	})
}

func TestFilesAreShort(t *testing.T) {
	const limit = 600
	for _, f := range files(t) {
		if f.lines > limit && !f.test && !ast.IsGenerated(f.ast) {
			t.Errorf("%s has %d lines: split files above %d", f.path, f.lines, limit)
		}
	}
}

func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	said := map[string]bool{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		want := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			want = ""
		}
		said[f.dir] = said[f.dir] || f.ast.Doc != nil && strings.HasPrefix(f.ast.Doc.Text(), want)
	}
	for dir, ok := range said {
		if !ok {
			t.Errorf("package %s has no comment that begins with its name", dir)
		}
	}
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		list, pkg string
		want      bool
	}{
		{"", "stack", false},
		{"stack event", "event", true},
		{"unwind", "unwind/cfi", false},
		{"unwind/*", "unwind/cfi", true},
		{"unwind/*", "unwind", false},
		{"unwind/*", "unwind/cfi/x", false},
		{"a.org/x/...", "a.org/x/y/z", true},
		{"a.org/x/...", "a.org/x", true},
		{"a.org/x/...", "a.org/xy", false},
		{"*", "anything", true},
	} {
		if got := allows(c.list, c.pkg); got != c.want {
			t.Errorf("allows(%q, %q) = %v", c.list, c.pkg, got)
		}
	}
}

// TestWings: the top of the tree has at most 22 folders of packages beside cmd, examples and internal, and
// each has a package comment: its job, and the limits of that.
func TestWings(t *testing.T) {
	comments := map[string]string{}
	for _, f := range files(t) {
		wing, _, _ := strings.Cut(f.dir, "/")
		if _, ok := comments[wing]; !ok {
			comments[wing] = ""
		}
		if f.dir == wing && !f.test && f.ast.Doc != nil {
			comments[wing] += f.ast.Doc.Text()
		}
	}
	for _, other := range []string{".", "", "bench", "cmd", "docs", "examples", "internal", "testdata"} {
		delete(comments, other)
	}
	if len(comments) > 22 {
		t.Errorf("%d folders at the top", len(comments))
	}
	for wing, text := range comments {
		if len(text) < 100 || !strings.HasPrefix(text, "Package ") {
			t.Errorf("the comment of package %s has %d bytes: say what it does, and what it leaves to others", wing, len(text))
		}
	}
}
