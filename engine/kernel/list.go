package kernel

import "encoding/binary"

// IOLinks is a list in the process's memory, such as that of the frames of an interpreter. The program follows it
// when it copies a thread's stack, and copies its elements.
type IOLinks struct {
	Head  uint64 // address of memory that has the pointer to the first element; 0: the word at Step of what Root points to has this address
	Root  uint64 // address; 0: the word at TLS has that of Head
	Step  int
	TLS   int64 // offset from the thread's TLS base
	Size  int   // bytes of that memory, also copied, at most maxHead; 0: no list
	First int   // offset in it of the pointer to the first element, or to Via
	Via   int   // offset of that pointer in what First points to, plus 1; 0: First is the pointer itself
	Next  int   // offset in an element of the pointer to the next one; the last element has 0
	Len   int   // bytes of an element, at most maxLink

	// Each element may have an object, which is copied with it, since it may be freed before it is read otherwise.
	Object    int              // offset in an element of the pointer to it, of which the lowest three bits do not count, plus 1; 0: none
	ObjectLen int              // bytes of an object, at most maxObject
	Key       int              // offset in it of a word that differs in another object at the same address
	Texts     [objectTexts]int // offsets in it of pointers to memory of which maxText bytes are copied with an object that is new, plus 1; 0: none
}

// fits reports whether the program can follow the list.
func (l *IOLinks) fits() bool {
	inside := func(off, n int) bool { return off >= 0 && off&7 == 0 && off+8 <= n }
	for _, x := range l.Texts {
		if x != 0 && !inside(x-1, l.ObjectLen) {
			return false
		}
	}
	return l.Size <= maxHead && l.Len <= maxLink && inside(l.First, l.Size) && inside(l.Next, l.Len) && l.Via >= 0 &&
		(l.Object == 0 || inside(l.Object-1, l.Len) && l.ObjectLen <= maxObject && inside(l.Key, l.ObjectLen))
}

// put writes the list into the value of a plan.
func (l *IOLinks) put(v []uint64) {
	if l == nil || !l.fits() {
		return
	}
	v[planHead/8], v[planTLS/8], v[planSize/8], v[planFirst/8] = l.Head, uint64(l.TLS), uint64(l.Size), uint64(l.First)
	v[planRoot/8], v[planStep/8] = l.Root, uint64(l.Step)
	v[planVia/8], v[planNext/8], v[planLen/8] = uint64(l.Via), uint64(l.Next), uint64(l.Len)
	v[planObj/8], v[planObjN/8], v[planKey/8] = uint64(l.Object), uint64(l.ObjectLen), uint64(l.Key)
	for i, x := range l.Texts {
		v[planTexts/8+i] = uint64(x)
	}
}

// parseLinks appends what follow copied into b: the memory with the first pointer, then the elements, each with its
// object, then the texts of objects.
func parseLinks(b []byte, out []Page) []Page {
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	head, size, n, object, texts := word(lnHead), word(lnSize), word(lnLen), word(lnObjLen), word(lnNew)
	if head == 0 || size > maxHead || n > maxLink || object > maxObject || texts > maxTexts {
		return out
	}
	out = append(out, Page{head, b[lnMem:][:size]})
	for at := lnLinks; at < lnTexts && word(at) != 0; at += listedBytes {
		out = append(out, Page{word(at), b[at+8:][:n]})
		if of := at + listedObject; object > 0 && word(of) != 0 {
			out = append(out, Page{word(of), b[of+8:][:object]})
		}
	}
	for i := range int(texts) {
		for k := range objectTexts {
			if at := lnTexts + i*textsBytes + 8 + k*(8+maxText); word(at) != 0 {
				out = append(out, Page{word(at), b[at+8:][:maxText]})
			}
		}
	}
	return out
}
