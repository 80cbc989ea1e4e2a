package kernel

import "github.com/cilium/ebpf/asm"

// What the program copies of a list (IOLinks), at some place of a record.
const (
	lnHead   = 0 // address of the memory with the first pointer; 0: nothing was copied
	lnSize   = 8
	lnLen    = 16
	lnObjLen = 24
	lnNew    = 32 // number of objects with texts
	lnMem    = 40
	lnLinks  = lnMem + maxHead // elements: see listedBytes; address 0 ends them
	lnTexts  = lnLinks + maxListed*listedBytes
	lnBytes  = lnTexts + maxTexts*textsBytes

	// Of an element: its address, maxLink bytes, its object's address (0: none), maxObject bytes.
	listedObject = 8 + maxLink
	listedBytes  = listedObject + 8 + maxObject
	// Of an object that is new: where its element is behind lnLinks, then objectTexts addresses (0: not read), each with
	// maxText bytes.
	objectTexts = 3
	maxText     = 328
	textsBytes  = 1024
)

// follower writes the part of the program that copies a list.
type follower struct {
	*assembler
	m    ioMaps
	base int // where it is in the record
	done string
}

// place sets a register to an offset of the copy, in the record, R6.
func (f *follower) place(r asm.Register, off int) {
	f.add(asm.Mov.Reg(r, asm.R6), asm.Add.Imm(r, int32(f.base+off)))
}

// word loads a word of the copy into R7: from is an offset of the copy, and off that of a further offset in the plan, R8.
func (f *follower) word(from int, off int16, most int32) {
	f.place(asm.R2, from)
	f.add(asm.LoadMem(asm.R1, asm.R8, off, asm.DWord), asm.And.Imm(asm.R1, most-8), asm.Add.Reg(asm.R2, asm.R1), asm.LoadMem(asm.R7, asm.R2, 0, asm.DWord))
}

// length loads a length of the plan, which put has checked, into R2. The mask bounds it for the kernel's check of the
// program with no branch: one for each element would double the ways through it. What would be too much stays in the record.
func (f *follower) length(off int16, most int32) {
	f.add(asm.LoadMem(asm.R2, asm.R8, off, asm.DWord), asm.And.Imm(asm.R2, 2*most-1))
}

// follow copies the list of the plan, R8. Elements beyond maxListed are missing, and so are those that cannot be read with
// page faults disabled, and what follows them.
func (f *follower) follow() {
	f.done = f.fresh("followed")
	for _, off := range [...]int{lnHead, lnNew, lnLinks} {
		f.place(asm.R1, off)
		f.add(storeWord(asm.R1, 0, 0))
	}
	f.add(asm.LoadMem(asm.R1, asm.R8, planSize, asm.DWord), asm.JEq.Imm(asm.R1, 0, f.done))
	f.head()
	for i := range maxListed {
		at := lnLinks + i*listedBytes
		f.place(asm.R1, at)
		f.add(storeWord(asm.R1, 0, 0), asm.JEq.Imm(asm.R7, 0, f.done), asm.Add.Imm(asm.R1, 8))
		f.length(planLen, maxLink)
		f.add(asm.Mov.Reg(asm.R3, asm.R7), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, f.done))
		f.place(asm.R1, at)
		f.add(asm.StoreMem(asm.R1, 0, asm.R7, asm.DWord))
		f.object(i)
		f.word(at+8, planNext, maxLink)
	}
	f.label(f.done)
	f.texts()
}

// head copies the memory with the first pointer, and loads that pointer into R7.
func (f *follower) head() {
	known, rooted, byTLS, direct := f.fresh("head"), f.fresh("rooted"), f.fresh("byTLS"), f.fresh("direct")
	f.add(asm.LoadMem(asm.R7, asm.R8, planHead, asm.DWord), asm.JNE.Imm(asm.R7, 0, known),
		asm.LoadMem(asm.R3, asm.R8, planRoot, asm.DWord), asm.JEq.Imm(asm.R3, 0, byTLS))
	f.pointer(f.done)
	f.add(asm.JEq.Imm(asm.R7, 0, f.done), asm.LoadMem(asm.R3, asm.R8, planStep, asm.DWord), asm.Add.Reg(asm.R3, asm.R7), asm.Ja.Label(rooted))
	f.label(byTLS)
	f.add(asm.LoadMem(asm.R3, asm.R6, recTLS, asm.DWord), asm.JEq.Imm(asm.R3, 0, f.done), asm.LoadMem(asm.R1, asm.R8, planTLS, asm.DWord), asm.Add.Reg(asm.R3, asm.R1))
	f.label(rooted)
	f.pointer(f.done)
	f.label(known)
	f.place(asm.R1, lnMem)
	f.length(planSize, maxHead)
	f.add(asm.Mov.Reg(asm.R3, asm.R7), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, f.done))
	f.place(asm.R1, lnHead)
	f.add(asm.StoreMem(asm.R1, 0, asm.R7, asm.DWord))
	for _, x := range [...]struct{ to, from int16 }{{lnSize, planSize}, {lnLen, planLen}, {lnObjLen, planObjN}} {
		f.add(asm.LoadMem(asm.R2, asm.R8, x.from, asm.DWord), asm.StoreMem(asm.R1, x.to, asm.R2, asm.DWord))
	}
	f.word(lnMem, planFirst, maxHead)
	f.add(asm.LoadMem(asm.R3, asm.R8, planVia, asm.DWord), asm.JEq.Imm(asm.R3, 0, direct), asm.Sub.Imm(asm.R3, 1), asm.JEq.Imm(asm.R7, 0, f.done), asm.Add.Reg(asm.R3, asm.R7))
	f.pointer(f.done)
	f.label(direct)
}

