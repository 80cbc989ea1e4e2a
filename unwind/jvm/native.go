package jvm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"regexp"
)

// What is no HotSpot, and says so: none of it has tables that methods could be read from.

// heapSection is where a native image of GraalVM has the objects that it begins with.
const heapSection = ".svm_heap"

// maxVersion bounds where in a native image's data its version is looked for, in bytes:
// it stood within the first 70 KiB of three programs and libraries (24.0, 25.3).
const maxVersion = 1 << 20

var nativeVersion = []byte("com.oracle.svm.core.VM=")

// NativeImage reports whether an ELF file is a native image of GraalVM: Java that was
// compiled ahead of time. vm is what made it ("GraalVM CE 24.0.2+11.1"), "" if the file
// does not say it.
func NativeImage(f *elf.File) (vm string, ok bool) {
	if f.Section(heapSection) == nil {
		return "", false
	}
	data := f.Section(".data")
	if data == nil || data.Type != elf.SHT_PROGBITS {
		return "", true
	}
	b := make([]byte, min(data.FileSize, maxVersion))
	n, err := io.ReadFull(data.Open(), b)
	if err != nil {
		b = b[:n] // what is there of a file that was cut
	}
	_, b, _ = bytes.Cut(b, nativeVersion)
	end := bytes.IndexByte(b, 0)
	if end <= 0 || end > 64 {
		return "", true
	}
	for _, c := range b[:end] {
		if c < ' ' || c > '~' {
			return "", true
		}
	}
	return string(b[:end]), true
}

// NoNative says what is missing of a native image in the file of this name.
func NoNative(name, vm string) *VersionError {
	if vm != "" {
		vm = " (" + vm + ")"
	}
	return &VersionError{Why: fmt.Sprintf("%s is a native image%s: its methods are shown as the machine code that they became", name, vm)}
}

// IsOpenJ9 reports whether a library of this name is Eclipse OpenJ9's virtual machine:
// runtime/oti/j9lib.h of eclipse-openj9/openj9 makes it of "j9vm" and a version of two digits.
func IsOpenJ9(name string) bool { return openJ9.MatchString(name) }

var openJ9 = regexp.MustCompile(`^libj9vm[0-9]{2}\.so$`)

// NoOpenJ9 says what is missing of OpenJ9.
func NoOpenJ9() *VersionError {
	return &VersionError{Why: "OpenJ9 does not describe itself as HotSpot does: its stacks are shown as machine code"}
}
