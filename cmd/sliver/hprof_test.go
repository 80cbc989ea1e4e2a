package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// heapDump writes a heap dump of about size bytes: objects in segments, as HotSpot writes them,
// with strings, references and arrays.
func heapDump(w io.Writer, size int) error {
	var b []byte
	u4 := func(v uint32) { b = binary.BigEndian.AppendUint32(b, v) }
	id := func(v uint64) { b = binary.BigEndian.AppendUint64(b, v) }
	record := func(tag byte, length int) { b = append(b, tag); u4(0); u4(uint32(length)) }
	b = append(b, "JAVA PROFILE 1.0.2\x00"...)
	u4(8)
	id(0x19a00000000)
	names := []string{"java/lang/Object", "java/lang/String", "value", "a constant of the code"}
	for i, s := range names {
		record(1, 8+len(s))
		id(uint64(0x100 + i))
		b = append(b, s...)
	}
	for i := range 2 {
		record(2, 24)
		u4(uint32(i + 1))
		id(uint64(0x1000 + 0x100*i))
		u4(0)
		id(uint64(0x100 + i))
	}
	class := func(at, super uint64, fields ...byte) {
		b = append(b, 0x20)
		id(at)
		u4(0)
		id(super)
		for range 5 {
			id(0)
		}
		u4(8)
		b = append(b, 0, 0, 0, 0, 0, byte(len(fields)))
		for _, f := range fields {
			id(0x102)
			b = append(b, f)
		}
	}
	random := rand.New(rand.NewSource(1))
	at, total := uint64(0x7_0000_0000), 0
	for first := true; total < size; first = false {
		start := len(b)
		record(0x1c, 0)
		if first {
			class(0x1000, 0)
			class(0x1100, 0x1000, 2)
		}
		for len(b)-start < 1<<20 {
			b = append(b, 0x21) // a string and its value
			id(at)
			u4(0)
			id(0x1100)
			u4(8)
			id(at + 24)
			n := 8 + random.Intn(60)
			b = append(b, 0x23)
			id(at + 24)
			u4(0)
			u4(uint32(n))
			b = append(b, 8)
			for range n {
				b = append(b, byte('a'+random.Intn(26)))
			}
			at += 24 + uint64(16+n+7)&^7
			b = append(b, 0x22)
			id(at)
			u4(0)
			u4(2)
			id(0x1000)
			id(at - 24)
			id(0)
			at += 24
		}
		binary.BigEndian.PutUint32(b[start+5:], uint32(len(b)-start-9))
		total += len(b)
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	record(0x2c, 0)
	_, err := w.Write(b)
	return err
}

// TestHprofMemory: from pipe to pipe, no action needs more than 64 MB.
func TestHprofMemory(t *testing.T) {
	testprog.Whole(t, "TestHprof has small files")
	size := 80 << 20 // more than a run may take
	if os.Getenv("SLIVER_LONG") != "" {
		size = 300 << 20
	}
	python := testprog.Tool(t, "python3")
	dir := t.TempDir()
	path := filepath.Join(dir, "x.hprof")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := heapDump(f, size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(in, out string, args ...string) hash.Hash {
		t.Helper()
		src, err := os.Open(filepath.Join(dir, in))
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		const fork = `import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)`
		cmd := slivercmd(t, dir, append([]string{"hprof"}, args...)...)
		cmd.Args = append([]string{python, "-c", fork, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = python
		cmd.Stdin = struct{ io.Reader }{src} // a pipe
		sum := sha256.New()
		dst, err := os.Create(filepath.Join(dir, out))
		if err != nil {
			t.Fatal(err)
		}
		defer dst.Close()
		cmd.Stdout = io.MultiWriter(dst, sum)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, errs.String())
		}
		// A child inherits the peak memory of the process that forked it, so a small process forks.
		report := errs.String()
		kib, err := strconv.Atoi(strings.TrimSpace(report[strings.LastIndex(strings.TrimSpace(report), "\n")+1:]))
		if err != nil || kib > 64<<10 {
			t.Errorf("%v: %d KiB, %v", args, kib, err)
		} else {
			t.Logf("%v: %d KiB", args, kib)
		}
		return sum
	}
	want := run("x.hprof", "copy", "copy", "-", "-o", "-")
	run("x.hprof", "info", "info", "-")
	run("x.hprof", "check", "check", "-")
	run("x.hprof", "shark", "strip", "-", "--rule", "shark", "-o", "-")
	run("x.hprof", "matrix", "strip", "-", "--rule", "matrix", "-o", "-")
	run("x.hprof", "kept", "strip", "-", "--rule", "koom", "--keep-strings", "--redact-constants", "-o", "-")
	run("x.hprof", "koom", "strip", "-", "--rule", "koom", "-o", "-")
	run("koom", "filled", "fill", "-", "-o", "-")
	run("x.hprof", "packed", "pack", "-", "-o", "-")
	if got := run("packed", "unpacked", "unpack", "-", "-o", "-"); !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("another dump came back")
	}
}

func TestHprof(t *testing.T) {
	dir := t.TempDir()
	var dump bytes.Buffer
	if err := heapDump(&dump, 2<<20); err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	write("x.hprof", dump.Bytes())
	write("cut.hprof", dump.Bytes()[:dump.Len()-5000])
	write("text", []byte("no dump"))
	for _, c := range []struct {
		args   string
		status int
		out    string // part of standard output or error
	}{
		{"info x.hprof", 0, "HPROF 1.0.2, 8-byte identifiers"},
		{"check x.hprof", 0, "objects, 2 classes"},
		{"info cut.hprof", 1, "sliver: cut.hprof: offset "},
		{"check cut.hprof", 1, "sliver: cut.hprof: offset "},
		{"info cut.hprof --partial", 0, "using only the part before the damage"},
		{"copy cut.hprof --partial -o sound.hprof.gz", 0, ""},
		{"check sound.hprof.gz", 0, "objects"},
		{"strip cut.hprof --rule shark -o no", 1, "offset"},
		{"info no", 1, "cannot read no: no such file"}, // a failed strip leaves no file
		{"strip x.hprof --rule koom -o k.hprof", 0, ""},
		{"info k.hprof", 0, "stripped by KOOM's rule"},
		{"fill k.hprof -o f.hprof", 0, ""},
		{"fill x.hprof -o no", 1, "sliver: x.hprof: no gaps to fill"},
		{"strip k.hprof --rule koom -o no", 1, "stripped by KOOM's rule already"},
		{"convert x.hprof -o art.hprof", 0, ""},
		{"info art.hprof", 0, "HPROF 1.0.3"},
		{"pack x.hprof -o p.spack", 0, ""},
		{"unpack p.spack -o u.hprof", 0, ""},
		{"check p.spack", 0, "objects, 2 classes"},
		{"unpack x.hprof -o no", 1, "sliver: x.hprof: not packed by sliver"},
		{"info text", 1, "no HPROF dump"},
		{"info missing", 1, "cannot read missing: no such file"},
		{"", 2, "say what to do: info, check, strip"},
		{"melt x.hprof", 2, "unknown action"},
		{"info", 2, "info takes one file"},
		{"strip x.hprof -o no", 2, "strip needs --rule"},
		{"strip x.hprof --rule x -o no", 2, "unknown rule"},
		{"strip x.hprof --rule koom", 2, "strip needs -o"},
		{"info x.hprof --rule koom", 2, "info has no --rule"},
		{"convert x.hprof --to x -o no", 2, "unknown form"},
		{"pack x.hprof -o no/such/folder", 1, "cannot write no/such/folder"},
	} {
		r := sliver(t, dir, append([]string{"hprof"}, strings.Fields(c.args)...)...)
		if r.status != c.status || !strings.Contains(r.out+r.errors, c.out) || strings.Count(r.errors, "\n") > 1 {
			t.Errorf("hprof %s: %+v, want status %d and %q", c.args, r, c.status, c.out)
		}
	}
	if !bytes.Equal(read("u.hprof"), dump.Bytes()) || len(read("f.hprof")) != dump.Len() {
		t.Error("unpack or fill gives another size or another dump")
	}
	// KOOM's own files have no mark; the error suggests a remedy.
	k := read("k.hprof")
	at := bytes.Index(k, []byte("sliver: stripped"))
	write("own.hprof", append(bytes.Clone(k[:at-17]), k[at+48:]...))
	if r := sliver(t, dir, "hprof", "info", "own.hprof"); r.status != 1 || !strings.Contains(r.errors, "own.hprof: KOOM's strip left gaps: 'sliver hprof fill' first") {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, dir, "hprof", "fill", "own.hprof", "-o", "own2.hprof"); r.status != 0 || !bytes.Equal(read("own2.hprof"), read("f.hprof")) {
		t.Errorf("fill of KOOM's own: %+v", r)
	}
	var doc struct {
		Dumps []struct {
			Version string
			Objects struct{ Count int64 }
		}
		Error string
	}
	if r := sliver(t, dir, "hprof", "info", "--json", "x.hprof"); json.Unmarshal([]byte(r.out), &doc) != nil || len(doc.Dumps) != 1 || doc.Dumps[0].Objects.Count < 1000 || doc.Error != "" {
		t.Errorf("%+v: %+v", r, doc)
	}
	if r := sliver(t, dir, "hprof", "check", "--json", "cut.hprof"); r.status != 1 || json.Unmarshal([]byte(r.out), &doc) != nil || !strings.HasPrefix(doc.Error, "offset ") {
		t.Errorf("%+v: %+v", r, doc)
	}
}
