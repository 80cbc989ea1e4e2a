package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// IORecord is one record of IO. Its slices are valid until the next one.
type IORecord struct {
	iowatch.Event
	Cut bool // Path is longer than the copy of it
	// Sort is Op, or with OpMark, OpQuery and OpAnswer what the call did: OpRead or OpWrite.
	Sort iowatch.Op

	// Dir is of an OpOpen or OpCall the descriptor of the folder of a relative Path, negative for the working folder. Of
	// an OpMake by dup, dup2, dup3 and fcntl it is the old descriptor, by accept and accept4 the one that listens, and -1
	// of others.
	Dir  int32
	FD2  int32 // OpMake of two descriptors: the second one; 0: none
	Gen2 uint32
	// Ino and Dev are of an OpOpen and an OpFault the inode number of the file and the kernel's number of its
	// device (20 bits of minor); 0: unknown. Addr is of an OpFault the address.
	Ino, Addr uint64
	Dev       uint32
	// Users is how many threads have sums for the descriptor that was closed; of an OpOpen and an OpMake for one that
	// had the number and was not closed by a call of its own.
	Users uint32

	// Regs is the kernel's block of registers, nil if the record has no stack; target.RegsAMD64 or
	// target.RegsARM64 parse it.
	Regs   []byte
	TLS    uint64
	Base   uint64 // address of Memory, page-aligned
	Memory []byte // whole pages of stack
	Rest   []Page // pages of stack behind one that cannot be read
	Extras []Page // pages that IO.Plan asked for
	Links  []Page // memory of the list that IO.Plan asked for

	nr       uint32
	count    uint32 // of an OpQuery or OpAnswer by a call with several messages, their number
	sums     iowatch.Sums
	messages [msgCount]iowatch.Message
}

// Page is a copy of a page of memory.
type Page struct {
	Addr uint64
	Data []byte
}

// parseIO parses a record of the program leave.
func parseIO(b []byte, r *IORecord) error {
	if len(b) < recBytes {
		return fmt.Errorf("record of %d bytes, at least %d are needed", len(b), recBytes)
	}
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	half := func(off int) uint32 { return binary.NativeEndian.Uint32(b[off:]) }
	call := callOf(half(recNr))
	*r = IORecord{Event: iowatch.Event{Op: iowatch.Op(b[recOp]), End: stack.Time(word(recEnd)), Took: int64(word(recBusy) + word(recQueued)), Queued: int64(word(recQueued)), TID: stack.TID(half(recTID)),
		FD: int32(half(recFD)), Gen: half(recGen), Want: int64(word(recWant)), Ret: int64(word(recRet)), Size: int64(word(recSize)), SP: word(recSP),
		Loop: b[recLoop] != 0, Written: word(recWritten), Missed: b[recMissed] != 0, Call: call.name, Summed: true, Kind: iowatch.KindOf(half(recMode))}, nr: half(recNr), count: half(recFD2)}
	if r.Op == iowatch.OpNone || r.Op > iowatch.OpCall {
		return fmt.Errorf("record with unknown operation %d", r.Op)
	}
	if r.Sort = r.Op; r.Op == iowatch.OpMark || r.Op == iowatch.OpQuery || r.Op == iowatch.OpAnswer {
		if r.Sort = call.sort(); call.class&0xff == classMove {
			if r.Sort = iowatch.Op(b[recFD2]); r.Sort != iowatch.OpRead && r.Sort != iowatch.OpWrite {
				return fmt.Errorf("record of %s with unknown side %d", call.name, r.Sort)
			}
		}
	}
	if r.Kind == iowatch.KindUnknown {
		r.Size = -1
	}
	switch r.Op {
	case iowatch.OpOpen:
		r.Dir, r.Ino, r.Dev, r.Written = int32(half(recDir)), word(recIno), half(recDev), 0
		r.Users = half(recFD2)
	case iowatch.OpCall:
		r.Dir = int32(half(recDir))
	case iowatch.OpFault:
		r.Addr, r.Ino, r.Dev, r.Written, r.Ret = word(recRet), word(recIno), half(recDev), 0, 0
		r.Call = "page fault"
	case iowatch.OpMake:
		if r.Dir = -1; call.name == "fcntl" || strings.HasPrefix(call.name, "dup") || strings.HasPrefix(call.name, "accept") {
			r.Dir = int32(half(recDir))
		}
		if r.FD2 = int32(half(recFD2)); r.FD2 != 0 {
			r.Gen2 = half(recUsers)
		} else {
			r.Users = half(recUsers)
		}
	case iowatch.OpClose:
		r.Users = half(recUsers)
	}
	least := 0
	switch b[recForm] {
	case formPlain:
		return nil
	case formSums:
		if len(b) < bytesSums {
			return fmt.Errorf("record with sums has %d bytes, not %d", len(b), bytesSums)
		}
		parseSums(b[recSums:], &r.sums)
		r.Sums = &r.sums
		return nil
	case formPath:
		least = bytesPath
	case formSmall:
		least = bytesSmall
	case formMiddle:
		least = bytesMiddle
	case formDeep:
		least = bytesDeep
	case formListed:
		least = bytesListed
	default:
		return fmt.Errorf("record with unknown form %d", b[recForm])
	}
	if len(b) < least {
		return fmt.Errorf("record of form %d has %d bytes, not %d", b[recForm], len(b), least)
	}
	if r.Op == iowatch.OpQuery || r.Op == iowatch.OpAnswer {
		parseMessages(b[recPath:recPath+pathBytes], r)
	} else if r.Op == iowatch.OpConnect {
		r.Path = peer(b[recPath : recPath+min(max(r.Want, 0), maxAddr)])
	} else if path, _, _ := bytes.Cut(b[recPath:recPath+pathBytes], []byte{0}); len(path) > 0 {
		r.Path, r.Cut = string(path), len(path) >= pathBytes-1
	}
	if b[recForm] == formPath {
		return nil
	}
	pages := shallow
	if b[recForm] == formMiddle || b[recForm] == formDeep {
		pages = deep
	}
	if b[recForm] == formDeep {
		for i := range maxExtras {
			if at := word(recExtras + 8*i); at != 0 {
				r.Extras = append(r.Extras, Page{at, b[recExtra0+i*pageBytes:][:pageBytes]})
			}
		}
		r.Links = parseList(b[recDeep:], nil)
	} else if b[recForm] == formListed {
		r.Links = parseList(b[recListed:], nil)
	}
	r.Regs, r.TLS, r.Base = b[recRegs:recRegs+regBlock], word(recTLS), word(recBase)
	return parseStack(b, pages, r)
}