// object copies the object of the i-th element, and notes it if it was not seen before. The table of objects that were seen
// has room for one of each number that is made of an address.
func (f *follower) object(i int) {
	none, unseen := f.fresh("object"), f.fresh("unseen")
	at := lnLinks + i*listedBytes
	f.place(asm.R1, at+listedObject)
	f.place(asm.R2, at+8)
	f.add(storeWord(asm.R1, 0, 0), asm.LoadMem(asm.R3, asm.R8, planObj, asm.DWord), asm.JEq.Imm(asm.R3, 0, none), asm.Sub.Imm(asm.R3, 1), asm.And.Imm(asm.R3, maxLink-8),
		asm.Add.Reg(asm.R2, asm.R3), asm.LoadMem(asm.R7, asm.R2, 0, asm.DWord), asm.And.Imm(asm.R7, -8), asm.Add.Imm(asm.R1, 8))
	f.length(planObjN, maxObject)
	f.add(asm.Mov.Reg(asm.R3, asm.R7), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, none))
	f.place(asm.R1, at+listedObject)
	f.add(asm.StoreMem(asm.R1, 0, asm.R7, asm.DWord), asm.StoreMem(asm.RFP, onTmp, asm.R7, asm.DWord),
		asm.RSh.Imm(asm.R7, 4), asm.And.Imm(asm.R7, maxObjects-1), asm.StoreMem(asm.RFP, onKey, asm.R7, asm.Word))
	f.lookup(f.m.objects, onKey)
	f.add(asm.JEq.Imm(asm.R0, 0, none))
	f.word(at+listedObject+8, planKey, maxObject)
	f.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord), asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.JNE.Reg(asm.R1, asm.R3, unseen),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord), asm.JEq.Reg(asm.R1, asm.R7, none))
	f.label(unseen)
	f.place(asm.R1, lnNew)
	f.add(asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.JGE.Imm(asm.R2, maxTexts, none), asm.StoreMem(asm.R0, 0, asm.R3, asm.DWord), asm.StoreMem(asm.R0, 8, asm.R7, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R2), asm.Add.Imm(asm.R3, 1), asm.StoreMem(asm.R1, 0, asm.R3, asm.DWord), asm.And.Imm(asm.R2, maxTexts-1), asm.Mul.Imm(asm.R2, textsBytes))
	f.place(asm.R1, lnTexts)
	f.add(asm.Add.Reg(asm.R1, asm.R2), storeWord(asm.R1, 0, int32(i*listedBytes)))
	f.label(none)
}

// texts copies those of the objects that object noted.
func (f *follower) texts() {
	end := f.fresh("texts")
	for i := range maxTexts {
		f.place(asm.R1, lnNew)
		f.add(asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), asm.JLE.Imm(asm.R1, int32(i), end))
		at := lnTexts + i*textsBytes
		for k := range objectTexts {
			next := f.fresh("text")
			f.place(asm.R7, at+8+k*(8+maxText))
			f.place(asm.R1, at)
			f.place(asm.R2, lnLinks+listedObject+8)
			f.add(storeWord(asm.R7, 0, 0), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), asm.JGT.Imm(asm.R1, (maxListed-1)*listedBytes, end), asm.Add.Reg(asm.R2, asm.R1),
				asm.LoadMem(asm.R1, asm.R8, int16(planTexts+8*k), asm.DWord), asm.JEq.Imm(asm.R1, 0, next), asm.Sub.Imm(asm.R1, 1), asm.And.Imm(asm.R1, maxObject-8), asm.Add.Reg(asm.R2, asm.R1),
				asm.LoadMem(asm.R3, asm.R2, 0, asm.DWord), asm.StoreMem(asm.RFP, onTmp, asm.R3, asm.DWord),
				asm.Mov.Reg(asm.R1, asm.R7), asm.Add.Imm(asm.R1, 8), asm.Mov.Imm(asm.R2, maxText), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, next),
				asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord), asm.StoreMem(asm.R7, 0, asm.R3, asm.DWord))
			f.label(next)
		}
	}
	f.label(end)
}

// pointer loads the thread's word at R3 into R7.
func (a *assembler) pointer(failed string) {
	a.add(asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, onTmp), asm.Mov.Imm(asm.R2, 8), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, failed),
		asm.LoadMem(asm.R7, asm.RFP, onTmp, asm.DWord))
}
