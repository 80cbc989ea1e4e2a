package symbol

//sliver:layer live

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// big returns programs with much DWARF: the Go compiler itself, and C++ with the
// library inlined into it.
func big(b *testing.B) map[string]string {
	testprog.Need(b, "go", "g++")
	goc := filepath.Join(fixture(b, `(cd "$(go env GOROOT)/src" && GO111MODULE=on go build -o "$OLDPWD/a" cmd/compile)`), "a")
	return map[string]string{"go": goc, "cc": filepath.Join(fixture(b, "g++ -std=c++17 -O2 -g app.cc -o a"), "a")}
}

const benchAddrs = 20000

// BenchmarkCold opens a file and names 20,000 addresses in it.
func BenchmarkCold(b *testing.B) {
	for name, path := range big(b) {
		b.Run(name, func(b *testing.B) {
			addrs := sample(b, path, benchAddrs)
			b.ReportAllocs()
			for b.Loop() {
				r, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				f, err := Open(r, Options{Path: path})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				ResolveModule(f, addrs, func(_ uint64, fr []Frame) { n += len(fr) })
				if n < len(addrs) {
					b.Fatalf("%d frames for %d addresses", n, len(addrs))
				}
				f.Close()
				r.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(addrs)), "ns/addr")
		})
	}
}

// BenchmarkWarm names one address after another in a file that was used before.
func BenchmarkWarm(b *testing.B) {
	for name, path := range big(b) {
		b.Run(name, func(b *testing.B) {
			addrs := sample(b, path, benchAddrs)
			f := open(b, path, Options{})
			var buf []Frame
			for _, v := range addrs {
				buf = f.Frames(v, buf[:0])
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				buf = f.Frames(addrs[i%len(addrs)], buf[:0])
			}
		})
	}
}

// BenchmarkOthers is the same work as BenchmarkCold, done by common tools.
func BenchmarkOthers(b *testing.B) {
	for name, path := range big(b) {
		for _, tool := range [][]string{{"addr2line", "-fiaCe", path}, {"llvm-symbolizer", "-e", path}} {
			if _, err := exec.LookPath(tool[0]); err != nil {
				continue
			}
			b.Run(name+"/"+tool[0], func(b *testing.B) {
				addrs := sample(b, path, benchAddrs)
				var in strings.Builder
				for _, a := range addrs {
					in.WriteString(Unknown("", a)[len("[unknown]+"):] + "\n")
				}
				for b.Loop() {
					cmd := exec.Command(tool[0], tool[1:]...)
					cmd.Stdin = strings.NewReader(in.String())
					if out, err := cmd.Output(); err != nil || len(out) < len(addrs) {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(addrs)), "ns/addr")
			})
		}
	}
}

func BenchmarkPerfMap(b *testing.B) {
	var s strings.Builder
	for i := range uint64(100000) {
		s.WriteString(Unknown("", i*64)[len("[unknown]+0x"):] + " 40 LazyCompile:*function /srv/app/index.js:10\n")
	}
	b.SetBytes(int64(s.Len()))
	for b.Loop() {
		if m, err := ParsePerfMap(strings.NewReader(s.String())); err != nil || m.Len() != 100000 {
			b.Fatal(err)
		}
	}
}
