package symbol

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Bounds on hostile maps.
const (
	maxPerfEntries = 1 << 20
	maxPerfMap     = 1 << 28 // bytes
	maxPerfLine    = 1 << 16 // bytes; longer lines are truncated
)

// PerfMap is the content of /tmp/perf-PID.map: the code that a just-in-time compiler
// generated. It may be used by several goroutines at once.
type PerfMap struct {
	// Bad is the number of lines that could not be parsed.
	Bad     int
	entries []perfEntry // by lo, without overlap
}

type perfEntry struct {
	lo, hi uint64
	start  uint64 // of the whole piece, if a later one replaced its beginning
	name   string
}

// ParsePerfMap reads lines "START SIZE name", numbers in hexadecimal, in the format of
// the kernel's tools/perf/Documentation/jit-interface.txt. Of overlapping entries the
// later one wins, because code is replaced. Invalid lines are counted. An error comes
// from r, and the PerfMap then has the entries before it.
func ParsePerfMap(r io.Reader) (*PerfMap, error) {
	m := new(PerfMap)
	var all []perfEntry
	var err error
	m.Bad, err = eachPerfLine(r, func(e perfEntry) bool {
		all = append(all, e)
		return len(all) < maxPerfEntries
	})
	m.entries = flatten(all)
	return m, err
}

var errPerfEntries = fmt.Errorf("perf map: more than %d entries", maxPerfEntries)

// eachPerfLine yields the entries of a map in file order and counts the invalid lines.
// yield reports whether there is room for more.
func eachPerfLine(r io.Reader, yield func(perfEntry) bool) (bad int, err error) {
	br := bufio.NewReaderSize(io.LimitReader(r, maxPerfMap), maxPerfLine)
	room := true
	for {
		line, err := br.ReadSlice('\n')
		for rest := err; errors.Is(rest, bufio.ErrBufferFull); {
			// Skipping the rest of a line that is too long overwrites the buffer, so
			// copy the line first.
			line = slices.Clone(line)
			for errors.Is(rest, bufio.ErrBufferFull) {
				_, rest = br.ReadSlice('\n')
			}
			err = rest
		}
		if s := strings.TrimRight(string(line), "\r\n"); s != "" {
			if e, ok := parsePerfLine(s); !ok {
				bad++
			} else if !room {
				return bad, errPerfEntries
			} else {
				room = yield(e)
			}
		}
		if err == io.EOF {
			return bad, nil
		}
		if err != nil {
			return bad, fmt.Errorf("perf map: %w", err)
		}
	}
}

// PerfLines returns the lines of b that are entries of a perf map, in b's memory, and
// the number of other non-empty lines. Callers that store a map verbatim use it,
// because a target's file may contain anything.
func PerfLines(b []byte) (kept []byte, bad int) {
	kept = b[:0]
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line = b[:i+1]
		}
		b = b[len(line):]
		line = bytes.TrimLeft(line, "\x00") // the end of a hole
		text := bytes.TrimRight(line, "\r\n")
		if len(text) == 0 {
			continue
		}
		if len(text) > maxPerfLine {
			bad++
			continue
		}
		if _, ok := parsePerfLine(string(text)); !ok {
			bad++
			continue
		}
		kept = append(kept, line...)
	}
	return kept, bad
}

func parsePerfLine(s string) (e perfEntry, ok bool) {
	start, s, ok1 := strings.Cut(s, " ")
	size, name, ok2 := strings.Cut(s, " ")
	if !ok1 || !ok2 || name == "" {
		return e, false
	}
	lo, err1 := parseHex(start)
	n, err2 := parseHex(size)
	if err1 != nil || err2 != nil || n == 0 || lo+n < lo {
		return e, false
	}
	return perfEntry{lo, lo + n, lo, name}, true
}

func parseHex(s string) (uint64, error) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
	return strconv.ParseUint(s, 16, 64)
}

// flatten resolves overlaps in favour of later entries. It sweeps over all borders,
// with the open entries in a heap by age.
func flatten(all []perfEntry) []perfEntry {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool {
		a, b := order[i], order[j]
		return all[a].lo < all[b].lo || all[a].lo == all[b].lo && a < b
	})
	var out []perfEntry
	var open newest
	emit := func(lo, hi uint64, i int) {
		if lo >= hi {
			return
		}
		if n := len(out); n > 0 && out[n-1].hi == lo && out[n-1].name == all[i].name && out[n-1].start == all[i].lo {
			out[n-1].hi = hi
			return
		}
		out = append(out, perfEntry{lo, hi, all[i].lo, all[i].name})
	}
	var at uint64
	for next := 0; next < len(order) || len(open) > 0; {
		for len(open) > 0 && all[open[0]].hi <= at {
			open.pop()
		}
		if len(open) == 0 {
			if next == len(order) {
				break
			}
			at = max(at, all[order[next]].lo)
		}
		for next < len(order) && all[order[next]].lo <= at {
			open.push(order[next])
			next++
		}
		for len(open) > 0 && all[open[0]].hi <= at {
			open.pop()
		}
		if len(open) == 0 {
			continue
		}
		end := all[open[0]].hi
		if next < len(order) {
			end = min(end, all[order[next]].lo)
		}
		emit(at, end, open[0])
		at = end
	}
	return out
}

// newest is a heap of numbers, greatest first.
type newest []int

func (h *newest) push(v int) {
	*h = append(*h, v)
	s := *h
	for i := len(s) - 1; i > 0; {
		p := (i - 1) / 2
		if s[p] >= s[i] {
			break
		}
		s[p], s[i] = s[i], s[p]
		i = p
	}
}

func (h *newest) pop() {
	s := *h
	n := len(s) - 1
	s[0] = s[n]
	s = s[:n]
	*h = s
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && s[c+1] > s[c] {
			c++
		}
		if s[i] >= s[c] {
			return
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
}

// Len returns the number of known pieces of code.
func (m *PerfMap) Len() int {
	if m == nil {
		return 0
	}
	return len(m.entries)
}

// Lookup returns the code at addr, an address in the target; start is the start of the
// piece. A nil map is empty.
func (m *PerfMap) Lookup(addr uint64) (name string, start uint64, ok bool) {
	if m == nil {
		return "", 0, false
	}
	i := sort.Search(len(m.entries), func(i int) bool { return m.entries[i].lo > addr }) - 1
	if i < 0 || addr >= m.entries[i].hi {
		return "", 0, false
	}
	return m.entries[i].name, m.entries[i].start, true
}
