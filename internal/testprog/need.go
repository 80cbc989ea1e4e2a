package testprog

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// RequireVar names the environment variable that turns skips into failures: a
// comma-separated list of words that Need knows, or "all".
const RequireVar = "SLIVER_REQUIRE"

// tools are the words for Need that name a program, with the file names or patterns to
// search for.
var tools = map[string][]string{
	"gcc":          {"gcc"},
	"g++":          {"g++"},
	"musl-gcc":     {"musl-gcc"},
	"arm64-gcc":    {"aarch64-linux-gnu-gcc"},
	"qemu-arm64":   {"qemu-aarch64-static", "qemu-aarch64"},
	"rustc":        {"rustc"},
	"gdc":          {"gdc"},
	"ldc2":         {"ldc2"},
	"go":           {"go"},
	"node":         {"node"},
	"node18":       nodes("18"),
	"node22":       nodes("22"),
	"node24":       nodes("24"),
	"closure":      {filepath.Join(toolCache(), "closure", "compiler")},
	"ncc":          {filepath.Join(toolCache(), "ncc", "dist", "ncc", "index.js")},
	"chromium":     {"chromium", "chromium-browser", "google-chrome"},
	"firefox":      {"firefox-esr", "firefox"},
	"gdb":          {"gdb"},
	"eu-stack":     {"eu-stack"},
	"strace":       {"strace"},
	"objcopy":      {"objcopy"},
	"objdump":      {"objdump"},
	"strip":        {"strip"},
	"nm":           {"nm"},
	"readelf":      {"readelf"},
	"c++filt":      {"c++filt"},
	"xz":           {"xz"},
	"dwz":          {"dwz"},
	"redis":        {"redis-server"},
	"redis-cli":    {"redis-cli"},
	"nginx":        {"nginx", "/usr/sbin/nginx"},
	"postgres":     {"postgres", "/usr/lib/postgresql/*/bin/postgres"},
	"initdb":       {"initdb", "/usr/lib/postgresql/*/bin/initdb"},
	"pgbench":      {"pgbench", "/usr/lib/postgresql/*/bin/pgbench"},
	"psql":         {"psql"},
	"sqlite3":      {"sqlite3"},
	"setpriv":      {"setpriv"},
	"make":         {"make"},
	"gzip":         {"gzip"},
	"git":          {"git"},
	"unshare":      {"unshare"},
	"schemathesis": {filepath.Join(toolCache(), "schemathesis", "bin", "schemathesis")},
	"flask":        {filepath.Join(toolCache(), "flask", "flask", "__init__.py")},
	"npm":          {"npm"},
	"py-spy":       {"py-spy", filepath.Join(toolCache(), "py-spy", "bin", "py-spy")},
	"dlv":          {"dlv", filepath.Join(goPath(), "bin", "dlv")},

	// A virtual machine: the folder has the kernel, and what else their image needs.
	"qemu-system-arm64": {"qemu-system-aarch64"},
	"qemu-system-amd64": {"qemu-system-x86_64"},
	"vm-arm64":          {filepath.Join(toolCache(), "vm-arm64", "linux-image-*.deb")},
	"vm-amd64":          {filepath.Join(toolCache(), "vm-amd64", "linux-image-*.deb")},
	"dpkg-deb":          {"dpkg-deb"},

	"systemd-analyze": {"systemd-analyze"},
	"python3":         {"/usr/bin/python3", "python3"}, // the system's first, then that of an environment
	"python3.7":       pythons("3.7"),
	"python3.8":       pythons("3.8"),
	"python3.9":       pythons("3.9"),
	"python3.10":      pythons("3.10"),
	"python3.11":      pythons("3.11"),
	"python3.12":      pythons("3.12"),
	"python3.13":      pythons("3.13"),
	"python3.14":      pythons("3.14"),
	"ruby3.1":         rubies("3.1"),
	"ruby3.3":         rubies("3.3"),
	"ruby3.4":         rubies("3.4"),
	"ruby3.1-arm64":   {filepath.Join(toolCache(), "ruby3.1-arm64", "bin", "ruby3.1")},
	"ruby3.3-arm64":   {filepath.Join(toolCache(), "ruby3.3-arm64", "bin", "ruby3.3")},
	"ruby3.4-arm64":   {filepath.Join(toolCache(), "ruby3.4-arm64", "bin", "ruby3.4")},
	"greenlet3.8":     greenlets("3.8"),
	"greenlet3.10":    greenlets("3.10"),
	"greenlet3.11":    greenlets("3.11"),
	"greenlet3.12":    greenlets("3.12"),
	"java17":          javas("17"),
	"java21":          javas("21"),
	"java25":          javas("25"),
	"jhsdb17":         jhsdbs("17"),
	"jhsdb21":         jhsdbs("21"),
	"jhsdb25":         jhsdbs("25"),
	"javac":           {"javac"},
	"jcmd17":          jdks("17", "jcmd"),
	"visualvm":        {"/usr/share/visualvm/visualvm/modules/org-graalvm-visualvm-lib-jfluid-heap.jar"},
	"hprof-slurp":     {"hprof-slurp", filepath.Join(toolCache(), "hprof-slurp", "bin", "hprof-slurp")},
	"hprof-conv":      {"hprof-conv", "/usr/lib/android-sdk/platform-tools/hprof-conv"},
	"shark":           {filepath.Join(toolCache(), "shark", "shark-android-*.jar")},
}

