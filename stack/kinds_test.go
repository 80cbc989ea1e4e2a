package stack

import (
	"fmt"
	"testing"
)

// TestKindsByRange: kinds beyond the values of an event word are found by their addresses, and recordings
// from before them are read as before.
func TestKindsByRange(t *testing.T) {
	old := table
	defer func() { table = old }()
	table = append(table[:len(table):len(table)],
		traits{name: "a", start: 0x8400_0000_0000, end: 0x8500_0000_0000}, traits{name: "b", start: 0x8500_0000_0000, end: 0x8600_0000_0000})
	for i := range table {
		k := Kind(i)
		if k.Code() > 7 {
			t.Errorf("%s has the value %d", k, k.Code())
		}
		for _, addr := range []uint64{table[i].start, max(table[i].end, 1) - 1, 0x5555_0000_0000, 1} {
			in := addr >= table[i].start && addr < table[i].end
			if got := KindOf(k.Code(), addr); got != k && (i <= coded || in) {
				t.Errorf("%s at %#x is read as %s", k, addr, got)
			}
		}
	}
	if k := KindOf(coded, 0x5555_0000_0000); k != KindRuby {
		t.Errorf("an address in no range is of %s", k)
	}
}

// TestKinds: each kind has its properties, and names and ranges of addresses are its own.
func TestKinds(t *testing.T) {
	names := map[string]Kind{}
	for i := range table {
		k := Kind(i)
		if k.String() == "" || k.Title() == "" || k.Color() == "" {
			t.Errorf("kind %d: %q, %q, %q", k, k, k.Title(), k.Color())
		}
		if old, ok := names[k.String()]; ok {
			t.Errorf("kinds %d and %d are both %q", old, k, k)
		}
		names[k.String()] = k
		start, end, ok := k.Range()
		if ok != (k.Managed() || k == KindKernel) {
			t.Errorf("%s: managed %v, has a range %v", k, k.Managed(), ok)
		}
		if ok && (start >= end || end > 1<<48) {
			t.Errorf("%s: range %#x to %#x", k, start, end)
		}
		for j := range table {
			if a, b, other := Kind(j).Range(); ok && other && i != j && start < b && a < end {
				t.Errorf("the ranges of %s and %s overlap", k, Kind(j))
			}
		}
		if k.Managed() && (k.OffStack() == k.Unverified() || k.Machine() || k.OffStack() && k.Ordered()) {
			t.Errorf("%s: off the stack %v, unverified %v, machine code %v, ordered %v", k, k.OffStack(), k.Unverified(), k.Machine(), k.Ordered())
		}
		if i >= coded && !k.Managed() {
			t.Errorf("%s has no range, and shares its value in event words", k)
		}
		if !k.Managed() && (k.OffStack() || k.Unverified() || k.Tag() != "") {
			t.Errorf("%s is not managed, and off the stack %v, unverified %v, tag %q", k, k.OffStack(), k.Unverified(), k.Tag())
		}
	}
	if n := len(Kinds()); n != len(table)-1 {
		t.Errorf("%d kinds of code", n)
	}
	for name, want := range map[string]Kind{"native": 0, "go": 1, "kernel": 2, "java": 3, "python": 4, "js": 5, "error": 6, "ruby": 7} {
		if names[name] != want {
			t.Errorf("recordings know %s as %d, and it is %d", name, want, names[name])
		}
	}
	if k := Kind(len(table)); k.String() != fmt.Sprintf("kind(%d)", len(table)) || k.Managed() || k.Title() != "Native" {
		t.Errorf("a value without a kind: %s, managed %v, %s", k, k.Managed(), k.Title())
	}
}

// TestRuntimeFiles: files of runtimes are recognized by their names, and extensions of programs are not.
func TestRuntimeFiles(t *testing.T) {
	for _, c := range []struct {
		file        string
		kind        Kind
		runtime     bool
		interpreter bool
	}{
		{"/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", KindPython, true, true},
		{"/usr/bin/python3.13t", KindPython, true, true},
		{"/usr/lib/python3.11/lib-dynload/_queue.cpython-311-x86_64-linux-gnu.so", KindPython, true, false},
		{"/srv/venv/lib/python3.11/site-packages/numpy/core/_multiarray.so", KindPython, false, false},
		{"/usr/lib/jvm/jdk/lib/server/libjvm.so", KindJava, true, true},
		{"/usr/lib/jvm/jdk/lib/server/libjvm.so", KindPython, false, true},
		{"/usr/bin/node", KindJS, true, true},
		{"/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2", KindRuby, true, true},
		{"/opt/ruby/lib/libruby.so.3.4", KindRuby, true, true},
		{"/usr/bin/ruby3.1", KindRuby, true, true},
		{"/usr/lib/x86_64-linux-gnu/ruby/3.1.0/socket.so", KindRuby, true, false},
		{"/srv/rubyfmt", KindRuby, false, false},
		{"/bin/app", KindGo, false, false},
		{"", KindNative, false, false},
	} {
		if got := c.kind.RuntimeFile(c.file); got != c.runtime {
			t.Errorf("%s of %s: %v", c.file, c.kind, got)
		}
		if got := Interpreter(c.file, "f", ""); got != c.interpreter {
			t.Errorf("%s is the interpreter: %v", c.file, got)
		}
	}
	for _, c := range []struct {
		function, source string
		want             bool
	}{
		{"_PyEval_EvalFrameDefault", "", true}, {"_Py_Dealloc@plt", "", true}, {"v8::internal::Invoke", "", true}, {"node::Start", "", true}, {"handle", "", false},
		{"cfunction", "/src/Python-3.12/Objects/methodobject.c", true}, {"turn", "/src/app/turn.c", false},
	} {
		if got := Interpreter("/opt/app", c.function, c.source); got != c.want {
			t.Errorf("%s in %s: %v", c.function, c.source, got)
		}
	}
	if !KindPython.Locks("wait", "/usr/lib/python3.11/threading.py") || KindPython.Locks("wait", "/srv/app.py") || KindNative.Locks("wait", "") ||
		!KindRuby.Locks("synchronize", "") || KindRuby.Locks("synchronize", "/srv/app.rb") || KindRuby.Locks("price", "") || !KindRuby.Locks("x", "/usr/lib/ruby/3.1.0/monitor.rb") {
		t.Error("source files of locks")
	}
}
