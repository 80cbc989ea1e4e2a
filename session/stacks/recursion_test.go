package stacks

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestRecursion: many calls of a function by itself are folded into one line. With --full, all
// are shown. Frames in between are kept.
func TestRecursion(t *testing.T) {
	stackOf := func(names ...string) (fs []Frame) {
		for _, n := range names {
			fs = append(fs, Frame{Func: n, NoOffset: true})
		}
		return fs
	}
	deep := func(n int, name string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = name
		}
		return out
	}
	round := func(n int, names ...string) (out []string) {
		for range n {
			out = append(out, names...)
		}
		return out
	}
	for _, c := range []struct {
		in   []string
		want string // names, and the numbers of those left out
	}{
		{[]string{"a", "b"}, "a b"},
		{deep(4, "a"), "a a a a"},
		{deep(5, "a"), "a 3 a"},
		{append([]string{"x"}, append(deep(150, "a"), "main")...), "x a 148 a main"},
		{append(deep(6, "a"), deep(7, "b")...), "a 4 a b 5 b"},
		{append(deep(3, "a"), append([]string{"b"}, deep(3, "a")...)...), "a a a b a a a"},
		{deep(6, ""), "?? ?? ?? ?? ?? ??"},
		{append(round(50, "odd", "even"), "main"), "odd even 96 odd even main"},
		{append(round(3, "odd", "even"), "main"), "odd even odd even odd even main"},
		{append([]string{"leaf"}, append(round(9, "visit", "each", "call"), "visit", "main")...), "leaf visit each call 21 visit each call visit main"},
	} {
		for _, full := range []bool{false, true} {
			s := &Snapshot{Threads: []Thread{{Frames: stackOf(c.in...)}}, Full: full}
			var b bytes.Buffer
			if err := s.WriteText(&b); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range strings.Split(b.String(), "\n")[3:] {
				var n int
				if f := strings.Fields(l); len(f) > 1 && f[0] == "…" {
					fmt.Sscan(f[1], &n)
					got = append(got, fmt.Sprint(n))
				} else if len(f) > 0 {
					got = append(got, f[0])
				}
			}
			want := c.want
			if full {
				want = strings.Join(c.in, " ")
				if c.in[0] == "" {
					want = c.want
				}
			}
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%v, full %v: %s, want %s", c.in, full, s, want)
			}
		}
	}
}

