package kernel

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/sliverprof/sliver/stack"
)

// What a program copies of a List, at some place of a record.
const (
	lnHead   = 0 // address of the memory with the first pointer; 0: nothing was copied
	lnSize   = 8
	lnLen    = 16
	lnObjLen = 24
	lnNew    = 32 // number of objects with texts
	lnCount  = 40 // number of elements
	lnMem    = 48
	lnTexts  = lnMem + maxHead
	lnLinks  = lnTexts + maxTexts*textsBytes // elements: see listedBytes
	lnRoom   = maxObject                     // behind the last element: see follower.length

	// Of an element: its address, maxLink bytes, its object's address (0: none), maxObject bytes.
	listedObject = 8 + maxLink
	listedBytes  = listedObject + 8 + maxObject
	// Of an object that is new: where its element is behind lnLinks, then the addresses of its texts (0: not read), each with
	// maxText bytes.
	maxText    = 328
	textsBytes = 1024
)

// Bounds of the copies.
const (
	maxHead    = 1024 // bytes, a power of two
	maxLink    = 128  // the same
	maxObject  = 256  // the same
	maxTexts   = 8    // objects with texts in a record, a power of two
	maxObjects = 4096 // known ones, a power of two
)

// follower writes the part of a program that copies a list. R6 is the record, R8 the plan.
type follower struct {
	*assembler
	objects  int   // map of the objects that were seen: see objectMap
	base     int   // where the copy is in the record
	most     int   // elements
	plan     int16 // where the list is in the plan
	tmp, key int16 // words on the program's stack, free to use
	tls      int16 // where the record has the TLS base; 0: nowhere
	done     string
}

// objectMap describes a map of the objects that were seen: their address and their word at Key, by a number that is made of
// the address.
func objectMap(name string) ebpf.MapSpec {
	return ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: maxObjects}
}

// place sets a register to an offset of the copy, in the record, R6.
func (f *follower) place(r asm.Register, off int) {
	f.add(asm.Mov.Reg(r, asm.R6), asm.Add.Imm(r, int32(f.base+off)))
}

// word loads a word of the copy into R7: from is an offset of the copy, and off that of a further offset in the plan, R8.
func (f *follower) word(from int, off int16, most int32) {
	f.place(asm.R2, from)
	f.add(asm.LoadMem(asm.R1, asm.R8, f.plan+off, asm.DWord), asm.And.Imm(asm.R1, most-8), asm.Add.Reg(asm.R2, asm.R1), asm.LoadMem(asm.R7, asm.R2, 0, asm.DWord))
}

// length loads a length of the plan, which put has checked, into R2. The mask bounds it for the kernel's check of the
// program with no branch: one for each element would double the ways through it. What would be too much stays in the record.
func (f *follower) length(off int16, most int32) {
	f.add(asm.LoadMem(asm.R2, asm.R8, f.plan+off, asm.DWord), asm.And.Imm(asm.R2, 2*most-1))
}

// follow copies the list of the plan. Elements beyond the most are missing, and so are those that cannot be read with page
// faults disabled, and what follows them.
func (f *follower) follow() {
	f.done = f.fresh("followed")
	for _, off := range [...]int{lnHead, lnNew, lnCount} {
		f.place(asm.R1, off)
		f.add(storeWord(asm.R1, 0, 0))
	}
	f.add(asm.LoadMem(asm.R1, asm.R8, f.plan+listSize, asm.DWord), asm.JEq.Imm(asm.R1, 0, f.done))
	f.head()
	for i := range f.most {
		at := lnLinks + i*listedBytes
		f.place(asm.R1, at+8)
		f.add(asm.JEq.Imm(asm.R7, 0, f.done))
		f.length(listLen, maxLink)
		f.add(asm.Mov.Reg(asm.R3, asm.R7), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, f.done))
		f.place(asm.R1, at)
		f.place(asm.R2, lnCount)
		f.add(asm.StoreMem(asm.R1, 0, asm.R7, asm.DWord), storeWord(asm.R2, 0, int32(i+1)))
		f.object(i)
		f.word(at+8, listNext, maxLink)
	}
	f.label(f.done)
	f.texts()
}

