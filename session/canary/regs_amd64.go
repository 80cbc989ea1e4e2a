package canary

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// registers parses the kernel's block, which is the beginning of what ptrace(2) returns; the FS base
// follows it there.
func registers(block []byte, tls uint64, r *stack.Regs) bool {
	var words [27 * 8]byte
	n := copy(words[:21*8], block)
	binary.NativeEndian.PutUint64(words[21*8:], tls)
	var call stack.Call
	return n == 21*8 && target.RegsAMD64(words[:], r, &call)
}