// parseStack sets Memory and Rest from a record with room for some pages of stack. Without the first page there are none.
func parseStack(b []byte, pages int, r *IORecord) error {
	read := binary.NativeEndian.Uint32(b[recPages:])
	if bits.Len32(read) > pages {
		return fmt.Errorf("record with page %d of the stack, at most %d are possible", bits.Len32(read), pages)
	}
	n := bits.TrailingZeros32(^read)
	r.Memory = b[recStack : recStack+n*pageBytes]
	for i := n; i < pages && n > 0; i++ {
		if read>>i&1 != 0 {
			r.Rest = append(r.Rest, Page{r.Base + uint64(i)*pageBytes, b[recStack+i*pageBytes:][:pageBytes]})
		}
	}
	return nil
}

// peer is a socket address (struct sockaddr of socket(7)) as text: a path or address:port; "" for other
// families and unnamed sockets.
func peer(b []byte) string {
	const unixFamily, inet, inet6 = 1, 2, 10
	if len(b) < 2 {
		return ""
	}
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unixFamily:
		path := b[2:]
		if len(path) > 0 && path[0] == 0 { // abstract
			return "@" + string(bytes.TrimRight(path[1:], "\x00"))
		}
		path, _, _ = bytes.Cut(path, []byte{0})
		return string(path)
	case family == inet && len(b) >= 8:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])).String()
	case family == inet6 && len(b) >= 24:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), binary.BigEndian.Uint16(b[2:])).String()
	}
	return ""
}

// parseSums parses a value of the map of uses, which has useBytes bytes.
func parseSums(b []byte, s *iowatch.Sums) {
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	*s = iowatch.Sums{Ops: word(useOps), Writes: word(useWrites), Syncs: word(useSyncs), Want: word(useWant), Got: word(useGot), Written: word(useWritten),
		Time: word(useTime), SyncTime: word(useSync), LongestSync: word(useSyncMax), Longest: word(useLongest), Run: word(useRun), LongestRun: word(useRunMax),
		Misses: word(useMisses), MissTime: word(useMissTime), Last: stack.Time(word(useLast)), Buffer: word(useBuffer), First: iowatch.Op(b[useFirst]),
		TID: stack.TID(binary.NativeEndian.Uint32(b[useTID:]))}
	for i := range s.Hist {
		s.Hist[i] = binary.NativeEndian.Uint32(b[useHist+4*i:])
	}
}

// modeOf returns the file's mode in a value of the map of uses.
func modeOf(b []byte) uint32 { return binary.NativeEndian.Uint32(b[useMode:]) }