// head copies the memory with the first pointer, and loads that pointer into R7.
func (f *follower) head() {
	known, rooted, byTLS, direct := f.fresh("head"), f.fresh("rooted"), f.fresh("byTLS"), f.fresh("direct")
	f.add(asm.LoadMem(asm.R7, asm.R8, f.plan+listHead, asm.DWord), asm.JNE.Imm(asm.R7, 0, known),
		asm.LoadMem(asm.R3, asm.R8, f.plan+listRoot, asm.DWord), asm.JEq.Imm(asm.R3, 0, byTLS))
	f.pointer(f.done)
	f.add(asm.JEq.Imm(asm.R7, 0, f.done), asm.LoadMem(asm.R3, asm.R8, f.plan+listStep, asm.DWord), asm.Add.Reg(asm.R3, asm.R7), asm.Ja.Label(rooted))
	f.label(byTLS)
	if f.tls == 0 {
		f.add(asm.Ja.Label(f.done))
	} else {
		f.add(asm.LoadMem(asm.R3, asm.R6, f.tls, asm.DWord), asm.JEq.Imm(asm.R3, 0, f.done), asm.LoadMem(asm.R1, asm.R8, f.plan+listTLS, asm.DWord), asm.Add.Reg(asm.R3, asm.R1))
	}
	f.label(rooted)
	f.pointer(f.done)
	f.label(known)
	f.place(asm.R1, lnMem)
	f.length(listSize, maxHead)
	f.add(asm.Mov.Reg(asm.R3, asm.R7), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, f.done))
	f.place(asm.R1, lnHead)
	f.add(asm.StoreMem(asm.R1, 0, asm.R7, asm.DWord))
	for _, x := range [...]struct{ to, from int16 }{{lnSize, listSize}, {lnLen, listLen}, {lnObjLen, listObjN}} {
		f.add(asm.LoadMem(asm.R2, asm.R8, f.plan+x.from, asm.DWord), asm.StoreMem(asm.R1, x.to, asm.R2, asm.DWord))
	}
	f.word(lnMem, listFirst, maxHead)
	f.add(asm.LoadMem(asm.R3, asm.R8, f.plan+listVia, asm.DWord), asm.JEq.Imm(asm.R3, 0, direct), asm.Sub.Imm(asm.R3, 1), asm.JEq.Imm(asm.R7, 0, f.done), asm.Add.Reg(asm.R3, asm.R7))
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
	f.add(storeWord(asm.R1, 0, 0), asm.LoadMem(asm.R3, asm.R8, f.plan+listObj, asm.DWord), asm.JEq.Imm(asm.R3, 0, none), asm.Sub.Imm(asm.R3, 1), asm.And.Imm(asm.R3, maxLink-8),
		asm.Add.Reg(asm.R2, asm.R3), asm.LoadMem(asm.R7, asm.R2, 0, asm.DWord), asm.And.Imm(asm.R7, -8), asm.Add.Imm(asm.R1, 8))
	f.length(listObjN, maxObject)
	f.add(asm.Mov.Reg(asm.R3, asm.R7), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, none))
	f.place(asm.R1, at+listedObject)
	f.add(asm.StoreMem(asm.R1, 0, asm.R7, asm.DWord), asm.StoreMem(asm.RFP, f.tmp, asm.R7, asm.DWord),
		asm.RSh.Imm(asm.R7, 4), asm.And.Imm(asm.R7, maxObjects-1), asm.StoreMem(asm.RFP, f.key, asm.R7, asm.Word))
	f.lookup(f.objects, int(f.key))
	f.add(asm.JEq.Imm(asm.R0, 0, none))
	f.word(at+listedObject+8, listKey, maxObject)
	f.add(asm.LoadMem(asm.R3, asm.RFP, f.tmp, asm.DWord), asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.JNE.Reg(asm.R1, asm.R3, unseen),
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
		for k := range stack.LinkTexts {
			next := f.fresh("text")
			f.place(asm.R7, at+8+k*(8+maxText))
			f.place(asm.R1, at)
			f.place(asm.R2, lnLinks+listedObject+8)
			f.add(storeWord(asm.R7, 0, 0), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), asm.JGT.Imm(asm.R1, int32((f.most-1)*listedBytes), end), asm.Add.Reg(asm.R2, asm.R1),
				asm.LoadMem(asm.R1, asm.R8, f.plan+int16(listTexts+8*k), asm.DWord), asm.JEq.Imm(asm.R1, 0, next), asm.Sub.Imm(asm.R1, 1), asm.And.Imm(asm.R1, maxObject-8), asm.Add.Reg(asm.R2, asm.R1),
				asm.LoadMem(asm.R3, asm.R2, 0, asm.DWord), asm.StoreMem(asm.RFP, f.tmp, asm.R3, asm.DWord),
				asm.Mov.Reg(asm.R1, asm.R7), asm.Add.Imm(asm.R1, 8), asm.Mov.Imm(asm.R2, maxText), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, next),
				asm.LoadMem(asm.R3, asm.RFP, f.tmp, asm.DWord), asm.StoreMem(asm.R7, 0, asm.R3, asm.DWord))
			f.label(next)
		}
	}
	f.label(end)
}

// pointer loads the thread's word at R3 into R7.
func (f *follower) pointer(failed string) {
	f.add(asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(f.tmp)), asm.Mov.Imm(asm.R2, 8), asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, failed),
		asm.LoadMem(asm.R7, asm.RFP, f.tmp, asm.DWord))
}