// pythons returns the paths of one version of Python. A "python3.8" on the path may be a
// script that selects a version.
func pythons(version string) []string {
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		root = filepath.Join(os.Getenv("HOME"), ".pyenv")
	}
	name := "python" + version
	return []string{filepath.Join(root, "versions", version+".*", "bin", name), "/usr/bin/" + name, "/usr/local/bin/" + name,
		filepath.Join(toolCache(), name, "bin", name)}
}

// rubies returns the paths of one version of Ruby.
func rubies(version string) []string {
	name := "ruby" + version
	return []string{filepath.Join(os.Getenv("HOME"), ".rbenv", "versions", version+".*", "bin", "ruby"), "/usr/bin/" + name,
		filepath.Join(toolCache(), name, "bin", name)}
}

// greenlets returns where test.sh installs the greenlet module for one version of Python.
func greenlets(version string) []string {
	return []string{filepath.Join(toolCache(), "greenlet"+version, "greenlet", "__init__.py")}
}

// toolCache returns where test.sh installs tools for the tests.
func toolCache() string {
	if cache := os.Getenv(CacheVar); cache != "" {
		return cache
	}
	user, _ := os.UserCacheDir() // without one another folder may contain it
	return filepath.Join(user, "sliver-test")
}

// goPath returns where go install puts programs, without bin.
func goPath() string {
	if p := os.Getenv("GOPATH"); p != "" {
		return p
	}
	return filepath.Join(os.Getenv("HOME"), "go")
}

// nodes returns the paths of one version of Node: where test.sh installs npm's package of
// it, and where nvm does.
func nodes(version string) []string {
	home, cache := os.Getenv("HOME"), toolCache()
	nvm := os.Getenv("NVM_DIR")
	if nvm == "" {
		nvm = filepath.Join(home, ".nvm")
	}
	return []string{filepath.Join(cache, "node"+version, "bin", "node"), filepath.Join(nvm, "versions", "node", "v"+version+".*", "bin", "node")}
}

// Need skips the test unless everything that the words name is available: a program
// ("gcc", "rustc", "gdb", …), the right to trace ("ptrace"), to be root ("root"), to
// mount ("fuse"), Perfetto's own reader ("perfetto"), or the packages for testing the
// page ("npm"). If the environment variable SLIVER_REQUIRE names a missing one, the test
// fails.
func Need(t testing.TB, words ...string) {
	t.Helper()
	for _, w := range words {
		if missing := lacks(t, w); missing != "" {
			lack(t, w, missing)
		}
	}
}

// Tool returns the path of the program that a word of Need names; it skips or fails as
// Need does.
func Tool(t testing.TB, word string) string {
	t.Helper()
	Need(t, word)
	path, _ := find(tools[word])
	return path
}

