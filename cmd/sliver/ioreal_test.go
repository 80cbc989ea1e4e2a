package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// straced runs a command under strace -c in a folder, and returns the calls and errors by system call.
func straced(t *testing.T, dir, input string, argv ...string) map[string][2]uint64 {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		testprog.Lack(t, "strace", err.Error())
	}
	table := filepath.Join(t.TempDir(), "counts")
	cmd := exec.Command(strace, append([]string{"-f", "-c", "-o", table}, argv...)...)
	cmd.Stdin, cmd.Dir = strings.NewReader(input), dir
	if out, err := cmd.CombinedOutput(); err != nil {
		testprog.Lack(t, "strace", fmt.Sprintf("%v: %s", err, out))
	}
	b, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string][2]uint64{}
	for _, line := range strings.Split(string(b), "\n") { // % time, seconds, usecs/call, calls, errors, name
		f := strings.Fields(line)
		if len(f) < 5 || len(f) > 6 {
			continue
		}
		calls, err := strconv.ParseUint(f[3], 10, 64)
		if err != nil {
			continue
		}
		x := [2]uint64{calls, 0}
		if len(f) == 6 {
			if x[1], err = strconv.ParseUint(f[4], 10, 64); err != nil {
				t.Fatal(line)
			}
		}
		counts[f[len(f)-1]] = x
	}
	return counts
}

// ioWatched runs a command under sliver io in a folder.
func ioWatched(t *testing.T, dir, input string, argv ...string) ioReport {
	t.Helper()
	cmd := slivercmd(t, dir, append([]string{"io", "--json", "--"}, argv...)...)
	cmd.Stdin = strings.NewReader(input)
	r := runCmd(t, cmd)
	bpf(t, r)
	var got ioReport
	if i := strings.Index(r.out, "{\n"); i < 0 || r.status != 0 {
		t.Fatalf("%+v", r)
	} else if err := json.Unmarshal([]byte(r.out[i:]), &got); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	got.Lost = dropped(got.Lost)
	return got
}

// dropped leaves out that stacks lack frames: on a busy machine, a command may end before sliver has read its maps.
func dropped(lost []string) []string {
	return slices.DeleteFunc(slices.Clone(lost), func(l string) bool { return strings.Contains(l, " stacks lack frames: ") })
}

// TestIORealPrograms compares the calls of real programs with those that strace -c counts, each run in a
// folder of its own with the same files, and the bytes of their files with the sizes.
func TestIORealPrograms(t *testing.T) {
	testprog.Whole(t, "TestRecordIO has the sums of a program that knows them")
	testprog.Need(t, "ptrace")
	const files, size = 30, 100_000
	fresh := func(t *testing.T) string {
		dir := t.TempDir()
		for i := range files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("data%02d", i)), []byte(strings.Repeat("a line\n", size/7)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	inserts := "create table t(a);" + strings.Repeat("insert into t values(1);", 20) + "select count(*) from t;"
	for name, c := range map[string]struct {
		argv    []string
		calls   []string // that must be there
		read    string   // a file that is read to its end; "": none
		written string   // a file that is written once
		syncs   string   // a file that is synced for each insert
	}{
		"tar":     {[]string{"tar", "-cf", "all.tar", "--exclude=all.tar", "."}, []string{"read", "write", "openat", "close"}, "data07", "all.tar", ""},
		"cp":      {[]string{"cp", "--reflink=never", "-r", "--sparse=always", "data03", "data04", "data05", "copies"}, []string{"read", "write", "openat", "close"}, "data04", "copies/data04", ""},
		"grep":    {[]string{"grep", "-rc", "line", "."}, []string{"read", "write", "openat", "close"}, "data29", "", ""},
		"sqlite3": {[]string{"sqlite3", "x.db", inserts}, []string{"read", "pread64", "pwrite64", "openat", "close"}, "", "", "x.db"},
	} {
		t.Run(name, func(t *testing.T) {
			tool, err := exec.LookPath(c.argv[0])
			if err != nil {
				testprog.Lack(t, c.argv[0], err.Error())
			}
			argv := append([]string{tool}, c.argv[1:]...)
			var dirs [2]string
			for i := range dirs {
				dirs[i] = fresh(t)
				if err := os.Mkdir(filepath.Join(dirs[i], "copies"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			want := straced(t, dirs[0], "", argv...)
			got := ioWatched(t, dirs[1], "", argv...)
			counts := map[string][2]uint64{}
			for _, x := range got.Calls {
				if counts[x.Call] = [2]uint64{x.Calls, x.Errors}; counts[x.Call] != want[x.Call] {
					t.Errorf("%s: %d calls, %d errors; strace has %v", x.Call, x.Calls, x.Errors, want[x.Call])
				}
			}
			for _, call := range c.calls {
				if counts[call][0] == 0 {
					t.Errorf("%s is missing in %+v", call, got.Calls)
				}
			}
			if len(got.Lost) > 0 {
				t.Errorf("lost: %q", got.Lost)
			}
			found := 0
			for _, f := range got.Files {
				switch rel, err := filepath.Rel(dirs[1], f.Path); {
				case err != nil:
				case rel == c.read:
					found++
					if f.Read != size/7*7 {
						t.Errorf("%d bytes of %s are read: %+v", f.Read, rel, f)
					}
				case rel == c.written:
					found++
					if fi, err := os.Stat(f.Path); err != nil || f.Written != uint64(fi.Size()) {
						t.Errorf("%d bytes of %s are written: %v, %v", f.Written, rel, fi, err)
					}
				case rel == c.syncs:
					found++
					if f.Syncs < 21 { // the table and the rows
						t.Errorf("%+v", f)
					}
				}
			}
			wanted := 0
			for _, name := range []string{c.read, c.written, c.syncs} {
				if name != "" {
					wanted++
				}
			}
			if found != wanted {
				var names []string
				for _, f := range got.Files {
					names = append(names, f.Path)
				}
				t.Errorf("%d of %d files are in %q", found, wanted, names)
			}
		})
	}
}
