package session

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/symbol/kallsyms"
	"github.com/sliverprof/sliver/trace"
)

// kernelStacks numbers the kernel stacks of waits. There are few different ones.
type kernelStacks struct {
	why     string // why there are none; "": there are
	syms    *kallsyms.Symbols
	numbers map[string]int // by the addresses, from 1
	fresh   [][]string     // not written yet
	beyond  uint64         // waits whose stack is beyond the limit
	key     []byte
}

// number returns the number of a stack of return addresses, innermost first; 0: none.
func (k *kernelStacks) number(addrs []uint64) int {
	if len(addrs) == 0 || k.why != "" {
		return 0
	}
	k.key = k.key[:0]
	for _, a := range addrs {
		k.key = binary.NativeEndian.AppendUint64(k.key, a)
	}
	if n, ok := k.numbers[string(k.key)]; ok {
		return n
	}
	if len(k.numbers) >= trace.MaxKernelStacks {
		k.beyond++
		return 0
	}
	if k.syms == nil { // only now: the list is long
		s, err := kallsyms.Load()
		if err != nil {
			k.why = oneLine(err)
			return 0
		}
		k.syms, k.numbers = s, map[string]int{}
	}
	names := make([]string, len(addrs))
	for i, a := range addrs {
		names[i] = k.syms.Caller(a)
	}
	n := len(k.numbers) + 1
	k.numbers[string(k.key)] = n
	k.fresh = append(k.fresh, names)
	return n
}
