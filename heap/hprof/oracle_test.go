package hprof

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// program returns the path of another reader of dumps, on the path or where
// test.sh puts it. Without it the test is skipped, or fails where it is required.
func program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{filepath.Join(testprog.CacheDir(t), name, "bin"), "/usr/lib/android-sdk/platform-tools"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name)
		}
	}
	testprog.Lack(t, name, "neither on the path nor in the cache")
	return ""
}

// plainFile writes a dump decompressed into a folder of the test.
func plainFile(t testing.TB, dump []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dump.hprof")
	if err := os.WriteFile(path, dump, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var slurpLine = regexp.MustCompile(`(?m)^(?:\.\.GC )?([A-Za-z0-9 -]+): (\d+)$`)

// hprof-slurp counts the same records and sub-records.
func TestCountsOfSlurp(t *testing.T) {
	testprog.Whole(t, "TestCheckCorpus reads the same dumps")
	slurp := program(t, "hprof-slurp")
	eachDump(t, func(t *testing.T, dump []byte) {
		if strings.HasSuffix(t.Name(), "/own") {
			t.Skip("hprof-slurp reads one header")
		}
		out, err := exec.Command(slurp, "-t", "1", plainFile(t, dump)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		infos, err := ReadInfo(bytes.NewReader(dump))
		if err != nil {
			t.Fatal(err)
		}
		// hprof-slurp counts a class once that two records say is loaded.
		_, classes := contents(t, dump)
		records, subs := [256]int64{}, [256]int64{}
		for _, i := range infos {
			for tag := range 256 {
				records[tag] += i.Records[tag].Count
				subs[tag] += i.Subs[tag].Count
			}
		}
		want := map[string]int64{
			"UTF-8 Strings": records[TagString], "Classes loaded": int64(len(classes)), "Classes unloaded": records[TagUnloadClass],
			"Stack traces": records[TagTrace], "Stack frames": records[TagFrame], "Start threads": records[TagStartThread],
			"End threads": records[TagEndThread], "Allocation sites": records[TagAllocSites], "Control settings": records[TagControl],
			"CPU samples": records[TagCPUSamples], "Heap summaries": records[TagHeapSummary],
			"root unknown": subs[SubRootUnknown], "root thread objects": subs[SubRootThread], "root JNI global": subs[SubRootJNIGlobal],
			"root JNI local": subs[SubRootJNILocal], "root Java frame": subs[SubRootJavaFrame], "root native stack": subs[SubRootNative],
			"root sticky class": subs[SubRootSticky], "root thread block": subs[SubRootBlock], "root monitor used": subs[SubRootMonitor],
			"primitive array dump": subs[SubPrimitiveArray], "object array dump": subs[SubObjectArray], "class dump": subs[SubClass],
			"instance dump": subs[SubInstance], "root interned string": subs[SubRootInterned], "root finalizing": subs[SubRootFinalizing],
			"root debugger": subs[SubRootDebugger], "root reference cleanup": subs[SubRootCleanup], "root VM internal": subs[SubRootVMInternal],
			"root JNI monitor": subs[SubRootJNIMonitor], "unreachable": subs[SubUnreachable], "heap dump info": subs[SubHeapInfo],
		}
		seen := 0
		for _, m := range slurpLine.FindAllStringSubmatch(string(out), -1) {
			n, known := want[m[1]]
			if !known {
				continue
			}
			seen++
			if m[2] != fmt.Sprint(n) {
				t.Errorf("%s: hprof-slurp has %s, we %d", m[1], m[2], n)
			}
		}
		if seen < 22 {
			t.Errorf("only %d counts of hprof-slurp's:\n%.2000s", seen, out)
		}
	})
}

// Perfetto's trace_processor has as many objects, where each class is one as well.
func TestCountsOfPerfetto(t *testing.T) {
	testprog.Whole(t, "own counts are compared by the other tests")
	dir := testprog.Perfetto(t)
	node := testprog.Tool(t, "node")
	eachDump(t, func(t *testing.T, dump []byte) {
		if strings.HasSuffix(t.Name(), "/own") || len(dump) > 20<<20 {
			t.Skip("trace_processor reads one dump, and none of this size here")
		}
		infos, err := ReadInfo(bytes.NewReader(dump))
		if err != nil {
			t.Fatal(err)
		}
		if len(infos) > 1 {
			t.Skip("several dumps")
		}
		if testing.Short() && infos[0].Version != version3 {
			t.Skip("not of Android, with -short")
		}
		cmd := exec.Command(node, filepath.Join(testprog.Root(t), "testdata/verify/perfetto_query.mjs"), plainFile(t, dump), "select count(*) n from heap_graph_object")
		cmd.Env = append(os.Environ(), "TP_DIR="+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`│ 0 +│ (\d+) +│`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("no count: %s", out)
		}
		if got, want := string(m[1]), infos[0].Objects().Count+infos[0].Subs[SubClass].Count; got != fmt.Sprint(want) {
			t.Errorf("trace_processor has %s objects and classes, we %d", got, want)
		}
	})
}

// Dumps of jcmd of each JDK, plain and gzip of several members, go through all.
func TestJDKs(t *testing.T) {
	testprog.Whole(t, "TestPack has dumps of these versions")
	testprog.Unraced(t, "one goroutine reads a dump")
	for i, version := range []string{"17", "21", "25"} {
		if i > 0 && os.Getenv("SLIVER_LONG") == "" {
			break // packing takes half a minute for each
		}
		t.Run(version, func(t *testing.T) {
			java := testprog.Tool(t, "java"+version)
			javac := testprog.Tool(t, "javac")
			dir := t.TempDir()
			if out, err := exec.Command(javac, "--release", "17", "-d", dir, "testdata/Kept.java").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			cmd := exec.Command(java, "-Xmx200m", "-cp", dir, "Kept")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait() //nolint:errcheck // it ends as its input does
			defer in.Close()
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready") {
				t.Fatal(line, err)
			}
			real, err := filepath.EvalSymlinks(java)
			if err != nil {
				t.Fatal(err)
			}
			jcmd := filepath.Join(filepath.Dir(real), "jcmd")
			if _, err := os.Stat(jcmd); err != nil {
				testprog.Lack(t, "java"+version, "no jcmd beside it")
			}
			for _, file := range []string{"a.hprof", "b.hprof.gz"} {
				args := []string{strconv.Itoa(cmd.Process.Pid), "GC.heap_dump", "-all", "-overwrite"}
				path := filepath.Join(dir, file)
				if strings.HasSuffix(file, ".gz") {
					args = append(args, "-gz=1")
				}
				if b, err := exec.Command(jcmd, append(args, path)...).CombinedOutput(); err != nil || !bytes.Contains(b, []byte("Heap dump file created")) {
					t.Fatalf("%v: %s", err, b)
				}
				dump := plain(t, path)
				if strings.HasSuffix(file, ".gz") {
					b, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					if gzipMembers(t, b) < 2 {
						t.Error("the gzip has one member: that several are read is not tried")
					}
					if _, findings, err := Check(bytes.NewReader(dump), t.TempDir()); err != nil || len(findings) > 0 {
						t.Error(findings, err)
					}
					continue
				}
				whole(t, dump)
			}
		})
	}
}

func gzipMembers(t *testing.T, b []byte) int {
	t.Helper()
	r := bytes.NewReader(b)
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		z.Multistream(false)
		if _, err := io.Copy(io.Discard, z); err != nil {
			t.Fatal(err)
		}
		if err := z.Reset(r); err != nil {
			return n
		}
	}
}

// whole takes a dump of Kept through all that there is.
func whole(t *testing.T, dump []byte) {
	t.Helper()
	infos, findings, err := Check(bytes.NewReader(dump), t.TempDir())
	if err != nil || len(findings) > 0 || len(infos) != 1 {
		t.Fatal(len(infos), findings, err)
	}
	if n := infos[0].Subs[SubInstance].Count; n < 40_000 {
		t.Errorf("%d instances, Kept alone has 20,000 nodes and as many integers", n)
	}
	for _, typ := range []Type{TypeBoolean, TypeChar, TypeFloat, TypeDouble, TypeByte, TypeShort, TypeInt, TypeLong} {
		if infos[0].Arrays[typ].Count == 0 {
			t.Errorf("no %s[]", typ)
		}
	}
	var copied bytes.Buffer
	if err := Copy(&copied, bytes.NewReader(dump)); err != nil || !bytes.Equal(copied.Bytes(), dump) {
		t.Error("the copy is not the dump", err)
	}
	for _, rule := range []Rule{Shark, Matrix, Koom} {
		for _, keep := range []bool{false, true} {
			got := strip(t, dump, StripOptions{Rule: rule, KeepStrings: keep, RedactConstants: keep})
			secret := bytes.Count(got, []byte("the password of Kept is 4711"))
			// As a string record, and where strings are kept as the value of one.
			if want := map[bool]int{false: 1, true: 1}[keep]; rule == Shark && secret != want {
				t.Errorf("%s: the constant is there %d times, want %d", rule, secret, want)
			}
			if rule == Koom && !keep {
				var filled bytes.Buffer
				if err := Fill(&filled, bytes.NewReader(got)); err != nil || !bytes.Equal(filled.Bytes(), zeroed(t, dump)) {
					t.Error("filled it is not the dump with zeros", err)
				}
			}
			if _, findings, err := Check(bytes.NewReader(got), t.TempDir()); err != nil || len(findings) > 0 {
				t.Errorf("%s: %v, %v", rule, findings, err)
			}
		}
	}
	p, k := packed(t, dump), packed(t, strip(t, dump, StripOptions{Rule: Koom}))
	z := gzipped(t, dump)
	t.Logf("%d bytes, gzip %d, packed %.3f of that, with KOOM's content %.3f", len(dump), z, float64(len(p))/float64(z), float64(len(k))/float64(z))
	if float64(len(p)) > 0.55*float64(z) {
		t.Error("that is more than 0.55")
	}
	convert(t, dump, ConvertOptions{})
}
