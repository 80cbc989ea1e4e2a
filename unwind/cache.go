package unwind

import (
	"math/bits"

	"github.com/sliverprof/sliver/stack"
)

// How an entry is executed.
const (
	opFast    uint8 = iota + 1 // the fields of the entry say it all
	opRule                     // by the full rule, rules[entry.slow]
	opFP                       // no table: by frame pointer
	opSignal                   // in a signal trampoline: by the kernel's signal frame
	opBad                      // the tables are damaged there
	opRuntime                  // by a runtime's own data
	opStart                    // a context's last return address: the first byte of a function that nothing has called
)

// maxFast is how many registers a fast entry restores: arm64 has eleven that
// a callee must keep (x19 to x29).
const maxFast = 11

// An entry is a compiled rule for one lookup address, one cache line:
//
//	CFA = R[cfaReg] + cfaOff
//	RA  = *(CFA - 8*raOff), or R[30] if raOff is 0
//	R[reg[i]] = *(CFA - 8*off[i])
type entry struct {
	pc     uint64 // lookup address; 0: no entry
	fn     uint64 // the function's start, run time
	cfaOff int32
	slow   int32
	op     uint8
	cfaReg uint8
	flags  uint8
	n      uint8
	raOff  uint16
	off    [maxFast]uint16
	reg    [maxFast]uint8
	era    uint8 // of the mapping: see snapshot.turns
}

// Flags of an entry.
const (
	flagGo     uint8 = 1 << iota // the function is Go's
	flagTable                    // the rule comes from pclntab, not from CFI
	flagSignal                   // the caller was interrupted: its PC is exact
	flagFile                     // opFP: the code comes from a file
	flagScan                     // the rule comes from following the code
	flagLast                     // opFP: a thread's first function, as it looks or by the file's header
	flagPart                     // rule.Rule.Part
	flagLoose                    // the file may be unloaded: see replaced.go
)

func (e *entry) kind() stack.Kind {
	return stack.Kind(e.flags & flagGo) // KindNative is 0, KindGo is 1
}

func (e *entry) trust() stack.Trust {
	if e.flags&flagScan != 0 {
		return stack.TrustScan
	}
	return stack.TrustCFI + stack.Trust(e.flags>>1&1) // TrustTable follows TrustCFI
}

const (
	firstEntries = 1 << 11
	// maxEntries bounds a cache: 64 bytes each. Real programs use some
	// thousand different return addresses.
	maxEntries = 1 << 16
)

// A cache finds entries by lookup address: open addressing, at most half full.
// An entry's place is good until the next put.
type cache struct {
	slots []entry
	shift uint8
	used  int
}

func (c *cache) reset() {
	if c.slots == nil || c.used > 0 {
		*c = cache{slots: make([]entry, firstEntries)}
		c.shift = uint8(64 - bits.TrailingZeros(firstEntries))
	}
}

// golden is 2^64 divided by the golden ratio: multiplying spreads addresses
// that are close together (Knuth, volume 3, section 6.4).
const golden = 0x9e3779b97f4a7c15

func (c *cache) find(pc uint64) *entry {
	slots := c.slots
	i := pc * golden >> (c.shift & 63)
	for {
		e := &slots[i&uint64(len(slots)-1)]
		if e.pc == pc && pc != 0 {
			return e
		}
		if e.pc == 0 {
			return nil // an empty slot: no code is at address 0
		}
		i++
	}
}

// full reports that the cache is to be emptied before another put.
func (c *cache) full() bool { return c.used >= maxEntries/2 }

// put adds an entry for a pc that find does not know.
func (c *cache) put(e *entry) *entry {
	if 2*(c.used+1) > len(c.slots) {
		old := c.slots
		c.slots = make([]entry, 2*len(old))
		c.shift--
		for i := range old {
			if old[i].pc != 0 {
				*c.free(old[i].pc) = old[i]
			}
		}
	}
	p := c.free(e.pc)
	*p = *e
	c.used++
	return p
}

func (c *cache) free(pc uint64) *entry {
	for i := pc * golden >> (c.shift & 63); ; i++ {
		if e := &c.slots[i&uint64(len(c.slots)-1)]; e.pc == 0 {
			return e
		}
	}
}
