package symbol

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

func TestDemangle(t *testing.T) {
	for _, c := range []struct{ in, short, full string }{
		{"_ZN3app6Engine3runEi", "app::Engine::run", "app::Engine::run(int)"},
		{"_ZSt4sortIPiEvT_S1_", "std::sort<int*>", "void std::sort<int*>(int*, int*)"},
		{"_ZN3app3fooEi.cold", "app::foo", "app::foo(int) [clone .cold]"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt", "core::fmt::Write::write_fmt"},
		{"_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar", "mycrate::foo::bar"},
		{"_D3app6Engine3runMFiZv", "app.Engine.run", "app.Engine.run(int)"},
		{"_Dmain", "D main", "D main"},
		{"_Dyn", "_Dyn", "_Dyn"},
		{"malloc", "malloc", "malloc"},
		{"_Z", "_Z", "_Z"},
		{"_ZN3", "_ZN3", "_ZN3"},
		{"", "", ""},
		{"$s3app6EngineC3runyySiF", "Engine.run", "app.Engine.run(Swift.Int) -> ()"},
		{"$s9apq", "$s9apq", "$s9apq"},
	} {
		if got := Demangle(c.in, true); got != c.short {
			t.Errorf("short %q is %q, want %q", c.in, got, c.short)
		}
		if got := Demangle(c.in, false); got != c.full {
			t.Errorf("full %q is %q, want %q", c.in, got, c.full)
		}
	}
}

// TestLongNames: unreadably long names are truncated.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	for _, in := range []string{long, "_Z" + long, "_ZN" + strings.Repeat("1a", 1<<19) + "E", "_R" + long} {
		if got := Demangle(in, true); len(got) > 1<<longLog+8 || got == "" {
			t.Errorf("a name of %d bytes became one of %d", len(in), len(got))
		}
	}
	// Substitutions that double at each step.
	var b strings.Builder
	b.WriteString("_Z1fSt4pairIiiE")
	for i := range 30 {
		s := "S" + strings.ToUpper(strconv.FormatInt(int64(i), 36)) + "_"
		b.WriteString("St4pairI" + s + s + "E")
	}
	if got := Demangle(b.String(), false); len(got) > 1<<longLog+8 {
		t.Errorf("%d bytes of name", len(got))
	}
	template := Demangle("_ZN1aI"+strings.Repeat("NS_1bIiEE", 40)+"E1fEv", true)
	if len(template) > maxShort {
		t.Errorf("short name of %d bytes: %s", len(template), template)
	}
}

func TestGoNames(t *testing.T) {
	short, full := &File{}, &File{o: Options{FullNames: true}}
	for _, c := range []struct{ in, short, full string }{
		{"main.f[go.shape.int]", "main.f[...]", "main.f[go.shape.int]"},
		{"main.(*T[go.shape.struct { a [2]int }]).m", "main.(*T[...]).m", "main.(*T[go.shape.struct { a [2]int }]).m"},
		{"main.f[...]", "main.f[...]", "main.f[...]"},
		{"gopkg.in/yaml%2ev3.Unmarshal", "gopkg.in/yaml.v3.Unmarshal", "gopkg.in/yaml.v3.Unmarshal"},
		{"main.f[", "main.f[", "main.f["},
		{"100%", "100%", "100%"},
		{"a%zz", "a%zz", "a%zz"},
	} {
		if got := short.goName(c.in); got != c.short {
			t.Errorf("short %q is %q, want %q", c.in, got, c.short)
		}
		if got := full.goName(c.in); got != c.full {
			t.Errorf("full %q is %q, want %q", c.in, got, c.full)
		}
	}
}

