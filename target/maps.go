package target

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// maxMappings bounds the result of ParseMaps. The kernel's own limit (vm.max_map_count) is 65530
// by default, and rarely set above 16 million.
const maxMappings = 1 << 24

// ParseMaps parses /proc/PID/maps (proc_pid_maps(5)):
//
//	start-end perms offset major:minor inode   path
//
// The mappings are in the order of the file, by address. A truncated last line is an error,
// returned with the mappings before it.
func ParseMaps(b []byte) ([]stack.Mapping, error) {
	out := make([]stack.Mapping, 0, min(bytes.Count(b, []byte("\n")), maxMappings))
	paths := map[string]string{} // many lines share few paths
	for off := 0; off < len(b); {
		n := bytes.IndexByte(b[off:], '\n')
		if n < 0 {
			return out, fmt.Errorf("maps: offset %d: line without end", off)
		}
		if len(out) == maxMappings {
			return out, fmt.Errorf("maps: offset %d: more than %d mappings", off, maxMappings)
		}
		m, ok := parseMapping(b[off:off+n], paths)
		if !ok {
			return out, fmt.Errorf("maps: offset %d: not a mapping: %.80q", off, b[off:off+n])
		}
		out = append(out, m)
		off += n + 1
	}
	return out, nil
}

func parseMapping(b []byte, paths map[string]string) (m stack.Mapping, ok bool) {
	if m.Start, b, ok = plainHex(b, '-'); !ok {
		return m, false
	}
	if m.End, b, ok = plainHex(b, ' '); !ok || m.End < m.Start || len(b) < 5 || b[4] != ' ' {
		return m, false
	}
	m.Write, m.Exec = b[1] == 'w', b[2] == 'x'
	if m.Off, b, ok = plainHex(b[5:], ' '); !ok {
		return m, false
	}
	var major, minor uint64
	if major, b, ok = plainHex(b, ':'); !ok {
		return m, false
	}
	if minor, b, ok = plainHex(b, ' '); !ok || major > 1<<32-1 || minor > 1<<32-1 {
		return m, false
	}
	m.Dev = makedev(uint32(major), uint32(minor))
	if m.Inode, b, ok = decimal(b); !ok || len(b) > 0 && b[0] != ' ' {
		return m, false
	}
	path, deleted := bytes.CutSuffix(blanks(b), []byte(" (deleted)"))
	m.Deleted = deleted
	if s, ok := paths[string(path)]; ok {
		m.Path = s
	} else {
		m.Path = unescape(string(path))
		paths[string(path)] = m.Path
	}
	return m, true
}

// plainHex parses a number without 0x that ends at the byte end.
func plainHex(b []byte, end byte) (v uint64, rest []byte, ok bool) {
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		case c == end && i > 0 && i <= 16:
			return v, b[i+1:], true
		default:
			return 0, b, false
		}
	}
	return 0, b, false
}

// unescape reverts the file's only escape: a newline in a path is \012 (kernel:
// fs/proc/task_mmu.c, show_map_vma).
func unescape(s string) string {
	if !strings.Contains(s, `\012`) {
		return s
	}
	return strings.ReplaceAll(s, `\012`, "\n")
}

// makedev packs as Linux and stat(2) do (linux/kdev_t.h, new_encode_dev's 64-bit form in glibc).
func makedev(major, minor uint32) uint64 {
	return uint64(major&0xfff)<<8 | uint64(major&^0xfff)<<32 | uint64(minor&0xff) | uint64(minor&^0xff)<<12
}

// Maps reads the process's mappings.
func (p *Process) Maps() ([]stack.Mapping, error) {
	b, err := p.read("maps", maxMaps)
	if err != nil {
		return nil, gone(err)
	}
	if len(b) == 0 && p.elect() { // the first thread has ended, and has lost its address space
		if b, err = p.read("maps", maxMaps); err != nil {
			return nil, gone(err)
		}
	}
	if len(b) == 0 {
		return nil, ErrGone // a zombie has none
	}
	m, err := ParseMaps(b)
	if err != nil {
		return m, fmt.Errorf("process %d: %w", p.pid, err)
	}
	return m, nil
}

// OwnMaps returns the mappings of this program.
func OwnMaps() ([]stack.Mapping, error) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	return ParseMaps(b)
}
