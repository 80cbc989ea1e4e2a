package jvm

import (
	"errors"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/internal/elffile"
)

// ErrNotJVM says that a file is no HotSpot.
var ErrNotJVM = errors.New("not a HotSpot library")

// ErrNotReady says that the virtual machine is starting: what is wanted will be there
// a moment later.
var ErrNotReady = errors.New("the Java virtual machine is not ready yet")

// VersionError says that there is a HotSpot whose stacks cannot be read.
type VersionError struct {
	Version string // as far as it is known
	Why     string
}

func (e *VersionError) Error() string {
	if e.Version == "" {
		return fmt.Sprintf("no Java frames: %s", e.Why)
	}
	return fmt.Sprintf("no Java frames: HotSpot %s: %s", e.Version, e.Why)
}

// Image is where a file has the tables that HotSpot describes itself with.
type Image struct {
	syms map[string]uint64 // vaddrs of gHotSpot…
}

// tables are the symbols by which HotSpot is known.
var tables = [...]string{"gHotSpotVMStructs", "gHotSpotVMTypes", "gHotSpotVMIntConstants", "gHotSpotVMLongConstants"}

// Load finds them in libjvm.so; ErrNotJVM if it does not have them.
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