// Perfetto returns the folder of Perfetto's trace_processor, the TP_DIR of
// testdata/verify/perfetto_query.mjs; it skips or fails as Need does. The folder is
// $SLIVER_PERFETTO, or test.sh's in the cache.
func Perfetto(t testing.TB) string {
	t.Helper()
	Need(t, "perfetto", "node")
	return perfettoDir(t)
}

func perfettoDir(t testing.TB) string {
	if dir := os.Getenv("SLIVER_PERFETTO"); dir != "" {
		return dir
	}
	return filepath.Join(CacheDir(t), "perfetto", "assets", "trace-processor")
}

// Missing skips the test, or fails it if SLIVER_REQUIRE names word, for something that
// only the test itself can detect as missing.
func Missing(t testing.TB, word, why string) {
	t.Helper()
	lack(t, word, why)
}

// Lack skips the test, or fails it as Need does, for something missing for which Need has
// no word.
func Lack(t testing.TB, word, missing string) {
	t.Helper()
	lack(t, word, missing)
}

// lack is the single rule for missing requirements: fail if required, otherwise skip.
func lack(t testing.TB, word, missing string) {
	t.Helper()
	required := strings.Split(os.Getenv(RequireVar), ",")
	if slices.Contains(required, word) || slices.Contains(required, "all") {
		t.Fatalf("%s is required by %s: %s", word, RequireVar, missing)
	}
	t.Skipf("needs %s: %s", word, missing)
}

// lacks describes the missing requirement; "" if there is none.
func lacks(t testing.TB, word string) string {
	switch word {
	case "ptrace":
		return tracing()
	case "root":
		if os.Geteuid() != 0 {
			return "not root"
		}
		return ""
	case "fuse":
		if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
			return "a file system of a test's own takes root and /dev/fuse"
		}
		return ""
	case "npm":
		dir := filepath.Join(Root(t), "web", "page", "node_modules", "playwright-core")
		if _, err := os.Stat(dir); err != nil {
			return "no packages of the page; run npm ci in web/page"
		}
		return ""
	case "perfetto":
		dir := perfettoDir(t)
		if _, err := os.Stat(filepath.Join(dir, "trace_processor.wasm")); err != nil {
			return "no trace_processor in " + dir + " (test.sh puts it there, or set SLIVER_PERFETTO)"
		}
		return ""
	}
	names, ok := tools[word]
	if !ok {
		t.Fatalf("testprog: nothing is known by the word %q", word)
	}
	if _, ok := find(names); !ok {
		return "no " + names[0] + " on this machine"
	}
	return ""
}

// find returns the first program of that name, or matching that pattern, on the path.
func find(names []string) (string, bool) {
	for _, n := range names {
		if !strings.ContainsRune(n, '/') {
			if path, err := exec.LookPath(n); err == nil {
				return path, true
			}
			continue
		}
		if paths, err := filepath.Glob(n); err == nil && len(paths) > 0 {
			return paths[len(paths)-1], true // the newest version sorts last
		}
	}
	return "", false
}

// tracing tries to trace a child and returns why it cannot.
var tracing = sync.OnceValue(func() string {
	cmd := exec.Command("/bin/sh", "-c", "read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err.Error()
	}
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	defer cmd.Wait()
	defer in.Close()
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	pid := cmd.Process.Pid
	// Not PTRACE_ATTACH: its SIGSTOP may be reordered with the SIGTRAP of an exec in
	// progress, and the child then stays stopped.
	const seize, interrupt = 0x4206, 0x4207
	for _, request := range []uintptr{seize, interrupt} {
		if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, request, uintptr(pid), 0, 0, 0, 0); errno != 0 {
			return "ptrace of a child: " + errno.Error()
		}
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		return "wait for a traced child: " + err.Error()
	}
	if err := syscall.PtraceDetach(pid); err != nil {
		return "detach: " + err.Error()
	}
	return ""
})

// Unraced skips the test under the race detector. why says why nothing is lost by that, or why it cannot
// hold there.
func Unraced(t testing.TB, why string) {
	t.Helper()
	if raced {
		t.Skip("not under the race detector: " + why)
	}
}

// Whole skips the test in the short form (go test -short), which CI runs: it belongs to the whole one. short
// says which part of what it shows remains there.
func Whole(t testing.TB, short string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the short form: " + short)
	}
}
