package kernel

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"github.com/sliverprof/sliver/iowatch"
)

// Messages to name servers have records of their own: whatever a program's resolver is, it sends a query to
// port 53 and receives from the same socket. A record has the server's address, if that came with the
// message, and the beginnings of at most two messages.

// In the path of a record of an OpQuery or OpAnswer.
const (
	msgAddr  = 0  // address (struct sockaddr), zeros if the socket is connected
	msgBytes = 32 // bytes for it
	msgRoom  = iowatch.MessageBytes
	msgCount = 2
)

// Offsets in struct msghdr (include/linux/socket.h), and the size of struct mmsghdr and struct iovec.
const (
	headName = 0
	headVec  = 16
	nextHead = 64
	nextVec  = 16
)

// Family and port 53 at the beginning of an address, as a word of a little-endian machine.
const (
	nameServer4 = 2 | 0x3500<<16
	nameServer6 = 10 | 0x3500<<16
)

// probe reads n bytes at R3 + off in the target to a place on the stack. R0 is not 0 if that fails.
func (a *assembler) probe(to int, n, off int32) {
	a.add(asm.Add.Imm(asm.R3, off), asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(to)), asm.Mov.Imm(asm.R2, n), asm.FnProbeReadUser.Call())
}

// nameServer sets onTmp to whether the address at R3 is that of a name server: 0 or 1.
func (a *assembler) nameServer() {
	is, not := a.fresh("server"), a.fresh("other")
	a.add(storeWord(asm.RFP, onTmp, 0))
	a.probe(onTmp, 4, 0)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.Word), storeWord(asm.RFP, onTmp, 0), asm.JEq.Imm(asm.R1, nameServer4, is), asm.JNE.Imm(asm.R1, nameServer6, not))
	a.label(is)
	a.add(storeWord(asm.RFP, onTmp, 1))
	a.label(not)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// names handles the messages of a socket: "socket" goes to "query" if the peer is a name
// server, and else to "message".
func (a *assembler) names(m ioMaps) {
	a.label("socket")
	a.add(asm.LoadMem(asm.R1, asm.RFP, onNames, asm.DWord), asm.JNE.Imm(asm.R1, 0, "query"), asm.JNE.Imm(asm.R6, classWrite, "message"))
	a.address("message")
	a.toServer(m, "message")

	a.label("query")
	a.window()
	a.add(asm.LoadMem(asm.R1, asm.R9, taskOps, asm.Word), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R9, taskOps, asm.R1, asm.Word),
		asm.JLE.Imm(asm.R1, opsLimit, "asks"))
	a.count(m, lostOps)
	a.add(asm.Ja.Label("out"))
	a.label("asks")
	a.set(recOp, int64(iowatch.OpQuery), asm.Byte)
	a.add(asm.JEq.Imm(asm.R6, classWrite, "limited"))
	a.set(recOp, int64(iowatch.OpAnswer), asm.Byte)
	a.add(asm.Ja.Label("pathonly"))
}

// toServer notes that the descriptor's peer is a name server, if the address in R3 is that of one. Else it
// goes to the label other.
func (a *assembler) toServer(m ioMaps, other string) {
	a.add(asm.JEq.Imm(asm.R3, 0, other))
	a.nameServer()
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.DWord), asm.JEq.Imm(asm.R1, 0, other))
	a.get(asm.R1, recFD, asm.Word)
	a.add(asm.StoreMem(asm.RFP, onKey, asm.R1, asm.DWord))
	a.lookup(m.fds, onKey)
	a.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.StoreImm(asm.R0, fdNames, 1, asm.Word))
}

// address sets R3 to the address that came with a call, 0 if there is none. A call of another class goes
// to a label.
func (a *assembler) address(other string) {
	head, done := a.fresh("head"), a.fresh("address")
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classHead), asm.JNE.Imm(asm.R1, 0, head),
		asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classAddr), asm.JEq.Imm(asm.R1, 0, other))
	a.arg(asm.R3, 4)
	a.add(asm.Ja.Label(done))
	a.label(head)
	a.add(storeWord(asm.RFP, onTmp, 0))
	a.arg(asm.R3, 1)
	a.probe(onTmp, 8, headName)
	a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord))
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// fastOpen handles calls that open a connection with their message (MSG_FASTOPEN) and go on after the call.
func (a *assembler) fastOpen(m ioMaps) {
	a.label("begins")
	a.add(asm.JNE.Imm(asm.R6, classWrite, "out"))
	a.set(recRet, 0, asm.DWord)
	a.descriptor(m)
	a.add(asm.LoadMem(asm.R1, asm.R0, fdGen, asm.Word), asm.LoadMem(asm.R2, asm.R0, fdNames, asm.Word), asm.StoreMem(asm.RFP, onNames, asm.R2, asm.DWord))
	a.put(recGen, asm.R1, asm.Word)
	a.set(recMode, 0o140000, asm.Word)
	a.set(recSize, -1, asm.DWord)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onNames, asm.DWord), asm.JNE.Imm(asm.R1, 0, "query"))
	a.address("out")
	a.toServer(m, "out")
	a.add(asm.Ja.Label("query"))
}

