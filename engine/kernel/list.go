package kernel

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
)

// List is a list in a thread's memory that a program follows, with copies of its elements.
type List struct {
	stack.Links       // of Head.Addr 0 and Root 0, the word at TLS has the address of Head
	TLS         int64 // offset from the thread's TLS base
}

// fits reports whether a program can follow the list.
func (l *List) fits() bool {
	inside := func(off, n int) bool { return off >= 0 && off&7 == 0 && off+8 <= n }
	for _, x := range l.Texts {
		if x != 0 && !inside(x-1, l.ObjectLen) {
			return false
		}
	}
	return l.Head.Len <= maxHead && l.Len <= maxLink && inside(l.First, l.Head.Len) && inside(l.Next, l.Len) && l.Via >= 0 &&
		(l.Object == 0 || inside(l.Object-1, l.Len) && l.ObjectLen <= maxObject && inside(l.Key, l.ObjectLen))
}

// put writes the list into its part of a plan, of listBytes.
func (l *List) put(v []uint64) {
	if l == nil || !l.fits() {
		return
	}
	v[listHead/8], v[listTLS/8], v[listSize/8], v[listFirst/8] = l.Head.Addr, uint64(l.TLS), uint64(l.Head.Len), uint64(l.First)
	v[listRoot/8], v[listStep/8] = l.Root, uint64(l.Step)
	v[listVia/8], v[listNext/8], v[listLen/8] = uint64(l.Via), uint64(l.Next), uint64(l.Len)
	v[listObj/8], v[listObjN/8], v[listKey/8] = uint64(l.Object), uint64(l.ObjectLen), uint64(l.Key)
	for i, x := range l.Texts {
		v[listTexts/8+i] = uint64(x)
	}
}

// A list in a plan.
const (
	listHead  = 0 // address; 0: the word at listTLS has it
	listTLS   = listHead + 8
	listSize  = listTLS + 8 // 0: no list
	listFirst = listSize + 8
	listVia   = listFirst + 8
	listNext  = listVia + 8
	listLen   = listNext + 8
	listRoot  = listLen + 8 // 0: listTLS
	listStep  = listRoot + 8
	listObj   = listStep + 8 // 0: none
	listObjN  = listObj + 8
	listKey   = listObjN + 8
	listTexts = listKey + 8
	listBytes = listTexts + 8*stack.LinkTexts
)

// parseList appends what follow copied into b, which ends with the last element: the memory with the first pointer, then
// the elements, each with its object, then the texts of objects.
func parseList(b []byte, out []Page) []Page {
	if len(b) < lnLinks {
		return out
	}
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	head, size, n, object, texts := word(lnHead), word(lnSize), word(lnLen), word(lnObjLen), word(lnNew)
	if head == 0 || size > maxHead || n > maxLink || object > maxObject || texts > maxTexts {
		return out
	}
	out = append(out, Page{head, b[lnMem:][:size]})
	for i, at := uint64(0), lnLinks; i < word(lnCount) && at+listedBytes <= len(b); i, at = i+1, at+listedBytes {
		out = append(out, Page{word(at), b[at+8:][:n]})
		if of := at + listedObject; object > 0 && word(of) != 0 {
			out = append(out, Page{word(of), b[of+8:][:object]})
		}
	}
	for i := range int(texts) {
		for k := range stack.LinkTexts {
			if at := lnTexts + i*textsBytes + 8 + k*(8+maxText); word(at) != 0 {
				out = append(out, Page{word(at), b[at+8:][:maxText]})
			}
		}
	}
	return out
}
