// Package rule defines one step of an unwinding: how to compute the caller's registers from the
// callee's. Call frame information (unwind/cfi), Go's pclntab (unwind/gopcln) and frame pointers
// all compile to rules. Package unwind caches and executes them.
//
// Addresses here are vaddrs: those of the file, before the load bias.
package rule

// How to compute a register of the caller.
const (
	Same     = iota // unchanged from the callee (the default)
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
	End                   // the thread's or goroutine's first function: the walk is complete
	GoSwitch              // Go's systemstack or mcall (and the base of a g0 or gsignal stack): continues on the goroutine's own stack
	GoSigtramp            // Go's signal trampoline: the interrupted registers are in the kernel's signal frame
	GoCgocallback         // C called Go: continues on the C stack
)

// MaxSaved is the maximum number of caller registers in one rule.
const MaxSaved = 32

// Loc describes how to compute one register of the caller.
type Loc struct {
	Reg  uint8 // DWARF number
	Kind uint8 // Same … Undef
	Off  int32
}

// Rule is valid for every PC in [Lo, Hi) of a file.
//
//	CFA = R[CFAReg] + CFAOff, or the value of Exprs[CFAOff] if CFAIsExpr
//	return address: RA (Reg is ignored)
//	SP of the caller = CFA unless Saved overrides it
type Rule struct {
	Lo, Hi    uint64 // vaddr
	Func      uint64 // vaddr of the function's start: the FDE's first address, or the pclntab entry
	CFAOff    int32
	CFAReg    uint8
	CFAIsExpr bool
	Part      bool    // Func is the start of a function's part that a compiler moved elsewhere, entered by a jump
	Signal    bool    // the frame is a signal frame: the caller's PC is exact, not a return address
	Special   Special // how the walk continues, instead of by this rule
	NSaved    uint8
	RA        Loc // Kind Undef: outermost frame
	Saved     [MaxSaved]Loc
	Exprs     [][]byte // DWARF expressions, slices of the file's own bytes
}
