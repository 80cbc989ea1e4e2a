package stack

import "testing"

func TestRuntimeFrames(t *testing.T) {
	py, c, so := "/usr/lib/libpython3.11.so.1.0", "/lib/libc.so.6", "/srv/venv/fast.so"
	native := func(module, function string) Place { return Place{Module: module, Func: function} }
	script := Place{Kind: KindPython, Func: "work", File: "/srv/app.py"}
	for name, x := range map[string]struct {
		fs  []Place // innermost first
		own string  // 'x' for each frame of the runtime
	}{
		"sleeps":    {[]Place{native(c, "clock_nanosleep"), native(py, "time_sleep"), script, native(py, "_PyEval_Vector"), native(c, "__libc_start_main"), native("/usr/bin/python3", "_start")}, ".x.xxx"},
		"computes":  {[]Place{native(py, "long_mul"), script, native(py, "_PyEval_Vector")}, "..x"},
		"extension": {[]Place{native(so, "dot"), native(py, "cfunction_call"), script, native(py, "_PyEval_Vector")}, ".x.x"},
		"libc of extension": {[]Place{native(c, "memcpy"), native(so, "dot"), script, native(py, "_PyEval_Vector")},
			"...x"},
		"embedded": {[]Place{script, native(py, "PyRun_String"), native("/srv/server", "handle"), native("/srv/server", "main"), native(c, "__libc_start_main")},
			".x..."},
		"native": {[]Place{native(c, "read"), native("/srv/server", "main"), native(c, "__libc_start_main")}, "..."},
		"stub":   {[]Place{{Kind: KindJava, Func: "run"}, native("", "[stub]"), native("/jdk/libjvm.so", "JavaCalls::call"), native(c, "start_thread")}, ".xxx"},
		"none":   {nil, ""},
	} {
		got := ""
		for _, own := range RuntimeFrames(len(x.fs), func(i int) Place { return x.fs[i] }) {
			got += map[bool]string{true: "x", false: "."}[own]
		}
		if got != x.own {
			t.Errorf("%s: %q, want %q", name, got, x.own)
		}
	}
}
