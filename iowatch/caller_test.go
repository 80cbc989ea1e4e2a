package iowatch

import (
	"strings"
	"testing"
)

// TestCaller has stacks of an open as sliver names them, in each language: the function of the program
// itself is marked.
func TestCaller(t *testing.T) {
	const libc, work = "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/work"
	for name, stack := range map[string][]string{
		"C":                  {"__open64||" + libc, "opening|/src/a.c|" + work + "|own", "main|/src/a.c|" + work},
		"stdio":              {"__open64||" + libc, "_IO_file_fopen||" + libc, "__fopen_internal||" + libc, "load|/src/a.c|" + work + "|own"},
		"static":             {"__open64||" + work, "_IO_new_file_fopen||" + work, "load||" + work + "|own"},
		"musl":               {"open||/lib/ld-musl-x86_64.so.1", "load||" + work + "|own"},
		"an open of its own": {"__open64||" + libc, "open|/src/vfs.c|" + work + "|own", "main|/src/a.c|" + work},
		"another library":    {"__open64||" + libc, "unixOpen||/usr/lib/libsqlite3.so.0|own", "main|/src/a.c|" + work},
		"C++":                {"__open64||" + libc, "std::__basic_file<char>::open||/usr/lib/libstdc++.so.6", "std::basic_ifstream<char>::open|/usr/include/c++/12/fstream|" + work, "app::load|/src/a.cc|" + work + "|own"},
		"Rust":               {"open64||" + libc, "std::sys::pal::unix::fs::File::open_c||" + work, "<std::fs::OpenOptions>::open||" + work, "app::load|src/main.rs|" + work + "|own"},
		"Go": {"internal/runtime/syscall.Syscall6||" + work, "syscall.openat||" + work, "os.OpenFile|/usr/lib/go/src/os/file.go|" + work, "os.Open|/usr/lib/go/src/os/file.go|" + work,
			"main.serving|/src/main.go|" + work + "|own", "main.main|/src/main.go|" + work},
		"Java":         {"open64||" + libc, "java.io.FileInputStream.open0||", "java.io.FileInputStream.<init>|FileInputStream.java|", "Files.serving|Files.java||own"},
		"Python":       {"open64||" + libc, "Path.open|/usr/lib/python3.12/pathlib.py|", "read|<frozen importlib._bootstrap_external>|", "serving|/srv/app.py||own"},
		"site package": {"open64||" + libc, "open|/usr/lib/python3.12/tempfile.py|", "load|/opt/venv/lib/python3.12/site-packages/yaml/x.py||own", "serving|/srv/app.py|"},
		"Node":         {"open64||" + libc, "openSync|node:fs|", "serving|/srv/app.js||own"},
		"a gap":        {"open64||" + libc, Gap + "no unwind rule||", "serving|/srv/app.py||own"},
		"stripped":     {"__open64||" + libc, "work+0x44400||" + work, "work+0x44840||" + work, "ngx_open_cached_file||" + work + "|own", "main||" + work},
		"no names":     {"__open64||" + libc, "work+0x44400||" + work + "|own", "work+0x44840||" + work, "__libc_start_main||" + libc},
		"no name":      {"__open64||" + libc, "||" + work, "main||" + work + "|own"},
	} {
		want := -1
		for i, f := range stack {
			if strings.HasSuffix(f, "|own") {
				want = i
			}
		}
		frame := func(i int) Frame {
			p := strings.Split(stack[i], "|")
			return Frame{p[0], p[1], p[2]}
		}
		if got := Caller(len(stack), frame); got != want {
			t.Errorf("%s: frame %d, want %d", name, got, want)
		}
	}
	if Caller(0, nil) != 0 || Caller(1, func(int) Frame { return Frame{Func: "open64", Module: libc} }) != 0 {
		t.Error("without a function of the program, it is the leaf")
	}
}
