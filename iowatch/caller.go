package iowatch

import (
	"path"
	"regexp"
	"strings"
)

// forwarding matches the base names of libraries whose functions do I/O for their callers: the C library
// and those of C++.
var forwarding = regexp.MustCompile(`^(libc|libpthread|ld-linux.*|ld-musl.*|libc\.musl.*|libc-\d.*|libpthread-\d.*|libstdc\+\+|libc\+\+|libgcc_s)(\.so.*)?$|^\[vdso\]$`)

// standard are the beginnings of function names in the standard libraries of Go, Java, Kotlin, C++ and Rust.
// "[" begins code that HotSpot generates for itself.
var standard = []string{"os.", "io.", "io/", "bufio.", "net.", "syscall.", "runtime.", "internal/", "java.", "javax.", "jdk.", "sun.", "kotlin.io.",
	"std::", "<std::", "core::", "<core::", "alloc::", "<alloc::", "["}

// python matches source files of Python's standard library, and of what pip installs.
var python = regexp.MustCompile(`(^|/)lib(64)?/(python|pypy)\d[\d.]*t?/`)

// wrapper matches the functions of a C library that is linked into a program's own file.
var wrapper = regexp.MustCompile(`^_*(GI_|libc_|IO_|new_|file_)*(f?open|freopen|fdopen|openat|creat|f?read|f?write|pread|pwrite|readv|writev|f?(data)?sync|connect|socket|accept4?|f?close|syscall)(64)?(_2|_nocancel|_internal)?$`)

// Gap begins the text of a frame that is not a function but the reason why some are missing.
const Gap = "... frames are missing here: "

// Frame is a frame of a stack, as far as Caller looks at it.
type Frame struct{ Func, File, Module string }

// Caller returns the position of the innermost of n frames, leaf first, that is the program's own: of
// neither the C library nor a language's standard library. One with a name is preferred to those that are a
// module and an address, as in a stripped program. 0: none is, or the leaf.
func Caller(n int, frame func(i int) Frame) int {
	nameless := 0
	for i := range n {
		f := frame(i)
		switch {
		case f.Func == "", strings.HasPrefix(f.Func, Gap), forwards(&f):
		case !strings.HasPrefix(f.Func, path.Base(f.Module)+"+0x"):
			return i
		case nameless == 0:
			nameless = i
		}
	}
	return nameless
}

// forwards reports whether a frame does I/O for its callers.
func forwards(f *Frame) bool {
	if forwarding.MatchString(path.Base(f.Module)) || wrapper.MatchString(f.Func) && f.File == "" {
		return true
	}
	for _, s := range standard {
		if strings.HasPrefix(f.Func, s) {
			return true
		}
	}
	if strings.HasPrefix(f.File, "node:") || strings.HasPrefix(f.File, "<frozen ") {
		return true
	}
	return python.MatchString(f.File) && !strings.Contains(f.File, "-packages/")
}
