package ruby

import (
	"errors"
	"io"
)

// seekChunk is how much of the writable data is read at once, in bytes.
const seekChunk = 64 << 10

var errNoVM = errors.New("no virtual machine yet")

// seek calls found with the address and the bytes behind each aligned word of the writable data, size
// bytes each, until it returns true.
func (r *Runtime) seek(mem io.ReaderAt, size int, found func(at uint64, b []byte) bool) bool {
	buf := make([]byte, seekChunk+size)
	for _, s := range r.img.data {
		for at := (s.start + 7) &^ 7; at < s.end; at += seekChunk {
			b := buf[:min(uint64(len(buf)), s.end-at)]
			if read(mem, b, at+r.bias) != nil {
				continue
			}
			for i := 0; i+size <= len(b) && i < seekChunk; i += 8 {
				if found(at+r.bias+uint64(i), b[i:i+size]) {
					return true
				}
			}
		}
	}
	return false
}

// seekVM finds the virtual machine, and the table of offsets that fits it.
func (r *Runtime) seekVM(mem io.ReaderAt) error {
	if r.img.vm != 0 {
		vm, err := word(mem, r.img.vm+r.bias)
		if err != nil {
			return err
		}
		if !r.isVM(mem, vm) {
			return errNoVM
		}
		return nil
	}
	tried := map[uint64]bool{}
	if r.seek(mem, 8, func(_ uint64, b []byte) bool {
		vm := le(b, 0)
		if !pointer(vm) || tried[vm] {
			return false
		}
		tried[vm] = true
		return r.isVM(mem, vm)
	}) {
		return nil
	}
	return errNoVM
}

// isVM checks whether the structure at vm is the virtual machine: its main Ractor and its main thread
// refer to each other and to it. It uses the first table of offsets with which they do.
func (r *Runtime) isVM(mem io.ReaderAt, vm uint64) bool {
	var b [vmHead]byte
	if !pointer(vm) || read(mem, b[:], vm) != nil {
		return false
	}
	ractor, thread := le(b[:], vmMainRactor), le(b[:], vmMainThread)
	if !pointer(ractor) || !pointer(thread) || !pointer(le(b[:], vmRactors)) || !pointer(le(b[:], vmRactors+8)) {
		return false
	}
	var t [threadHead]byte
	if read(mem, t[:], thread) != nil || le(t[:], threadVM) != vm || le(t[:], threadRactor) != ractor {
		return false
	}
	layouts := layouts[r.img.Minor]
	for i := range layouts {
		r.vm, r.l = vm, &layouts[i]
		if main, err := word(mem, ractor+r.l.ractorMain); err != nil || main != thread {
			continue
		}
		if back, err := word(mem, le(t[:], r.l.threadEC)+ecThread); err != nil || back != thread {
			continue
		}
		if threads, err := r.Threads(mem); err == nil && len(threads) > 0 {
			return true
		}
	}
	r.vm, r.l = 0, nil
	return false
}

// seekSymbols finds the table of method names, rb_symbols_t: last_id (32 bits), a hash table, and ids,
// an Array of Arrays. It reports whether the table was found.
func (r *Runtime) seekSymbols(mem io.ReaderAt) bool {
	if r.img.symbols != 0 {
		r.symbols = r.img.symbols + r.bias
		return r.hasPlus(mem, r.symbols)
	}
	return r.seek(mem, 24, func(at uint64, b []byte) bool {
		last := le32(b, 0)
		if last < minSymbols || last > maxSerial || !pointer(le(b, 8)) || !pointer(le(b, 16)) {
			return false
		}
		if !r.hasPlus(mem, at) {
			return false
		}
		r.symbols = at
		return true
	})
}

// hasPlus checks a table of method names: the name of the method + is at the code of that character.
func (r *Runtime) hasPlus(mem io.ReaderAt, symbols uint64) bool {
	s, err := r.named(mem, symbols, '+')
	return err == nil && s == "+"
}

// Bounds of the numbers of symbols: an interpreter begins with more than minSymbols.
const (
	minSymbols = 400
	maxSerial  = 1 << 28
)
