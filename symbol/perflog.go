package symbol

import (
	"hash/maphash"
	"io"
	"slices"
	"sort"
)

// PerfLog is a perf map that was read while it grew: unlike a PerfMap it stores the
// time of each entry. Add the parts in the order in which the program wrote them. It is
// for one goroutine.
type PerfLog struct {
	// Bad is the number of lines that could not be parsed.
	Bad     int
	entries []perfEntry // in the order of Add
	parts   []perfPart
}

type perfPart struct {
	at    int64
	first int // index in entries
}

// Add reads another part, whose entries are valid from at on, in ns of CLOCK_MONOTONIC.
// A part that is older than the previous one gets the previous one's time. An error
// comes from r, or reports too many entries; the entries before it are kept.
func (l *PerfLog) Add(at int64, r io.Reader) error {
	if err := l.begin(at); err != nil {
		return err
	}
	bad, err := eachPerfLine(r, func(e perfEntry) bool {
		l.entries = append(l.entries, e)
		return len(l.entries) < maxPerfEntries
	})
	l.Bad += bad
	return err
}

// begin starts a part.
func (l *PerfLog) begin(at int64) error {
	if n := len(l.parts); n > 0 {
		at = max(at, l.parts[n-1].at)
	}
	l.parts = append(l.parts, perfPart{at, len(l.entries)})
	if len(l.entries) >= maxPerfEntries {
		return errPerfEntries
	}
	return nil
}

// AddObject is Add for the code of o, all of it under one name.
func (l *PerfLog) AddObject(at int64, o *JITObject, name string) error {
	if err := l.begin(at); err != nil {
		return err
	}
	var err error
	o.Code(func(lo, hi uint64) {
		if len(l.entries) >= maxPerfEntries {
			err = errPerfEntries
			return
		}
		l.entries = append(l.entries, perfEntry{lo: lo, hi: hi, name: name})
	})
	return err
}

// at returns the time from which an entry is valid.
func (l *PerfLog) at(entry int) int64 {
	i := sort.Search(len(l.parts), func(i int) bool { return l.parts[i].first > entry })
	return l.parts[i-1].at
}

// PerfQuery is a lookup of the code at Addr, an address in the target, just before
// Until, in ns of CLOCK_MONOTONIC.
type PerfQuery struct {
	Addr  uint64
	Until int64
}

// maxPerfOverlap bounds the entries at one address that are examined, newest first.
const maxPerfOverlap = 1 << 12

// Lookup resolves all queries together, after sorting them: yield receives those that
// an entry covers, with the start of its code. The entry is the newest one valid at
// that time or, if there is none, the first one after it; within a part the last entry
// counts.
func (l *PerfLog) Lookup(qs []PerfQuery, yield func(q PerfQuery, name string, start uint64)) {
	if l == nil {
		return
	}
	slices.SortFunc(qs, func(a, b PerfQuery) int {
		switch {
		case a.Addr != b.Addr && a.Addr < b.Addr:
			return -1
		case a.Addr != b.Addr:
			return 1
		case a.Until < b.Until:
			return -1
		case a.Until > b.Until:
			return 1
		}
		return 0
	})
	order := make([]int, len(l.entries))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool { return l.entries[order[i]].lo < l.entries[order[j]].lo })
	var open newest   // entries that start at or before the address
	var covers []int  // of those, the ones that contain it: newest first
	var times []int64 // of covers
	next := 0
	for len(qs) > 0 {
		addr := qs[0].Addr
		for next < len(order) && l.entries[order[next]].lo <= addr {
			open.push(order[next])
			next++
		}
		covers, times = covers[:0], times[:0]
		for len(open) > 0 && len(covers) < maxPerfOverlap {
			if i := open[0]; l.entries[i].hi > addr {
				covers, times = append(covers, i), append(times, l.at(i))
			}
			open.pop() // entries that ended before this query also ended before later ones
		}
		for _, i := range covers {
			open.push(i)
		}
		for len(qs) > 0 && qs[0].Addr == addr {
			if len(covers) > 0 {
				i := sort.Search(len(times), func(i int) bool { return times[i] < qs[0].Until })
				if i == len(times) { // none was valid yet: use the first part's last
					i = sort.Search(len(times), func(i int) bool { return times[i] <= times[len(times)-1] })
				}
				e := &l.entries[covers[i]]
				yield(qs[0], e.name, e.lo)
			}
			qs = qs[1:]
		}
	}
}

// Reuse detects code that replaces other code. The zero value is ready to use; it is
// for one goroutine.
type Reuse struct {
	// Dropped is the number of pieces of code that did not fit: their replacement is
	// not detected.
	Dropped int
	seed    maphash.Seed
	pages   map[uint64][]piece // current code without overlap
	n       int                // pieces in all pages
}

type piece struct {
	lo, hi uint64
	name   uint64 // its hash
}

// maxReusePieces bounds the pieces in a Reuse, some 100 bytes each.
const maxReusePieces = 1 << 19

// Add reads a part of a perf map and reports whether code in it replaced code of
// another name from earlier parts.
func (u *Reuse) Add(r io.Reader) (again bool, err error) {
	var fresh []piece
	_, err = eachPerfLine(r, func(e perfEntry) bool {
		fresh = append(fresh, u.piece(e.lo, e.hi, e.name))
		return len(fresh) < maxReusePieces
	})
	return u.add(fresh), err
}

// AddObject is Add for the code of o, all of it under one name.
func (u *Reuse) AddObject(o *JITObject, name string) (again bool) {
	var fresh []piece
	o.Code(func(lo, hi uint64) {
		if len(fresh) < maxReusePieces {
			fresh = append(fresh, u.piece(lo, hi, name))
		}
	})
	return u.add(fresh)
}

func (u *Reuse) piece(lo, hi uint64, name string) piece {
	if u.pages == nil {
		u.pages, u.seed = map[uint64][]piece{}, maphash.MakeSeed()
	}
	return piece{lo, hi, maphash.String(u.seed, name)}
}

// add reports whether fresh replaced code of another name.
func (u *Reuse) add(fresh []piece) (again bool) {
	const page = 12
	// First compare all of them with the old code, then add them: the order within a
	// part is not an order in time.
	for _, add := range []bool{false, true} {
		for _, c := range fresh {
			first, last := c.lo>>page, (c.hi-1)>>page
			if last-first > maxReusedCode>>page || add && u.n+int(last-first) >= maxReusePieces {
				if add {
					u.Dropped++
				}
				continue
			}
			for p := first; p <= last; p++ {
				if !add {
					again = again || slices.ContainsFunc(u.pages[p], func(o piece) bool {
						return o.lo < c.hi && c.lo < o.hi && o.name != c.name
					})
					continue
				}
				there := []piece{c}
				for _, o := range u.pages[p] {
					for _, rest := range [2]piece{{o.lo, min(o.hi, c.lo), o.name}, {max(o.lo, c.hi), o.hi, o.name}} {
						if rest.lo < rest.hi {
							there = append(there, rest)
						}
					}
				}
				u.n += len(there) - len(u.pages[p])
				u.pages[p] = there
			}
		}
	}
	return again
}
