package dlang

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

var cases = []struct{ in, full, short, bare string }{
	{"_Dmain", "D main", "D main", "D main"},
	{"_D3std5stdio4File5closeMFNeZv", "std.stdio.File.close()", "std.stdio.File.close", "std.stdio.File.close"},
	{"_D1a1K3barMxFNdZi", "a.K.bar() const", "a.K.bar", "a.K.bar"},
	{"_D1a1b1K6__ctorMFiZCQsQsQs", "a.b.K.this(int)", "a.b.K.this", "a.b.K.this"},
	{"_D1a1K6__dtorMFZv", "a.K.~this()", "a.K.~this", "a.K.~this"},
	{"_D1a1K6__initZ", "initializer for a.K", "initializer for a.K", "initializer for a.K"},
	{"_D1a1K3fooMFKiJiLiMDFNaNbNfiZiPFaYiZv",
		"a.K.foo(ref int, out int, lazy int, scope int(int) pure nothrow @safe delegate, int(char, ...) function)", "a.K.foo", "a.K.foo"},
	{"_D1a6variadFiXv", "a.variad(int...)", "a.variad", "a.variad"},
	{"_D1a4mainFZ6nestedMFNfiZv", "a.main().nested(int)", "a.main.nested", "a.main.nested"},
	{"_D1a__T1PTiZQf1nFAiHiAyaPxayG3iZi", "a.P!(int).P.n(int[], immutable(char)[][int], const(char)*, immutable(int[3]))",
		"a.P!(int).n", "a.P!(...).n"},
	{"_D3std4conv__T7enumRepTyAaTEQBa12experimental6logger4core8LogLevelVQBoi128ZQCjyQCd",
		"std.conv.enumRep!(immutable(char[]), std.experimental.logger.core.LogLevel, 128).enumRep",
		"std.conv.enumRep!(immutable(char[]), std.experimental.logger.core.LogLevel, 128)", "std.conv.enumRep!(...)"},
	{"_D1a1b__T2vmViN3VAyaa6_68c3a922780aVde18P0Vbi1Vai113ZQBsFNaNbNiNfZi", `a.b.vm!(-3, "h\xc3\xa9"x\n", 0x1.8p0, true, 'q').vm()`,
		`a.b.vm!(-3, "h\xc3\xa9"x\n", 0x1.8p0, true, 'q')`, "a.b.vm!(...)"},
	// Its type is that of a parameter of its template.
	{"_D1a1b__T4tmplS_DQpQp4mainFZ1dDFNaNbNiNfiZiTiZQBlMQt", "a.b.tmpl!(a.b.main().d, int).tmpl(int)", "a.b.tmpl!(a.b.main.d, int)",
		"a.b.tmpl!(...)"},
	// The older form, whose lengths run into each other.
	{"_D4test25__T3barS14_D4test3fooFZvZ3barFZv", "test.bar!(test.foo()).bar()", "test.bar!(test.foo)", "test.bar!(...)"},
	{"_D8demangle17__T4testS6symbolZv", "demangle.test!(symbol)", "demangle.test!(symbol)", "demangle.test!(...)"},
	{"_D3app3runFZv.part.0", "app.run() (.part.0)", "app.run", "app.run"},
	{"_D3app5valuei", "app.value", "app.value", "app.value"},
	{"_D3app1xQ", "", "", ""},
	{"_D3appQa3runFZv", "", "", ""}, // refers to itself
	{"_D", "", "", ""},
	{"_D3ap", "", "", ""},
	{"_Z3foov", "", "", ""},
}

func TestDemangle(t *testing.T) {
	for _, c := range cases {
		for o, want := range map[Options]string{{Params: true}: c.full, {}: c.short, {NoArgs: true}: c.bare} {
			got, err := Demangle(c.in, o)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("%s, %+v: %q, %v, want %q", c.in, o, got, err, want)
			}
		}
	}
}

// Every D name in programs of both compilers, standard library included, must match the
// GNU tools' output, if these can demangle it.
func TestAgainstGNU(t *testing.T) {
	for _, compiler := range []string{"gdc", "ldc2"} {
		t.Run(compiler, func(t *testing.T) {
			testprog.Need(t, "c++filt", compiler)
			f, err := elf.Open(testprog.Build(t, "d/names", compiler))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			syms, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			var in []string
			for _, s := range syms {
				if Is(s.Name) && !strings.ContainsAny(s.Name, "\n") {
					in = append(in, s.Name)
				}
			}
			cmd := exec.Command("c++filt", "-s", "dlang")
			cmd.Stdin = strings.NewReader(strings.Join(in, "\n") + "\n")
			var b bytes.Buffer
			cmd.Stdout = &b
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			want := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			if len(want) != len(in) || len(in) < 300 {
				t.Fatalf("%d answers for %d names", len(want), len(in))
			}
			read, more := 0, 0
			for i, s := range in {
				got, err := Demangle(s, Options{Params: true})
				switch {
				case want[i] == s && err == nil:
					more++
				case want[i] == s:
				case strings.Contains(s, "__postblit"): // always called this(this) here
				case got != want[i]:
					t.Errorf("%s\nis %s\n   %s, %v", s, want[i], got, err)
				default:
					read++
				}
			}
			if read < 300 {
				t.Errorf("%d names agree", read)
			}
			t.Logf("%d names agree, %d are read here alone", read, more)
		})
	}
}

func FuzzDemangle(f *testing.F) {
	for _, c := range cases {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, o := range []Options{{}, {Params: true}, {NoArgs: true}} {
			got, err := Demangle(s, o)
			if (err == nil) != (got != "") || len(got) > maxOut+len(s)+64 {
				t.Fatalf("%q: %d bytes, %v", s, len(got), err)
			}
		}
	})
}
