package policy

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// opens are the files that may open other files by themselves. They must not open a path
// chosen by a target, a recording or the network: package internal/safefile opens those,
// and the ones that the user named.
var opens = []struct{ file, why string }{
	{"internal/safefile/", "the one place"},
	{"internal/elffile/", "ELF files with bounds on what their headers say"},
	{"target/", "/proc, /sys and their like, below the directory of one process that is held open"},
	{"engine/ptrace/engine.go", "/sys/devices/system/cpu/nohz_full"},
	{"linux/procdir/procdir.go", "/proc"},
	{"watch/control/alive.go", "/proc, and the folder of this user's sockets"},
	{"internal/limits/", "/proc and /sys/fs/cgroup, of this process"},
	{"ringbuf/ringfile/claim.go", "ring files: no links, no waiting, no terminal"},
	{"symbol/cache/cache.go", "makes files in a folder of its own"},
	{"export/push/spool.go", "makes files in a folder of its own"},
	{"internal/outfile/outfile.go", "makes the user's outputs"},
	{"internal/outfile/partial.go", "this user's unfinished outputs: no links, no waiting, no terminal"},
	{"watch/owner.go", "makes a file beside a ring file"},
	{"export/internal/spill/spill.go", "a file without a name"},
	{"heap/hprof/open.go", "dumps that the user named, and a file without a name"},
	{"heap/graph/arena_unsafe.go", "a file without a name"},
	{"heap/hprof/join.go", "a file without a name"},
	{"heap/hprof/output.go", "makes the user's outputs"},
	{"export/foreign/sort.go", "a file without a name"},
	{"web/store/spill.go", "a file without a name"},
	{"cmd/sliver/input.go", "a file without a name"},
	{"cmd/sliver/signals.go", "/proc, of this process"},
	{"cmd/sliver/hprof.go", "dumps that the user named"},
	{"cmd/sliver/gendocs.go", "pages about the commands, written by a developer"},
	{"cmd/sliver/demo.go", "the program that is looked at"},
	{"linux/syscalls/gen.go", "writes the package's tables"},
	{"session/kernelstacks.go", "/proc/PID/task/TID/stack"},
	{"symbol/kallsyms/kallsyms.go", "/proc/kallsyms, and why it is empty"},
	{"engine/kernel/kernel.go", "/proc/PID/statm"},
	{"engine/kernel/types.go", "/sys"},
	{"engine/kernel/rights.go", "/sys, and this program's own file"},
	{"engine/kernel/iocalls.go", "numbers of system calls that are watched"},
	{"engine/kernel/io_amd64.go", "the same"},
	// None of these is part of the program.
	{"examples/", ""}, {"bench/", ""}, {"internal/testprog/", ""}, {"internal/otelreceiver/", ""},
	{"internal/exporttest/", ""}, {"web/internal/", ""},
}

// openers are the functions that open or create files by path.
var openers = map[string][]string{
	"os":      {"Open", "OpenFile", "ReadFile", "WriteFile", "Create", "CreateTemp", "OpenRoot", "OpenInRoot", "DirFS", "CopyFS", "Truncate"},
	"unix":    {"Open", "Openat", "Openat2", "Creat", "OpenTree", "OpenByHandleAt", "Mknod", "SYS_OPEN", "SYS_OPENAT", "SYS_OPENAT2"},
	"syscall": {"Open", "Openat", "Creat", "Mknod", "SYS_OPEN", "SYS_OPENAT", "SYS_CREAT"},
	"ioutil":  {"ReadFile", "WriteFile", "TempFile"},
	"elf":     {"Open", "NewFile"},
}

func TestOnlySafefileOpensPathsOfOthers(t *testing.T) {
	used := make([]bool, len(opens))
	for _, f := range files(t) {
		if f.test {
			continue
		}
		i := slices.IndexFunc(opens, func(o struct{ file, why string }) bool {
			return f.path == o.file || strings.HasSuffix(o.file, "/") && strings.HasPrefix(f.path, o.file)
		})
		f.selectors(func(at token.Position, pkg, name string) {
			switch {
			case !slices.Contains(openers[pkg], name):
			case i < 0:
				t.Errorf("%v: %s.%s: open what others chose with package internal/safefile, or say in the table what this opens", at, pkg, name)
			default:
				used[i] = true
			}
		})
	}
	for i, o := range opens {
		if !used[i] {
			t.Errorf("%s opens nothing: take it out of the table", o.file)
		}
	}
}

// The links in a process's directory lead to files of the target: package target opens
// none of them itself.
func TestTargetOpensNoLinks(t *testing.T) {
	for _, f := range files(t) {
		if f.dir != "target" || f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok || len(c.Args) == 0 {
				return true
			}
			sel, ok := c.Fun.(*ast.SelectorExpr)
			lit, isText := c.Args[0].(*ast.BasicLit)
			if !ok || !isText || !slices.Contains([]string{"openat", "file", "read"}, sel.Sel.Name) {
				return true
			}
			name, _ := strconv.Unquote(lit.Value)
			switch first, _, _ := strings.Cut(name, "/"); first {
			case "exe", "root", "cwd", "map_files":
				t.Errorf("%v: %s is opened: leave that to package internal/safefile", f.fset.Position(c.Pos()), name)
			}
			return true
		})
	}
}
