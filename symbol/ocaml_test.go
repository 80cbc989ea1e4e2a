package symbol

import "testing"

// TestOCaml: names of ocamlopt 4.13, and one of 5.1, as shown by nm.
func TestOCaml(t *testing.T) {
	for _, c := range [][2]string{
		{"camlWork__$2b$2b_84", "Work.++"},
		{"camlWork__outer_91", "Work.outer"},
		{"camlWork__fun_172", "Work.fun"},
		{"camlWork__entry", "Work.entry"},
		{"camlStdlib__List__map_265", "Stdlib.List.map"},
		{"camlStdlib__List__rev_append_265", "Stdlib.List.rev_append"},
		{"camlDune__exe__Main__loop_12", "Dune.exe.Main.loop"},
		{"camlStdlib__List.map_265", "Stdlib.List.map"},
		{"caml_alloc_small_dispatch", "caml_alloc_small_dispatch"},
		{"camlinternal", "camlinternal"},
		{"camlA__", "A__"},
		{"camlA__$", "A.$"},
	} {
		if got := Demangle(c[0], true); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

// TestQualifies: a linkage name that ends in the source name distinguishes functions of
// that name; other suffixes come from the compiler.
func TestQualifies(t *testing.T) {
	f := &File{names: map[string]string{}}
	for _, c := range [][3]string{
		{"push", "generic.Queue(u64).push", "generic.Queue(u64).push"},
		{"push", "push", "push"},
		{"work", "work.constprop.0", "work"},
		{"work", "", "work"},
		{"k", "work", "k"},
		{"main", "my.domain", "main"},
	} {
		if got, _ := f.display(c[0], c[1]); got != c[2] {
			t.Errorf("%q with the linker's name %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
