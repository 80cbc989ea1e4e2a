package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// goneSource spins; with an argument it first executes a copy of itself that is in no file system.
const goneSource = `#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>
volatile unsigned long turns;
__attribute__((noinline)) void spins_here(void) { for (;;) turns++; }
int main(int argc, char **argv) {
	if (argc > 1) {
		int from = open("/proc/self/exe", O_RDONLY), to = memfd_create("gone", MFD_CLOEXEC);
		while (sendfile(to, from, 0, 1 << 20) > 0) ;
		char *args[] = {"gone", 0}, *env[] = {0};
		fexecve(to, args, env);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	spins_here();
}
`

// compile builds a C program in a file of its own.
func compile(t *testing.T, text, source, path string) {
	t.Helper()
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-g", "-O1", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestNamesOfGoneFiles: a program whose file cannot be found by its path must still
// have names and lines. The file was deleted, replaced by another one, is on an overlay
// that only the program sees, or is only in memory.
func TestNamesOfGoneFiles(t *testing.T) {
	testprog.Need(t, "ptrace", "gcc")
	for _, how := range []string{"deleted", "replaced", "overlay", "memfd"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			lower := filepath.Join(dir, "lower")
			for _, d := range []string{"lower", "upper", "merged"} {
				if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			path, source := filepath.Join(lower, "gone"), filepath.Join(dir, "gone.c")
			compile(t, goneSource, source, path)
			cmd := exec.Command(path)
			switch how {
			case "memfd":
				cmd = exec.Command(path, "again")
			case "overlay":
				mounts := "mount -t tmpfs none " + dir + "/upper && mkdir " + dir + "/upper/u " + dir + "/upper/w && " +
					"mount -t overlay none -o lowerdir=" + lower + ",upperdir=" + dir + "/upper/u,workdir=" + dir + "/upper/w " + dir + "/merged"
				if out, err := exec.Command("unshare", "-m", "sh", "-c", mounts).CombinedOutput(); err != nil {
					t.Skipf("no overlay can be mounted here: %v: %s", err, out)
				}
				// It is modified there, so that it is in the upper layer.
				cmd = exec.Command("unshare", "-m", "sh", "-c", mounts+" && touch "+dir+"/merged/gone && exec "+dir+"/merged/gone")
			}
			prog := testprog.StartCmd(t, cmd)
			prog.Line("ready")
			switch how {
			case "replaced":
				other := filepath.Join(dir, "other")
				if out, err := exec.Command("gcc", "-g", "-O0", "-o", other, source).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if err := os.Rename(other, path); err != nil {
					t.Fatal(err)
				}
			default:
				if err := os.Remove(path); err != nil && how != "overlay" {
					t.Fatal(err)
				}
			}
			rec := recordWith(t, prog.PID, Options{Interval: 2 * time.Millisecond}, func(s stack.ThreadStats) bool { return s.Samples > 20 })
			for _, frames := range rec.Symbols.Locs {
				for _, f := range frames {
					if fn := rec.Symbols.Funcs[f.Func]; fn.Name == "spins_here" && strings.HasSuffix(f.File, "gone.c") && f.Line == 8 {
						return
					}
				}
			}
			t.Errorf("functions %+v", rec.Symbols.Funcs)
		})
	}
}
