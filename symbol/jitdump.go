package symbol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
)

// JITDump holds the code that a program's JIT compiler recorded: Linux's
// tools/perf/Documentation/jitdump-specification.txt, version 1. Unlike a perf map it
// contains the times of code and its source lines.
type JITDump struct {
	// Arch reports that times are those of the CPU's counter and not of
	// CLOCK_MONOTONIC: then the newest code is used.
	Arch bool
	code []jitCode // by address, then time
	most uint64    // size of the largest
}

type jitCode struct {
	start, size uint64
	at          int64
	name        string
	lines       []jitLine // by address
}

type jitLine struct {
	addr uint64
	file string
	line int
}

// Kinds of records.
const (
	jitLoad = iota
	jitMove
	jitDebug
	jitClose
)

const (
	jitMagic      = 0x4A695444
	jitHeader     = 40
	jitRecordHead = 16
	// Bounds on hostile files.
	maxJITRecord = 64 << 20
	maxJITCode   = 1 << 21
	maxJITLines  = 1 << 22 // of all code
	maxJITName   = 1 << 14
	// maxReusedCode bounds one piece of code that Reused examines, in bytes;
	// maxReusedPages bounds the pages of all of them.
	maxReusedCode  = 64 << 20
	maxReusedPages = 1 << 22
)

// ErrNoJITDump reports that a file does not start like a jitdump.
var ErrNoJITDump = errors.New("no jitdump of this machine's byte order")

// ParseJITDump reads a jitdump up to its end, or to the first incomplete record: a
// program may still be writing.
func ParseJITDump(r io.Reader) (*JITDump, error) {
	d := &JITDump{}
	p := jitParser{d: d, pending: map[uint64][]jitLine{}, newest: map[uint64]int{}}
	err := eachJIT(r, func(h []byte) { d.Arch = binary.LittleEndian.Uint64(h[32:])&1 != 0 }, p.record)
	sort.SliceStable(d.code, func(i, j int) bool {
		a, b := &d.code[i], &d.code[j]
		if a.start != b.start {
			return a.start < b.start
		}
		return a.at < b.at
	})
	for i := range d.code {
		d.most = max(d.most, d.code[i].size)
	}
	return d, err
}

// jitParser adds the records of a jitdump to d, in their order.
type jitParser struct {
	d       *JITDump
	lines   int                  // of all code
	pending map[uint64][]jitLine // for the code loaded next at an address
	newest  map[uint64]int       // number of the last code at an address
}

// record adds a record with the data b.
func (p *jitParser) record(id uint32, at uint64, b []byte) error {
	time := int64(min(at, math.MaxInt64))
	switch id {
	case jitLoad:
		if len(b) < 40 {
			return errShortJIT
		}
		p.load(time, b)
	case jitMove:
		if len(b) < 48 {
			return errShortJIT
		}
		p.move(time, b)
	case jitDebug:
		if len(b) < 16 {
			return errShortJIT
		}
		p.debug(b)
	}
	return nil
}

// load adds code.
func (p *jitParser) load(at int64, b []byte) {
	le := binary.LittleEndian
	name, ok := jitName(b[40:])
	c := jitCode{start: le.Uint64(b[16:]), size: le.Uint64(b[24:]), at: at, name: name}
	if !ok || name == "" || c.size == 0 || c.start+c.size < c.start || len(p.d.code) >= maxJITCode {
		return
	}
	c.lines = p.pending[c.start]
	delete(p.pending, c.start)
	p.add(c)
}

// move adds the code last seen at an address at its new one.
func (p *jitParser) move(at int64, b []byte) {
	le := binary.LittleEndian
	i, ok := p.newest[le.Uint64(b[16:])]
	if !ok || len(p.d.code) >= maxJITCode {
		return
	}
	c := p.d.code[i]
	to := le.Uint64(b[24:])
	if to+c.size < to {
		return
	}
	moved := make([]jitLine, len(c.lines))
	for k, l := range c.lines {
		moved[k] = jitLine{l.addr - c.start + to, l.file, l.line}
	}
	if p.lines += len(moved); p.lines > maxJITLines {
		moved = nil
	}
	c.start, c.at, c.lines = to, at, moved
	p.add(c)
}

func (p *jitParser) add(c jitCode) {
	p.newest[c.start] = len(p.d.code)
	p.d.code = append(p.d.code, c)
}

// debug keeps lines for the code that a later record loads.
func (p *jitParser) debug(b []byte) {
	le := binary.LittleEndian
	start, n := le.Uint64(b), le.Uint64(b[8:])
	var ls []jitLine
	file := ""
	for rest := b[16:]; n > 0 && len(rest) > 16 && p.lines < maxJITLines; n-- {
		l := jitLine{addr: le.Uint64(rest), line: int(le.Uint32(rest[8:]) & math.MaxInt32)}
		name, ok := jitName(rest[16:])
		if !ok {
			break
		}
		rest = rest[16+len(name)+1:]
		if name != "\xff" { // otherwise the file of the previous entry
			file = name
		}
		l.file = file
		ls = append(ls, l)
		p.lines++
	}
	sort.SliceStable(ls, func(i, j int) bool { return ls[i].addr < ls[j].addr })
	if len(p.pending) < maxJITCode {
		p.pending[start] = ls
	}
}

// jitName returns the name at the start of b, which ends with a zero byte.
func jitName(b []byte) (name string, ok bool) {
	i := bytes.IndexByte(b[:min(len(b), maxJITName)], 0)
	if i < 0 {
		return "", false
	}
	return string(b[:i]), true
}

