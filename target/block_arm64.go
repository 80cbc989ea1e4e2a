package target

import "github.com/sliverprof/sliver/stack"

// BlockRegs parses a thread's registers as the kernel keeps them while the thread is in it (struct pt_regs), which begins as
// what ptrace(2) returns. It returns whether the block has its size.
func BlockRegs(block []byte, tls uint64, r *stack.Regs) bool {
	ok := RegsARM64(block, r)
	r.TLS = tls
	return ok
}
