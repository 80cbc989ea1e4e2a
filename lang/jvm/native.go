package jvm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"regexp"
)

// Virtual machines that are not HotSpot. None has tables from which methods can be read.

// heapSection holds the initial objects of a GraalVM native image.
const heapSection = ".svm_heap"

// maxVersion bounds the bytes of a native image's data that are searched for its version. It was in
// the first 70 KiB of three programs and libraries (24.0, 25.3).
const maxVersion = 1 << 20

var nativeVersion = []byte("com.oracle.svm.core.VM=")

// NativeImage reports whether an ELF file is a GraalVM native image: Java compiled ahead of time.
// vm is the compiler's version ("GraalVM CE 24.0.2+11.1"), or "" if the file does not contain it.
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
		b = b[:n] // the readable part of a truncated file
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

// NoNative returns the error for the native image in the file with this name.
func NoNative(name, vm string) *VersionError {
	if vm != "" {
		vm = " (" + vm + ")"
	}
	return &VersionError{Why: fmt.Sprintf("%s is a native image%s: its methods are shown as the machine code that they became", name, vm)}
}

// IsOpenJ9 reports whether a library with this name is Eclipse OpenJ9's virtual machine.
// runtime/oti/j9lib.h of eclipse-openj9/openj9 builds the name from "j9vm" and a two-digit version.
func IsOpenJ9(name string) bool { return openJ9.MatchString(name) }

var openJ9 = regexp.MustCompile(`^libj9vm[0-9]{2}\.so$`)

// NoOpenJ9 returns the error for OpenJ9.
func NoOpenJ9() *VersionError {
	return &VersionError{Why: "OpenJ9 does not describe itself as HotSpot does: its stacks are shown as machine code"}
}
