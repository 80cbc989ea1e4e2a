package unwind

import (
	"math/bits"

	"github.com/sliverprof/sliver/stack"
)

// Execution methods of an entry.
const (
	opFast    uint8 = iota + 1 // the entry's fields are the whole rule
	opRule                     // full rule, in rules[entry.slow]
	opFP                       // no table: frame pointer
	opSignal                   // signal trampoline: the kernel's signal frame
	opBad                      // damaged tables
	opRuntime                  // a runtime's own data
	opStart                    // a context's last return address: the first byte of a function that nothing has called
)

// maxFast is the maximum number of registers that a fast entry restores. On arm64 a callee
// preserves eleven (x19 to x29).
const maxFast = 11

// An entry is the compiled rule of one lookup address. It fills one cache line:
//
//	CFA = R[cfaReg] + cfaOff
//	RA  = *(CFA - 8*raOff), or R[30] if raOff is 0
//	R[reg[i]] = *(CFA - 8*off[i])
type entry struct {
	pc     uint64 // lookup address; 0: empty
	fn     uint64 // run-time address of the function's start
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
	flagGo     uint8 = 1 << iota // Go function
	flagTable                    // rule from pclntab, not CFI
	flagSignal                   // the caller was interrupted: its PC is exact
	flagFile                     // opFP: the code comes from a file
	flagScan                     // rule from scanning the code
	flagLast                     // opFP: a thread's first function, by its code or the file's header
	flagPart                     // rule.Rule.Part
	flagLoose                    // the file may be unloaded, or could not be opened: see replaced.go
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
	// A process that lives for a few samples uses some dozens of return addresses. Its entries are spread over all
	// pages of a cache.
	firstEntries = 1 << 8
	// maxEntries bounds a cache; an entry takes 64 bytes. Real programs use a few thousand different
	// return addresses.
	maxEntries = 1 << 16
)

// A cache finds entries by lookup address, with open addressing and a load factor of at most one
// half. A pointer to an entry is valid until the next put.
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

// golden is 2^64 divided by the golden ratio. Multiplying by it spreads adjacent addresses (Knuth,
// volume 3, section 6.4).
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
			return nil // an empty slot: address 0 never holds code
		}
		i++
	}
}

// full reports whether the cache must be emptied before the next put.
func (c *cache) full() bool { return c.used >= maxEntries/2 }

// put adds an entry whose pc is not in the cache.
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
