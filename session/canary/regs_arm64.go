package canary

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// registers parses the kernel's block, which begins as what ptrace(2) returns.
func registers(block []byte, tls uint64, r *stack.Regs) bool {
	ok := target.RegsARM64(block, r)
	r.TLS = tls
	return ok
}
