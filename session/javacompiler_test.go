package session

import (
	"archive/zip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// olderJava replaces syntax that Java 17's compiler does not support.
var olderJava = strings.NewReplacer(" _ -> ", " ignored -> ", "Locale.of(", "new Locale(", "HashMap.newHashMap(", "new HashMap<>(")

// javaTree unpacks the sources of a module from the newest JDK's src.zip, and returns
// the folder.
func javaTree(t *testing.T, module string) string {
	t.Helper()
	zips, err := filepath.Glob("/usr/lib/jvm/*/lib/src.zip")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Backward(zips) {
		z, err := zip.OpenReader(path)
		if err != nil {
			continue // a link to a file in another package
		}
		defer z.Close()
		dir := t.TempDir()
		for _, f := range z.File {
			name, ok := strings.CutPrefix(f.Name, module+"/")
			if !ok || !filepath.IsLocal(name) || !strings.HasSuffix(name, ".java") {
				continue
			}
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, []byte(olderJava.Replace(string(b))), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	t.Skip("no JDK here has its sources (Debian's package openjdk-17-source)")
	return ""
}

// lentCompiler returns what a Java without a compiler needs to run that of Java 17:
// flags, its classes and the home of its JDK.
func lentCompiler(t *testing.T) (flags []string, classes, home string) {
	t.Helper()
	javac, err := filepath.EvalSymlinks(testprog.Tool(t, "javac"))
	if err != nil {
		t.Fatal(err)
	}
	home = filepath.Dir(filepath.Dir(javac))
	dir := filepath.Join(t.TempDir(), "compiler")
	if out, err := exec.Command(filepath.Join(home, "bin", "jmod"), "extract", "--dir", dir, filepath.Join(home, "jmods", "jdk.compiler.jmod")).CombinedOutput(); err != nil {
		t.Fatalf("jmod: %v: %s", err, out)
	}
	for _, pkg := range []string{"jdk.internal.jmod", "jdk.internal.misc", "sun.invoke.util"} {
		flags = append(flags, "--add-exports=java.base/"+pkg+"=ALL-UNNAMED")
	}
	return flags, filepath.Join(dir, "classes"), home
}

// TestJavaCompiler: of a thread that compiles the 1,850 files of java.xml with javac,
// at least 999 of 1,000 samples must have no gap, and the compiler must report no
// errors. Only with SLIVER_LONG: it takes minutes.
func TestJavaCompiler(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("SLIVER_LONG is not set")
	}
	tree := javaTree(t, "java.xml")
	sel, err := sampler.ParseSelection("compiles")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"java17", "java21", "java25"} {
		for _, way := range []string{"-XX:+UseG1GC", "-XX:+UseZGC", "-Xint", "-Xcomp"} {
			t.Run(v+way, func(t *testing.T) {
				classes := testprog.JavaClasses(t, "Compile")
				flags := []string{way, "-Xmx512m", "-XX:-UsePerfData"}
				args := []string{"Compile", "java.xml", tree, t.TempDir()}
				if v == "java21" { // the version that test.sh installs has no compiler
					more, compiler, home := lentCompiler(t)
					flags, classes, args = append(flags, more...), classes+":"+compiler, append(args, home)
				}
				p := testprog.StartCmd(t, exec.Command(testprog.Tool(t, v), append(append(flags, "-cp", classes), args...)...))
				p.Line("busy")
				rec := recordWith(t, p.PID, Options{Interval: 2 * time.Millisecond, Jitter: .2, Selection: sel}, func(s stack.ThreadStats) bool { return s.Samples-s.Unrun-s.Read > 20000 })
				if way != "-Xint" && way != "-Xcomp" { // which may not have finished a round
					p.Line("round 0")
				}
				total := rec.Stats.Total()
				m := &busyMethods{n: trace.NewNames(rec), alone: map[string]int{}}
				for i := range rec.Threads {
					rec.Replay(rec.Threads[i].Seq, m.n, m)
				}
				t.Logf("%d samples, %d by a stop; %d with gaps%s; %d slices of Java", total.Samples, total.Stops, total.Truncated, errorFrames(rec), m.java)
				alone := 0
				for _, n := range m.alone {
					alone += n
				}
				if total.Truncated*1000 > total.Samples {
					t.Errorf("%d of %d samples have gaps", total.Truncated, total.Samples)
				}
				if m.java < 10000 || alone*10000 > m.java {
					t.Errorf("%d slices of Java, and some on %v: %s", m.java, m.alone, m.first)
				}
			})
		}
	}
}