// TestVisible: in stacks of managed functions, the runtime's own frames are counted and not shown:
// those of its file, of the C library that it calls or that starts it, and of a program that embeds
// it. Extensions, and programs without such functions, are shown whole.
func TestVisible(t *testing.T) {
	native := func(module, fn string) Frame { return Frame{Func: fn, Module: module} }
	of := func(kind stack.Kind, fn string) Frame { return Frame{Func: fn, Kind: kind, NoOffset: true} }
	const libc, python, vm, node = "/lib/libc.so.6", "/usr/lib/libpython3.11.so.1.0", "/jdk/lib/server/libjvm.so", "/usr/bin/node"
	const ruby = "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2"
	py := func(fn string) Frame { return of(stack.KindPython, fn) }
	for name, c := range map[string]struct {
		in   []Frame
		want string
	}{
		"sleep": {[]Frame{native(libc, "__internal_sleep"), native(libc, "clock_nanosleep"), native(python, "time_sleep"), py("leaf"), native(python, "_PyEval_EvalFrameDefault"),
			py("main"), native(python, "Py_RunMain"), native("/usr/bin/python3.11", "main"), native(libc, "__libc_start_main"), native("/usr/bin/python3.11", "_start")},
			"clock_nanosleep leaf main 7"},
		"extension": {[]Frame{native(libc, "memcpy"), native("/x/_multiarray.so", "copy"), native(python, "cfunction_call"), py("leaf"), native(python, "eval"),
			native(libc, "qsort"), native("/x/_multiarray.so", "sort"), py("main"), native(python, "eval"), native(libc, "start_thread")},
			"memcpy copy leaf qsort sort main 4"},
		"embedded": {[]Frame{py("leaf"), native("/opt/app", "_PyEval_EvalFrameDefault"), native("/opt/app", "PyRun_String"), native("/opt/app", "handle"), native("/opt/app", "main"), native(libc, "__libc_start_main"), native("/opt/app", "_start")},
			"leaf handle main __libc_start_main _start 2"},
		"static": {[]Frame{py("leaf"), {Func: "cfunction", Module: "/opt/app", File: "/src/Python-3.12/Objects/methodobject.c"}, {Func: "turn", Module: "/opt/app", File: "/src/app/turn.c"}},
			"leaf turn 1"},
		"java": {[]Frame{native(libc, "futex"), native(libc, "pthread_cond_wait"), native(vm, "os::park"), of(stack.KindJava, "T.run"), native("", "[call stub]"), native(vm, "call_helper"), native(libc, "start_thread"), native(libc, "clone3")},
			"pthread_cond_wait T.run 6"},
		"java without functions": {[]Frame{native(libc, "pthread_cond_wait"), native(vm, "os::park"), native(libc, "start_thread")}, "pthread_cond_wait os::park start_thread"},
		"node": {[]Frame{native(node, "v8::internal::Scavenge"), native(node, "Builtins_CEntry"), of(stack.KindJS, "leaf"), native(node, "Builtins_JSEntry"), native(node, "node::Start"), native(libc, "__libc_start_main"), native(node, "_start")},
			"v8::internal::Scavenge leaf 5"},
		"ruby": {[]Frame{native(libc, "ppoll"), native(libc, "__poll_chk"), native(ruby, "native_ppoll_sleep"), of(stack.KindRuby, "Kernel#sleep"), native(ruby, "vm_exec_core"),
			native("/usr/lib/ruby/3.1.0/socket.so", "wait_connectable"), native(ruby, "rb_block_call"), of(stack.KindRuby, "<main>"), native(ruby, "ruby_run_node"), native("/usr/bin/ruby3.1", "main"), native(libc, "__libc_start_main"), native("/usr/bin/ruby3.1", "_start")},
			"__poll_chk Kernel#sleep wait_connectable <main> 8"},
		"gap":     {[]Frame{{Kind: stack.KindError, Func: "why"}, py("main"), native(python, "eval")}, "... main 1"},
		"unknown": {[]Frame{py("leaf"), {Addr: 0x77}, py("main")}, "leaf ?? main"},
		"plain":   {[]Frame{native(libc, "read"), native("/x/python-like", "python"), native(libc, "__libc_start_main")}, "read python __libc_start_main"},
	} {
		for _, all := range []bool{false, true} {
			s := &Snapshot{Threads: []Thread{{Frames: c.in}}, Natives: all}
			var b bytes.Buffer
			if err := s.WriteText(&b); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range strings.Split(b.String(), "\n")[3:] {
				if f := strings.Fields(l); len(f) > 1 && f[0] == "…" {
					got = append(got, f[1])
				} else if len(f) > 0 {
					got = append(got, f[0])
				}
			}
			if all && len(got) != len(c.in) || !all && strings.TrimSuffix(strings.Join(got, " "), " 0") != strings.ReplaceAll(c.want, "[call stub]", "[call") {
				t.Errorf("%s, all %v: %q, want %q", name, all, got, c.want)
			}
		}
	}
}

func TestShort(t *testing.T) {
	for _, c := range []struct{ file, dir, want string }{
		{"/srv/app/views/main.py", "/srv/app", "views/main.py"},
		{"/srv/application/main.py", "/srv/app", "/srv/application/main.py"},
		{"/usr/lib/python3.11/json/decoder.py", "/srv/app", "…/json/decoder.py"},
		{"/usr/lib/python3.11/json/decoder.py", "/", "…/json/decoder.py"},
		{"/usr/lib/x.py", "", "/usr/lib/x.py"},
		{"nptl/pthread_create.c", "/srv", "nptl/pthread_create.c"},
		{"node:internal/main/run", "/srv", "node:internal/main/run"},
		{"", "/srv", ""},
	} {
		if got := short(c.file, c.dir); got != c.want {
			t.Errorf("%s in %s: %s, want %s", c.file, c.dir, got, c.want)
		}
	}
}
