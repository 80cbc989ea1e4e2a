package target

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
)

// BlockRegs parses a thread's registers as the kernel keeps them while the thread is in it (struct pt_regs), which is the
// beginning of what ptrace(2) returns; the FS base follows it there. It returns whether the block has its size.
func BlockRegs(block []byte, tls uint64, r *stack.Regs) bool {
	var words [amdWords * 8]byte
	n := copy(words[:amdFSBase*8], block)
	binary.LittleEndian.PutUint64(words[amdFSBase*8:], tls)
	var call stack.Call
	return n == amdFSBase*8 && RegsAMD64(words[:], r, &call)
}
