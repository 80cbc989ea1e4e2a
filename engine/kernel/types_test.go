package kernel

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/sliverprof/sliver/internal/testprog"
)

// typesBuilder makes BTF.
type typesBuilder struct{ types, names []byte }

func newTypes() *typesBuilder { return &typesBuilder{names: []byte{0}} }

func (b *typesBuilder) name(s string) uint32 {
	if s == "" {
		return 0
	}
	at := uint32(len(b.names))
	b.names = append(append(b.names, s...), 0)
	return at
}

func (b *typesBuilder) words(w ...uint32) *typesBuilder {
	for _, x := range w {
		b.types = binary.NativeEndian.AppendUint32(b.types, x)
	}
	return b
}

// add adds a type with its words after the head.
func (b *typesBuilder) add(kind uint32, name string, vlen, of uint32, more ...uint32) *typesBuilder {
	return b.words(b.name(name), kind<<24|vlen, of).words(more...)
}

func (b *typesBuilder) bytes() []byte {
	out := binary.NativeEndian.AppendUint16(nil, 0xeb9f)
	out = append(out, 1, 0)
	for _, x := range []int{24, 0, len(b.types), len(b.types), len(b.names)} {
		out = binary.NativeEndian.AppendUint32(out, uint32(x))
	}
	return append(append(out, b.types...), b.names...)
}

// someTypes returns types with a structure inside an unnamed union, through a typedef, and a bit field.
func someTypes() []byte {
	b := newTypes()
	for range 2 * typesEvery { // 1 to 128, so that places are looked up
		b.add(kindInt, "filler", 0, 4, 32)
	}
	b.add(kindStruct, "inner", 1, 8, b.name("x"), 1, 32) // 129
	b.add(kindTypedef, "inner_t", 0, 129)                // 130
	b.add(kindConst, "", 0, 130)                         // 131
	b.add(kindUnion, "", 2, 8, b.name("a"), 1, 0, b.name("b"), 131, 0)
	b.words(b.name("outer"), 1<<31|kindStruct<<24|3, 24, b.name("first"), 1, 0, b.name("bits"), 1, 3<<24|32, 0, 132, 64)
	b.add(kindFuncProto, "", 1, 0, 0, 1).add(kindFunc, "outer", 0, 134).add(kindEnum, "e", 1, 4, b.name("one"), 1)
	b.add(kindEnum64, "e64", 1, 8, b.name("two"), 1, 0).add(kindVar, "v", 0, 1, 1).add(kindDatasec, ".data", 1, 4, 138, 0, 4)
	b.add(kindArray, "", 0, 0, 1, 1, 3).add(kindPtr, "", 0, 141).add(kindFunc, "called", 0, 134)
	return b.bytes()
}

func TestTypes(t *testing.T) {
	x, err := parseTypes(someTypes())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path []string
		want uint32
		ok   bool
	}{
		{[]string{"first"}, 0, true}, {[]string{"bits"}, 4, true}, {[]string{"a"}, 8, true}, {[]string{"b"}, 8, true}, {[]string{"b", "x"}, 12, true},
		{[]string{"b", "y"}, 0, false}, {[]string{"first", "x"}, 0, false}, {[]string{"none"}, 0, false}, {[]string{""}, 0, false}, {nil, 0, false},
	} {
		if got, err := x.offset("outer", c.path); got != c.want || (err == nil) != c.ok {
			t.Errorf("offset of %q: %d, %v", c.path, got, err)
		}
	}
	if _, err := x.offset("called", []string{"first"}); !errors.Is(err, ErrTypes) {
		t.Errorf("a function as a structure: %v", err)
	}
	if id, err := x.function("outer"); id != 135 || err != nil { // a structure has that name too
		t.Errorf("function outer: %d, %v", id, err)
	}
	if id, err := x.function("called"); id != 142 || err != nil {
		t.Errorf("function called: %d, %v", id, err)
	}
	if _, err := x.function("calle"); !errors.Is(err, ErrTypes) {
		t.Errorf("the beginning of a name: %v", err)
	}
}

// TestTypesBroken: damaged types give errors.
func TestTypesBroken(t *testing.T) {
	whole := someTypes()
	for n := range len(whole) {
		if x, err := parseTypes(whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes are accepted: %d types", n, len(whole), x.count)
		}
	}
	self := newTypes()
	self.add(kindStruct, "s", 1, 8, 0, 1, 0).add(kindTypedef, "t", 0, 2)
	x, err := parseTypes(self.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.offset("s", []string{"m"}); err == nil { // a structure inside itself
		t.Error("a member that does not exist")
	}
	if _, ok := x.structure(2); ok { // a typedef of itself
		t.Error("a typedef of itself is a structure")
	}
}

func FuzzTypes(f *testing.F) {
	f.Add(someTypes())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseTypes(b)
		if err != nil {
			return
		}
		_, _ = x.function("called")
		_, _ = x.offset("outer", []string{"b", "x"})
	})
}

// TestTypesOfKernel: the same offsets and numbers as package btf finds.
func TestTypesOfKernel(t *testing.T) {
	if _, err := os.Stat(vmlinux); err != nil {
		testprog.Missing(t, "btf", err.Error())
	}
	x, err := kernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	want := []member{{nil, "task_struct", []string{"pid"}}, {nil, "task_struct", []string{"files"}}, {nil, "inode", []string{"i_size"}}, {nil, "io_kiocb", []string{"cqe", "fd"}},
		{nil, "super_block", []string{"s_magic"}}, {nil, "sock", []string{"sk_protocol"}}, {nil, "page", []string{"index"}}, {nil, "task_struct", []string{"nowhere"}}}
	if taskTLSPath != nil {
		want = append(want, member{nil, "task_struct", taskTLSPath})
	}
	for _, m := range want {
		var theirs uint32
		theirErr := offsets([]member{{&theirs, m.of, m.path}})
		if ours, err := x.offset(m.of, m.path); ours != theirs || (err == nil) != (theirErr == nil) {
			t.Errorf("struct %s, %v: %d (%v), package btf has %d (%v)", m.of, m.path, ours, err, theirs, theirErr)
		}
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"schedule", "vfs_read", "do_exit", "no_such_function"} {
		var f *btf.Func
		var theirs []btf.TypeID
		if spec.TypeByName(name, &f) == nil {
			id, err := spec.TypeID(f)
			if err != nil {
				t.Fatal(err)
			}
			theirs = append(theirs, id)
		}
		if ours, err := x.function(name); (err == nil) != (theirs != nil) || err == nil && !slices.Contains(theirs, ours) {
			t.Errorf("function %s: %d (%v), package btf has %d", name, ours, err, theirs)
		}
	}
}

func BenchmarkKernelTypes(b *testing.B) {
	for b.Loop() {
		if _, err := kernelTypes(); err != nil {
			b.Skip(err)
		}
	}
}
