package gopcln

import (
	"sync"

	"github.com/sliverprof/sliver/unwind/rule"
)

// kind classifies a function that needs special treatment.
type kind uint8

const (
	plain       kind = iota
	end              // first function of a thread or goroutine
	systemstack      // runs a function on g0's stack
	mcall            // switches from the goroutine's stack to g0's, and returns by gogo
	morestack        // the same, from a function's prologue
	noctxt           // arm64: jumps to morestack, with its caller's LR in R3
	asmcgocall       // runs a C function on g0's stack
	cgocallback      // C called Go: switches from g0's stack to the goroutine's
	gogo             // switches from g0's stack to a goroutine's
	injected         // called by a signal handler's pushed call: the caller's PC is exact
	sigtramp         // Go's signal handler, called by the kernel
	restorer         // return target of the handler: the kernel's frame is at SP
	movedSP          // keeps its SP in another register while C (vDSO, race detector) runs on g0's stack
	saves            // saves callee-saved registers of C
)

// special returns the Special of such a function's rule.
func (k kind) special(arch rule.Arch) rule.Special {
	switch k {
	case end:
		return rule.End
	case systemstack, mcall, morestack, noctxt, asmcgocall, gogo, movedSP:
		return rule.GoSwitch
	case cgocallback:
		return rule.GoCgocallback
	case restorer:
		return rule.GoSigtramp
	case sigtramp:
		// On arm64 the handler returns to the kernel's own trampoline in the vDSO, which lacks call
		// frame information.
		if arch == rule.ARM64 {
			return rule.GoSigtramp
		}
	}
	return rule.None
}

// byID maps abi.FuncID, whose numbers depend on the version, to kinds. ok is false for versions
// with unknown numbers. Sources: src/cmd/internal/objabi/funcid.go of 1.16.15, 1.17.13, 1.18.10 and
// 1.20.14, src/internal/abi/symtab.go of 1.21.13, 1.22.12, 1.23.12, 1.24.13, 1.25.5 and 1.26.8.
func byID(version int, id uint8) (k kind, ok bool) {
	switch {
	case version == 16:
		k = [...]kind{2: end, 4: mcall, 5: morestack, 6: end, 7: end, 8: asmcgocall, 9: injected, 13: systemstack,
			14: cgocallback, 15: gogo, 17: injected, 21: injected, 255: plain}[id]
	case version == 17:
		k = [...]kind{2: asmcgocall, 3: injected, 4: cgocallback, 5: injected, 7: end, 8: gogo, 12: mcall, 13: morestack,
			14: end, 16: end, 19: injected, 20: systemstack, 255: plain}[id]
	case version >= 18 && version <= 21:
		k = [...]kind{2: asmcgocall, 3: injected, 4: cgocallback, 5: injected, 7: end, 8: gogo, 11: mcall, 12: morestack,
			13: end, 15: end, 18: injected, 19: systemstack, 255: plain}[id]
	case version >= 22 && version <= 24:
		k = [...]kind{2: asmcgocall, 3: injected, 4: cgocallback, 6: injected, 8: end, 9: gogo, 12: mcall, 13: morestack,
			14: end, 16: end, 19: injected, 20: systemstack, 255: plain}[id]
	case version == 25 || version == 26:
		k = [...]kind{2: asmcgocall, 3: injected, 4: cgocallback, 6: injected, 8: end, 9: gogo, 12: mcall, 13: morestack,
			14: end, 16: end, 20: injected, 21: systemstack, 255: plain}[id]
	default:
		return plain, false
	}
	return k, true
}

// byName classifies functions without a known number. The table of a stripped file also has the
// names.
func byName(name string) kind {
	switch name {
	case "runtime.goexit", "runtime.mstart", "runtime.rt0_go", "runtime.switchToCrashStack0", "_rt0_amd64_linux",
		"_rt0_amd64", "_rt0_arm64_linux", "_rt0_arm64":
		return end
	case "runtime.systemstack":
		return systemstack
	case "runtime.mcall":
		return mcall
	case "runtime.morestack":
		return morestack
	case "runtime.asmcgocall":
		return asmcgocall
	case "runtime.cgocallback":
		return cgocallback
	case "runtime.gogo", "gogo":
		return gogo
	case "runtime.asyncPreempt", "runtime.sigpanic", "runtime.debugCallV1", "runtime.debugCallV2":
		return injected
	case "runtime.sigtramp", "runtime.cgoSigtramp", "runtime.sigprofNonGoWrapper", "sigprofNonGoWrapper":
		return sigtramp
	case "runtime.sigreturn", "runtime.sigreturn__sigaction":
		return restorer
	case "crosscall2":
		return saves
	}
	return plain
}

// kindOf classifies f. It looks up names only for functions with a number unknown to byID, and for
// assembly.
func (t *Table) kindOf(f *fn) (kind, error) {
	if f.id != 0 {
		if k, ok := byID(t.version, f.id); ok {
			return k, nil
		}
	}
	if f.id == 0 && f.flag&(flagAsm|flagTop|flagSPWrite) == 0 && t.magic != magic116 {
		return plain, nil
	}
	name, err := t.nameOf(f)
	if err != nil {
		return plain, err
	}
	switch k := byName(name); {
	case k == restorer && t.arch != rule.AMD64:
	case name == "runtime.morestack_noctxt" && t.arch == rule.ARM64:
		return noctxt, nil
	case k != plain && k != injected && t.magic != magic116 && f.flag&flagAsm == 0:
		// The wrapper through which Go calls the function.
	case k != plain:
		return k, nil
	case t.magic == magic116 && f.flag == 0: // 1.16 has no flags
		switch name {
		case "runtime.nanotime1", "runtime.walltime1", "time.now":
			return movedSP, nil
		}
	case f.flag&flagTop != 0:
		return end, nil
	case f.flag&flagSPWrite != 0:
		return movedSP, nil // or not: the code decides
	}
	return plain, nil
}

// kinds records the special functions for which rules were made, by vaddr.
type kinds struct {
	mu sync.RWMutex
	m  map[uint64]kind
}

// maxKinds bounds the entries that a hostile table can add.
const maxKinds = 1024

func (k *kinds) put(entry uint64, v kind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil {
		k.m = make(map[uint64]kind)
	}
	if len(k.m) < maxKinds {
		k.m[entry] = v
	}
}

func (k *kinds) get(entry uint64) kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.m[entry]
}