var errShortJIT = errors.New("a record is too short")

// eachJIT yields the records of a jitdump: the data after their headers, and for code
// the data before its bytes.
func eachJIT(r io.Reader, header func([]byte), yield func(id uint32, at uint64, b []byte) error) error {
	br := bufio.NewReaderSize(r, 1<<16)
	le := binary.LittleEndian
	h := make([]byte, jitHeader)
	if _, err := io.ReadFull(br, h); err != nil || le.Uint32(h) != jitMagic || le.Uint32(h[4:]) != 1 {
		return ErrNoJITDump
	}
	header(h)
	off := int64(jitHeader)
	if n := int64(le.Uint32(h[8:])) - jitHeader; n > 0 {
		k, err := br.Discard(int(min(n, maxJITRecord)))
		off += int64(k)
		if err != nil {
			return nil
		}
	}
	var b []byte
	for {
		head := h[:jitRecordHead]
		if _, err := io.ReadFull(br, head); err != nil {
			return nil // the end, or an incomplete record
		}
		id, size, at := le.Uint32(head), le.Uint32(head[4:]), le.Uint64(head[8:])
		if size < jitRecordHead || size > maxJITRecord {
			return fmt.Errorf("byte %d: a record of %d bytes", off, size)
		}
		body := int(size) - jitRecordHead
		keep := body
		switch {
		case id == jitLoad:
			keep = min(body, 40+maxJITName)
		case id > jitDebug:
			keep = 0
		}
		if cap(b) < keep {
			b = make([]byte, keep)
		}
		b = b[:keep]
		if _, err := io.ReadFull(br, b); err != nil {
			return nil
		}
		if _, err := br.Discard(body - keep); err != nil {
			return nil
		}
		if err := yield(id, at, b); err != nil {
			return fmt.Errorf("byte %d: %w", off, err)
		}
		off += int64(size)
	}
}

// StripJITDump copies a jitdump without the bytes of the code, which are most of it.
// ParseJITDump returns the same for the copy. max bounds the copy.
func StripJITDump(r io.Reader, max int) ([]byte, error) {
	var out []byte
	le := binary.LittleEndian
	err := eachJIT(r, func(h []byte) {
		out = append(out, h...)
		le.PutUint32(out[8:], jitHeader)
	}, func(id uint32, at uint64, b []byte) error {
		if id > jitDebug {
			return nil
		}
		if id == jitLoad {
			if len(b) < 40 {
				return errShortJIT
			}
			n := bytes.IndexByte(b[40:], 0)
			if n < 0 {
				return nil
			}
			b = b[:40+n+1]
		}
		if len(out)+jitRecordHead+len(b) > max {
			return fmt.Errorf("it is larger than %d bytes", max)
		}
		out = le.AppendUint32(out, id)
		out = le.AppendUint32(out, uint32(jitRecordHead+len(b)))
		out = le.AppendUint64(out, at)
		out = append(out, b...)
		return nil
	})
	return out, err
}

// Lookup returns the code that was at addr just before until, in ns of CLOCK_MONOTONIC:
// the newest loaded by then or, if there is none, the oldest loaded after it.
func (d *JITDump) Lookup(addr uint64, until int64) (fr Frame, ok bool) {
	if d == nil {
		return fr, false
	}
	var best *jitCode
	end := sort.Search(len(d.code), func(i int) bool { return d.code[i].start > addr })
	const most = 1 << 12 // bound on pieces examined: few overlap
	for i, n := end-1, 0; i >= 0 && n < most && addr-d.code[i].start < d.most; i, n = i-1, n+1 {
		c := &d.code[i]
		if addr-c.start >= c.size {
			continue
		}
		switch {
		case best == nil:
			best = c
		case d.Arch || best.at < until && c.at < until:
			if c.at > best.at {
				best = c
			}
		case c.at < until, best.at >= until && c.at < best.at:
			best = c
		}
	}
	if best == nil {
		return fr, false
	}
	fr = Frame{Func: cut(best.name), Start: best.start}
	if i := sort.Search(len(best.lines), func(i int) bool { return best.lines[i].addr > addr }) - 1; i >= 0 {
		fr.File, fr.Line = best.lines[i].file, best.lines[i].line
	}
	return fr, true
}

// Reused returns the times, rising, at which code was loaded over other code; most
// bounds their number.
func (d *JITDump) Reused(most int) []int64 {
	if d == nil || d.Arch {
		return nil
	}
	byTime := make([]*jitCode, len(d.code))
	for i := range d.code {
		byTime[i] = &d.code[i]
	}
	sort.SliceStable(byTime, func(i, j int) bool { return byTime[i].at < byTime[j].at })
	const page = 12
	used := map[uint64][]*jitCode{} // by page, current code without overlap
	var out []int64
	pages := 0
	for _, c := range byTime {
		if c.size > maxReusedCode {
			continue
		}
		if pages += int(c.size>>page) + 1; pages > maxReusedPages {
			break
		}
		again := false
		for p := c.start >> page; p <= (c.start+c.size-1)>>page && len(used) < maxJITCode; p++ {
			n := len(used[p])
			there := slices.DeleteFunc(used[p], func(o *jitCode) bool { return o.start < c.start+c.size && c.start < o.start+o.size })
			again = again || len(there) < n
			used[p] = append(there, c)
		}
		if again && (len(out) == 0 || out[len(out)-1] < c.at) {
			if len(out) >= most {
				break
			}
			out = append(out, c.at)
		}
	}
	return out
}
