// Package rule defines what one step of an unwinding does, whatever table it
// came from: how to find the caller's registers from the callee's. Call frame
// information (unwind/cfi), Go's pclntab (unwind/gopcln) and frame pointers
// all compile to it, and package unwind caches and executes it.
//
// Addresses here are vaddr: those of the file, before the load bias.
package rule

// How a register of the caller is found.
const (
	Same     = iota // unchanged from the callee (the default for every register that is not named)
	Offset          // *(CFA + Off)
	ValOff          // CFA + Off
	Register        // the callee's register number Off
	Expr            // *(value of Exprs[Off]), CFA pushed first
	ValExpr         // value of Exprs[Off], CFA pushed first
	Undef           // not recoverable
)

// Special marks a function at which the walk does not follow the tables.
type Special uint8

// Special functions.
const (
	None          Special = iota
	End                   // the thread's or goroutine's first function: the walk is complete here
	GoSwitch              // Go's systemstack or mcall (and what sits at the base of a g0 or gsignal stack): goes on on the goroutine's own stack
	GoSigtramp            // Go's signal trampoline: the interrupted registers are in the kernel's signal frame
	GoCgocallback         // C called Go: goes on on the C stack
)

// MaxSaved is how many registers of a caller one rule can say something about.
const MaxSaved = 32

// Loc says how to find one register of the caller.
type Loc struct {
	Reg  uint8 // DWARF number
	Kind uint8 // Same … Undef
	Off  int32
}

// Rule holds for every PC in [Lo, Hi) of a file.
//
//	CFA = R[CFAReg] + CFAOff, or the value of Exprs[CFAOff] if CFAIsExpr
//	return address: as RA says (Reg is ignored)
//	SP of the caller = CFA unless Saved says otherwise
type Rule struct {
	Lo, Hi    uint64 // vaddr
	Func      uint64 // vaddr of the function's start: the FDE's first address, or the pclntab entry
	CFAOff    int32
	CFAReg    uint8
	CFAIsExpr bool
	Part      bool    // Func is no function's beginning: there stands a part of one that a compiler put elsewhere, entered by a jump
	Signal    bool    // the frame is a signal frame: the caller's PC is exact, not a return address
	Special   Special // how the walk goes on, instead of by this rule
	NSaved    uint8
	RA        Loc // Kind Undef: outermost frame
	Saved     [MaxSaved]Loc
	Exprs     [][]byte // DWARF expressions, slices of the file's own bytes
}
