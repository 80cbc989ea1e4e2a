package kernel

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
)

// IOLinks is a list in the process's memory, such as that of the frames of an interpreter. The program follows it
// when it copies a thread's stack, and copies its elements.
type IOLinks struct {
	Head  uint64 // address of memory that has the pointer to the first element; 0: the word at TLS has this address
	TLS   int64  // offset from the thread's TLS base
	Size  int    // bytes of that memory, also copied, at most maxHead; 0: no list
	First int    // offset in it of the pointer to the first element, or to Via
	Via   int    // offset of that pointer in what First points to, plus 1; 0: First is the pointer itself
	Next  int    // offset in an element of the pointer to the next one; the last element has 0
	Len   int    // bytes of an element, at most maxLink
}

// fits reports whether the program can follow the list.
func (l *IOLinks) fits() bool {
	inside := func(off, n int) bool { return off >= 0 && off&7 == 0 && off+8 <= n }
	return l.Size <= maxHead && l.Len <= maxLink && inside(l.First, l.Size) && inside(l.Next, l.Len) && l.Via >= 0
}

// put writes the list into the value of a plan.
func (l *IOLinks) put(v []uint64) {
	if l == nil || !l.fits() {
		return
	}
	v[planHead/8], v[planTLS/8], v[planSize/8], v[planFirst/8] = l.Head, uint64(l.TLS), uint64(l.Size), uint64(l.First)
	v[planVia/8], v[planNext/8], v[planLen/8] = uint64(l.Via), uint64(l.Next), uint64(l.Len)
}

// links copies the list of the plan, R8, into the record, R6. Elements beyond maxListed are missing, and so are those
// that cannot be read with page faults disabled, and what follows them.
func (a *assembler) links() {
	done := a.fresh("followed")
	at := func(r asm.Register, off int) { a.add(asm.Mov.Reg(r, asm.R6), asm.Add.Imm(r, int32(off))) }
	// bounded loads a length of the plan into R2.
	bounded := func(off int16, most int32) {
		a.add(asm.LoadMem(asm.R2, asm.R8, off, asm.DWord), asm.JEq.Imm(asm.R2, 0, done), asm.JGT.Imm(asm.R2, most, done))
	}
	// word loads the word of memory in the record whose offset is in the plan into R7.
	word := func(from int, off int16, most int32) {
		at(asm.R2, from)
		a.add(asm.LoadMem(asm.R1, asm.R8, off, asm.DWord), asm.And.Imm(asm.R1, most-8), asm.Add.Reg(asm.R2, asm.R1), asm.LoadMem(asm.R7, asm.R2, 0, asm.DWord))
	}
	at(asm.R1, recHead)
	a.add(storeWord(asm.R1, 0, 0))
	at(asm.R1, recLinks)
	a.add(storeWord(asm.R1, 0, 0))
	known := a.fresh("head")
	a.add(asm.LoadMem(asm.R7, asm.R8, planHead, asm.DWord), asm.JNE.Imm(asm.R7, 0, known),
		asm.LoadMem(asm.R3, asm.R6, recTLS, asm.DWord), asm.JEq.Imm(asm.R3, 0, done), asm.LoadMem(asm.R1, asm.R8, planTLS, asm.DWord), asm.Add.Reg(asm.R3, asm.R1))
	a.pointer(done)
	a.label(known)
	at(asm.R1, recHeadMem)
	bounded(planSize, maxHead)
	a.add(asm.Mov.Reg(asm.R3, asm.R7), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, done))
	at(asm.R1, recHead)
	a.add(asm.StoreMem(asm.R1, 0, asm.R7, asm.DWord), asm.LoadMem(asm.R2, asm.R8, planSize, asm.DWord), asm.StoreMem(asm.R1, 8, asm.R2, asm.DWord),
		asm.LoadMem(asm.R2, asm.R8, planLen, asm.DWord), asm.StoreMem(asm.R1, 16, asm.R2, asm.DWord))
	word(recHeadMem, planFirst, maxHead)
	direct := a.fresh("direct")
	a.add(asm.LoadMem(asm.R3, asm.R8, planVia, asm.DWord), asm.JEq.Imm(asm.R3, 0, direct), asm.Sub.Imm(asm.R3, 1), asm.JEq.Imm(asm.R7, 0, done), asm.Add.Reg(asm.R3, asm.R7))
	a.pointer(done)
	a.label(direct)
	for i := range maxListed {
		slot := recLinks + i*listedBytes
		at(asm.R1, slot)
		a.add(storeWord(asm.R1, 0, 0), asm.JEq.Imm(asm.R7, 0, done), asm.Add.Imm(asm.R1, 8))
		bounded(planLen, maxLink)
		a.add(asm.Mov.Reg(asm.R3, asm.R7), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, done))
		at(asm.R1, slot)
		a.add(asm.StoreMem(asm.R1, 0, asm.R7, asm.DWord))
		word(slot+8, planNext, maxLink)
	}
	a.label(done)
}

// pointer loads the thread's word at R3 into R7.
func (a *assembler) pointer(failed string) {
	a.add(asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, onTmp), asm.Mov.Imm(asm.R2, 8), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, failed),
		asm.LoadMem(asm.R7, asm.RFP, onTmp, asm.DWord))
}

// parseLinks appends what links copied into a record of formDeep: the memory with the first pointer, then the elements.
func parseLinks(b []byte, out []Page) []Page {
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	head, size, n := word(recHead), word(recHead+8), word(recHead+16)
	if head == 0 || size > maxHead || n > maxLink {
		return out
	}
	out = append(out, Page{head, b[recHeadMem:][:size]})
	for at := recLinks; at < recLinks+maxListed*listedBytes && word(at) != 0; at += listedBytes {
		out = append(out, Page{word(at), b[at+8:][:n]})
	}
	return out
}
