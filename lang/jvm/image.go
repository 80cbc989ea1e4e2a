package jvm

import (
	"errors"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/internal/elffile"
)

// ErrNotJVM says that a file is not HotSpot.
var ErrNotJVM = errors.New("not a HotSpot library")

// ErrNotReady says that the virtual machine is starting. Retry a moment later.
var ErrNotReady = errors.New("the Java virtual machine is not ready yet")

// VersionError says that the stacks of a virtual machine cannot be read.
type VersionError struct {
	Version string // as far as known
	Why     string
}

func (e *VersionError) Error() string {
	if e.Version == "" {
		return fmt.Sprintf("no Java frames: %s", e.Why)
	}
	return fmt.Sprintf("no Java frames: HotSpot %s: %s", e.Version, e.Why)
}

// Image locates the tables in a file with which HotSpot describes itself.
type Image struct {
	syms map[string]uint64 // vaddrs of gHotSpot…
}

// tables lists the symbols that identify HotSpot.
var tables = [...]string{"gHotSpotVMStructs", "gHotSpotVMTypes", "gHotSpotVMIntConstants", "gHotSpotVMLongConstants"}

// Load finds the tables in libjvm.so. It returns ErrNotJVM if the file lacks them.
func Load(r io.ReaderAt) (img *Image, err error) {
	defer func() {
		if x := recover(); x != nil { // debug/elf on damaged files
			img, err = nil, fmt.Errorf("%w: %v", ErrNotJVM, x)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotJVM, err)
	}
	all, err := elffile.DynamicSymbols(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotJVM, err)
	}
	img = &Image{syms: map[string]uint64{}}
	for i := range all {
		if s := &all[i]; len(s.Name) > 8 && s.Name[:8] == "gHotSpot" && s.Value != 0 {
			img.syms[s.Name] = s.Value
		}
	}
	for _, name := range tables {
		if img.syms[name] == 0 {
			return nil, fmt.Errorf("%w: no %s", ErrNotJVM, name)
		}
	}
	return img, nil
}