func TestUnclone(t *testing.T) {
	for in, want := range map[string]string{
		"foo": "foo", "foo.cold": "foo", "foo.part.0": "foo", "foo.isra.0.cold": "foo", "foo.constprop.12": "foo",
		"foo.llvm.123456": "foo", "foo.lto_priv.0": "foo", "main.main": "main.main", ".cold": ".cold", "a.b.1": "a.b",
	} {
		if got := unclone(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestUnknown(t *testing.T) {
	for in, want := range map[string]string{
		"/usr/lib/libfoo.so": "libfoo.so+0x1f", "": "[unknown]+0x1f", "[vdso]": "[vdso]+0x1f", "/": "[unknown]+0x1f",
	} {
		if got := Unknown(in, 0x1f); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestKnownNames: of a library's many aliases the one that programmers use must be
// shown, with and without DWARF.
func TestKnownNames(t *testing.T) {
	const libc = "/lib/x86_64-linux-gnu/libc.so.6"
	if _, err := os.Stat(libc); err != nil {
		t.Skip("no " + libc)
	}
	dynamic := open(t, libc, Options{})
	withDebug := open(t, libc, Options{Finder: Dirs{}})
	r, err := dynamic.main.f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields("malloc free calloc realloc read write poll epoll_wait puts printf fprintf fclose fopen fgets " +
		"pthread_mutex_lock pthread_cond_wait clock_nanosleep recv send accept connect abort exit getenv qsort sigaction waitpid " +
		"open close mmap munmap ioctl select nanosleep fork getaddrinfo strtod usleep sem_wait")
	for _, name := range want {
		vaddr := uint64(0)
		for _, s := range r {
			if s.Name == name && !s.VersionIndex.IsHidden() {
				vaddr = s.Value
			}
		}
		if vaddr == 0 {
			t.Fatalf("no %s in %s", name, libc)
		}
		for _, f := range []*File{dynamic, withDebug} {
			fr := f.Frames(vaddr, nil)
			if len(fr) == 0 || fr[len(fr)-1].Func != name {
				t.Errorf("%s (debug file %q) is shown as %v", name, f.DebugFile(), fr)
			}
		}
	}
}

var stubLine = regexp.MustCompile(`^([0-9a-f]+) <([^>]+)@plt>:$`)

// TestStubs: the stubs of every layout that linkers make must have the names from
// objdump.
func TestStubs(t *testing.T) {
	const source = `cat > s.c <<'END'
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
int main(int c, char **v) { void *(*volatile p)(size_t) = malloc; char *b = p(c + 9); strcpy(b, v[0]); puts(b); free(b); qsort(v, c, sizeof *v, (int (*)(const void *, const void *))strcmp); return getenv(b) != 0; }
END
`
	for _, c := range []struct{ name, build, objdump string }{
		{"lazy", "gcc -O1 -Wl,-z,lazy s.c -o a", "objdump"},
		{"now", "gcc -O1 -Wl,-z,now s.c -o a", "objdump"},
		{"no-pie", "gcc -O1 -no-pie -fno-pie s.c -o a", "objdump"},
		{"ibt", "gcc -O1 -fcf-protection -Wl,-z,ibtplt -Wl,-z,lazy s.c -o a", "objdump"},
		{"library", "gcc -O1 -shared -fPIC s.c -o a", "objdump"},
		{"arm64", "aarch64-linux-gnu-gcc -O1 s.c -o a", "aarch64-linux-gnu-objdump"},
		{"arm64-bti", "aarch64-linux-gnu-gcc -O1 -mbranch-protection=standard -Wl,-z,force-bti s.c -o a 2>/dev/null", "aarch64-linux-gnu-objdump"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.name, "arm64") {
				testprog.Need(t, "arm64-gcc")
			}
			testprog.Need(t, "gcc")
			path := filepath.Join(fixture(t, source+c.build), "a")
			out, err := exec.Command(tool(t, c.objdump), "-d", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			f := open(t, path, Options{})
			n := 0
			for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
				m := stubLine.FindStringSubmatch(s.Text())
				if m == nil || strings.HasPrefix(m[2], "*ABS*") {
					continue
				}
				n++
				v, _ := strconv.ParseUint(m[1], 16, 64)
				for _, at := range []uint64{v, v + 4} {
					fr := f.Frames(at, nil)
					if len(fr) != 1 || fr[0].Func != m[2]+"@plt" {
						t.Errorf("at %#x: %v, want %s@plt", at, fr, m[2])
					}
				}
			}
			if n < 4 {
				t.Errorf("objdump shows %d stubs:\n%s", n, out)
			}
		})
	}
}
