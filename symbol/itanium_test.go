package symbol

import (
	"debug/elf"
	"os/exec"
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"

	"github.com/sliverprof/sliver/internal/testprog"
)

// sameAsTree compares the result of itanium with package demangle. read is false if
// itanium does not support the name.
func sameAsTree(t *testing.T, cxx *itanium, name string) (read bool) {
	t.Helper()
	full, ok := cxx.short(name, true)
	if !ok {
		return false
	}
	tree, err := demangle.ToAST(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoClones, demangle.MaxLength(longLog))
	if err != nil {
		return true // for an incomplete name itanium may miss an error
	}
	if want := demangle.ASTToString(tree, demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(longLog)); full != want {
		t.Errorf("%s\n got %s\nwant %s", name, full, want)
	}
	bare, ok := cxx.short(name, false)
	want := demangle.ASTToString(tree, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams, demangle.MaxLength(longLog))
	if !ok || bare != want {
		t.Errorf("%s without template arguments\n got %s\nwant %s", name, bare, want)
	}
	return true
}

// TestItaniumIsDemangles: all names of the C++ library, which use all features. itanium
// must handle nine in ten functions, otherwise it is useless.
func TestItaniumIsDemangles(t *testing.T) {
	testprog.Need(t, "g++")
	path, err := exec.Command("g++", "-print-file-name=libstdc++.so").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(strings.TrimSpace(string(path)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var cxx itanium
	n, read := 0, 0
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || !strings.HasPrefix(s.Name, "_Z") {
			continue
		}
		n++
		if sameAsTree(t, &cxx, s.Name) {
			read++
		}
	}
	if n < 1000 || read < n*9/10 {
		t.Errorf("%d names, %d of them read", n, read)
	}
	t.Logf("%d names, %d of them read", n, read)
}

func BenchmarkItanium(b *testing.B) {
	const name = "_ZNSt8_Rb_treeI3TagILi1803EESt4pairIKS1_St6vectorINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESaISA_EEESt10_Select1stISD_E" +
		"St4lessIS1_ESaISD_EE22_M_emplace_hint_uniqueIJRKSt21piecewise_construct_tSt5tupleIJRS3_EESO_IJEEEEESt17_Rb_tree_iteratorISD_ESt23_Rb_tree_const_iteratorISD_EDpOT_"
	b.Run("itanium", func(b *testing.B) {
		var cxx itanium
		for b.Loop() {
			if _, ok := cxx.shortest(name); !ok {
				b.Fatal("not read")
			}
		}
	})
	b.Run("demangle", func(b *testing.B) {
		for b.Loop() {
			tree, err := demangle.ToAST(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoClones, demangle.MaxLength(longLog))
			if err != nil {
				b.Fatal(err)
			}
			_ = demangle.ASTToString(tree, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams, demangle.MaxLength(longLog))
		}
	})
}
