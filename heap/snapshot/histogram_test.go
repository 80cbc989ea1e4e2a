package snapshot

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/testprog"
)

// The numbers of objects and bytes by class are those of GC.class_histogram -all. Stretches of the heap that begin within
// the array of decoys are walked again, from where the array ends.
func TestHistogram(t *testing.T) {
	testprog.Unraced(t, oneGoroutine)
	for _, version := range []string{"17", "21", "25"} {
		t.Run(version, func(t *testing.T) {
			proc := java(t, version, "map,list,threadlocal,duplicates,fill,decoys", "-XX:+UseSerialGC")
			jcmd(t, proc.PID, "VM.version")
			j := take(t, open(t, proc.PID))
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			ours := map[string][2]uint64{}
			for _, c := range j.Heap.Classes {
				n := ours[c.Name]
				ours[c.Name] = [2]uint64{n[0] + c.Count, n[1] + c.Bytes}
			}
			compared := 0
			for line := range strings.Lines(jcmd(t, proc.PID, "GC.class_histogram", "-all")) {
				f := strings.Fields(line) // 1: 8000 7872000 HeapLeaks$Listener
				if len(f) < 4 || !strings.HasSuffix(f[0], ":") {
					continue
				}
				count, err1 := strconv.ParseUint(f[1], 10, 64)
				bytes, err2 := strconv.ParseUint(f[2], 10, 64)
				if err1 != nil || err2 != nil {
					continue
				}
				name := strings.ReplaceAll(f[3], ".", "/")
				got := ours[name]
				// jcmd's own thread allocates: a few objects more.
				if near := count/200 + 250; got[0]+near < count || got[0] > count+near/10 || got[1] > bytes+bytes/100 {
					t.Errorf("%s: %d objects, %d bytes; jcmd has %d and %d", name, got[0], got[1], count, bytes)
				}
				compared++
			}
			if n := ours["HeapLeaks$Listener"]; n[0] != 8000 || compared < 200 {
				t.Errorf("%d classes compared, %d listeners", compared, n[0])
			}
		})
	}
}

// Copied again and again under allocation and collections, a virtual machine lives on, and
// each copy opens.
func TestChurn(t *testing.T) {
	n := 6
	switch {
	case os.Getenv("SLIVER_LONG") != "":
		n = 100
	case testing.Short():
		n = 2
	}
	for _, flags := range [][]string{{"25", "-XX:+UseG1GC", "churn"}, {"21", "-XX:+UseParallelGC", "churn"}, {"17", "-XX:+UseSerialGC", "churn"},
		{"25", "-XX:+UseG1GC", "unload"}, {"17", "-XX:+UseG1GC", "unload"}} {
		t.Run(strings.Join(flags, ""), func(t *testing.T) {
			if testing.Short() && (flags[0] != "25" || flags[2] != "churn") {
				t.Skip("the short form takes one of the forms only")
			}
			dir := folder(t)
			proc := java(t, flags[0], flags[2], flags[1], "-Xmx48m", "-XX:ErrorFile="+filepath.Join(dir, "hs_err"))
			p := open(t, proc.PID)
			var gaps, nulled, objects uint64
			for i := range n {
				j := take(t, p)
				path := filepath.Join(dir, "x.hprof")
				d := write(t, j, path)
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				gaps, nulled, objects = gaps+j.Heap.Gaps, nulled+d.Nulled(), objects+j.Heap.Objects
				if i == 0 {
					dangling(t, load(t, path))
				}
			}
			t.Logf("%d copies: %d objects, %d places skipped, %d references dropped", n, objects, gaps, nulled)
			if nulled > objects/100 || gaps > uint64(20*n) {
				t.Errorf("%d places skipped, %d references dropped of %d objects", gaps, nulled, objects)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "hs_err*")); len(left) > 0 {
				t.Errorf("the virtual machine crashed: %v", left)
			}
			if err := unix.Kill(proc.PID, 0); err != nil {
				t.Errorf("the virtual machine has ended: %v", err)
			}
			for _, pid := range zombies(t, proc.PID) {
				t.Errorf("zombie %d is left", pid)
			}
		})
	}
}

// zombies lists the children of a process that have ended.
func zombies(t testing.TB, pid int) (all []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) > 1 && f[0] == "Z" && f[1] == strconv.Itoa(pid) {
			n, _ := strconv.Atoi(strings.Split(name, "/")[2])
			all = append(all, n)
		}
	}
	return all
}
