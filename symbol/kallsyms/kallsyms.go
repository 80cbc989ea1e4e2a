// Package kallsyms names addresses in the code of the running kernel by its list of symbols, /proc/kallsyms.
// What the addresses are of is not its business. Symbols may be used by several goroutines.
package kallsyms

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Limits. A kernel with all of its modules has 200,000 symbols in 10 MB.
const (
	maxBytes   = 128 << 20
	maxSymbols = 1 << 21
	maxLine    = 4096
	// maxSize is how far behind a symbol an address may be: functions of the kernel are smaller.
	maxSize = 1 << 20
	// firstBytes of the list show whether it has addresses.
	firstBytes = 64 << 10
)

const file = "/proc/kallsyms"

// Unknown is the name of an address without a symbol.
const Unknown = "[unknown]"

// errHidden: all addresses in the list are 0.
var errHidden = errors.New("the list has no addresses")

// Symbols are the functions of the kernel and its modules.
type Symbols struct {
	all   []symbol // by address
	names []byte
}

type symbol struct {
	addr uint64
	name uint32 // in names
	size uint32
}

// Load reads the list of the running kernel.
func Load() (*Symbols, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return s, nil
}

// Read reads a list in the form of /proc/kallsyms (kernel/kallsyms.c, s_show): address, type, name and, after a
// tab, the module in brackets.
func Read(r io.Reader) (*Symbols, error) {
	s := &Symbols{}
	sc := bufio.NewScanner(io.LimitReader(r, maxBytes))
	sc.Buffer(make([]byte, 0, maxLine), maxLine)
	line, shown := 0, false
	for ; sc.Scan(); line++ {
		b := sc.Bytes()
		at := bytes.IndexByte(b, ' ')
		if at <= 0 || len(b) < at+4 || b[at+2] != ' ' {
			return nil, fmt.Errorf("line %d: %.80q is not an address, a type and a name", line+1, b)
		}
		addr, err := strconv.ParseUint(string(b[:at]), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %.80q is not an address", line+1, b[:at])
		}
		shown = shown || addr != 0
		name := b[at+3:]
		if kind := b[at+1] | 0x20; addr == 0 || kind != 't' && kind != 'w' { // not code
			continue
		}
		if len(s.all) >= maxSymbols || len(s.names)+len(name)+1 > math.MaxUint32 {
			return nil, fmt.Errorf("line %d: more than %d symbols", line+1, maxSymbols)
		}
		s.all = append(s.all, symbol{addr, uint32(len(s.names)), uint32(len(name))})
		if i := bytes.IndexByte(name, '\t'); i >= 0 {
			name = append(append(append([]byte{}, name[:i]...), ' '), name[i+1:]...)
		}
		s.names = append(s.names, name...)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", line+1, err)
	}
	if !shown {
		return nil, errHidden
	}
	// Of several names of an address the first one counts.
	slices.SortStableFunc(s.all, func(a, b symbol) int { return cmp.Compare(a.addr, b.addr) })
	return s, nil
}

// Caller names the function that a return address is in: "futex_wait", "ext4_sync_file [ext4]"; Unknown: none.
func (s *Symbols) Caller(ret uint64) string {
	if ret == 0 {
		return Unknown
	}
	at := ret - 1 // the call is before it, maybe as the last instruction of its function
	i, exact := slices.BinarySearchFunc(s.all, at, func(x symbol, at uint64) int { return cmp.Compare(x.addr, at) })
	if !exact {
		if i--; i < 0 {
			return Unknown
		}
		for i > 0 && s.all[i-1].addr == s.all[i].addr {
			i--
		}
	}
	x := s.all[i]
	if at-x.addr > maxSize {
		return Unknown
	}
	return string(s.names[x.name : x.name+x.size])
}

// Hidden returns in one line why this program sees no names of the kernel's functions, and how to get them; "": it
// does.
func Hidden() string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	head := make([]byte, firstBytes)
	n, _ := io.ReadFull(f, head) // a shorter list is as good
	if i := bytes.LastIndexByte(head[:n], '\n'); i >= 0 {
		n = i + 1
	}
	if _, err := Read(bytes.NewReader(head[:n])); !errors.Is(err, errHidden) {
		return ""
	}
	b, _ := os.ReadFile("/proc/sys/kernel/kptr_restrict")
	return hidden(strings.TrimSpace(string(b)))
}

// hidden is the advice for a value of kernel.kptr_restrict (kernel/ksyms_common.c, kallsyms_show_value).
func hidden(restrict string) string {
	const what = file + " has no addresses for this user"
	switch restrict {
	case "0":
		return what + ": CAP_SYSLOG is needed, or kernel.perf_event_paranoid of 1 or less"
	case "1":
		return what + " (kernel.kptr_restrict is 1): CAP_SYSLOG is needed, or root"
	}
	return what + " (kernel.kptr_restrict is " + cmp.Or(restrict, "unknown") + "): set it to 1, and run sliver with CAP_SYSLOG or as root"
}