// copyMessages copies address and messages of an OpQuery or OpAnswer into the record, R6, and goes to a
// label then. R1 is the operation, also afterwards for others.
func (a *assembler) copyMessages(done string) {
	is, not := a.fresh("messages"), a.fresh("none")
	a.add(asm.JEq.Imm(asm.R1, int32(iowatch.OpQuery), is), asm.JNE.Imm(asm.R1, int32(iowatch.OpAnswer), not))
	a.label(is)
	for off := 0; off < pathBytes; off += 8 {
		a.add(storeWord(asm.R6, int16(recPath+off), 0))
	}
	buffers, plain, list := a.fresh("buffers"), a.fresh("plain"), a.fresh("list")
	a.get(asm.R1, recOp, asm.Byte)
	a.add(asm.JNE.Imm(asm.R1, int32(iowatch.OpQuery), buffers))
	a.address(buffers)
	a.add(asm.JEq.Imm(asm.R3, 0, buffers), asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, recPath+msgAddr), asm.Mov.Imm(asm.R2, msgBytes-4), asm.FnProbeReadUser.Call())
	a.label(buffers)
	a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classHead|classVec), asm.JNE.Imm(asm.R1, 0, list))
	a.label(plain)
	a.arg(asm.R3, 1)
	a.copyMessage(0)
	a.add(asm.Ja.Label(done))

	a.label(list)
	for i := range msgCount {
		end := done
		if i == 0 {
			end = a.fresh("second")
		}
		vec, one := a.fresh("vec"), a.fresh("one")
		a.arg(asm.R3, 1)
		a.add(asm.StoreMem(asm.RFP, onSize, asm.R3, asm.DWord), asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, classHead), asm.JEq.Imm(asm.R1, 0, vec))
		a.probe(onSize, 8, headVec+int32(i)*nextHead)
		a.label(vec)
		a.add(storeWord(asm.RFP, onUse, 0), storeWord(asm.RFP, onUse+8, 0), asm.LoadMem(asm.R3, asm.RFP, onSize, asm.DWord))
		a.probe(onUse, nextVec, 0)
		a.add(asm.LoadMem(asm.R1, asm.RFP, onUse+8, asm.DWord), asm.JNE.Imm(asm.R1, 2, one)) // the length of a message over TCP
		a.add(asm.LoadMem(asm.R3, asm.RFP, onSize, asm.DWord))
		a.probe(onUse, nextVec, nextVec)
		a.label(one)
		a.add(asm.LoadMem(asm.R3, asm.RFP, onUse, asm.DWord))
		a.copyMessage(i)
		if i == 0 {
			a.add(asm.Mov.Reg(asm.R1, asm.R7), asm.And.Imm(asm.R1, 0xff), asm.JEq.Imm(asm.R1, classSends, end), asm.JNE.Imm(asm.R1, classGets, done))
			a.label(end)
			a.get(asm.R1, recFD2, asm.Word)
			a.add(asm.JLT.Imm(asm.R1, msgCount, done))
		}
	}
	a.add(asm.Ja.Label(done))
	a.label(not)
	a.get(asm.R1, recOp, asm.Byte)
}

// copyMessage copies the message at R3. The page after its end may be missing: then less is copied.
func (a *assembler) copyMessage(i int) {
	done := a.fresh("message")
	at := int32(recPath + msgBytes + i*msgRoom)
	a.add(asm.StoreMem(asm.RFP, onMode, asm.R3, asm.DWord), asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, at), asm.Mov.Imm(asm.R2, msgRoom), asm.FnProbeReadUser.Call(),
		asm.JEq.Imm(asm.R0, 0, done), asm.LoadMem(asm.R3, asm.RFP, onMode, asm.DWord), asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, at),
		asm.Mov.Imm(asm.R2, msgRoom/4), asm.FnProbeReadUser.Call())
	a.label(done)
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// parseMessages parses the messages of a record's path.
func parseMessages(b []byte, r *IORecord) {
	r.Path = ""
	if binary.NativeEndian.Uint16(b[msgAddr:]) != 0 {
		r.Path = peer(b[msgAddr:msgBytes])
	}
	size, n := r.Ret, 1
	if sort := callOf(r.nr).class & 0xff; sort == classSends || sort == classGets {
		size, n = 0, int(min(r.count, msgCount))
	}
	r.Messages = r.messages[:0]
	for i := range n {
		text := b[msgBytes+i*msgRoom:][:msgRoom]
		if size > 0 {
			text = text[:min(size, msgRoom)]
		}
		if m, ok := iowatch.ParseMessage(text, size); ok {
			r.Messages = append(r.Messages, m)
		}
	}
}
