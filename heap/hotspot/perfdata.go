package hotspot

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// HotSpot's counters for jstat, in memory that it shares with files in /tmp/hsperfdata_USER
// (src/hotspot/share/runtime/perfMemory.hpp, the same in 17, 21 and 25).
const (
	perfMagic    = 0xcafec0c0
	perfHead     = 32
	perfEntry    = 20
	maxPerfBytes = 4 << 20
	maxCounters  = 1 << 14
)

// PerfUsed returns the bytes of the Java heap that are in use by HotSpot's counters: the sum
// of sun.gc.generation.G.space.S.used. Most collectors count at collections
// alone.
func PerfUsed(b []byte) (int64, error) {
	if len(b) < perfHead || len(b) > maxPerfBytes || binary.BigEndian.Uint32(b) != perfMagic {
		return 0, fmt.Errorf("counters of HotSpot: %d bytes, no magic number", len(b))
	}
	var order binary.ByteOrder = binary.BigEndian
	if b[4] == 1 {
		order = binary.LittleEndian
	}
	at, n := uint64(order.Uint32(b[24:])), order.Uint32(b[28:])
	if n > maxCounters {
		return 0, fmt.Errorf("counters of HotSpot: %d", n)
	}
	used, found := int64(0), false
	for range n {
		if at+perfEntry > uint64(len(b)) {
			return 0, fmt.Errorf("counters of HotSpot: offset %d: an entry beyond %d bytes", at, len(b))
		}
		e := b[at:]
		length, name, data := uint64(order.Uint32(e)), uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[16:]))
		if length < perfEntry || length > uint64(len(e)) || name >= length || data >= length {
			return 0, fmt.Errorf("counters of HotSpot: offset %d: an entry of %d bytes, name at %d, data at %d", at, length, name, data)
		}
		e = e[:length]
		text, _, _ := strings.Cut(string(e[name:min(length, name+256)]), "\x00")
		if strings.HasPrefix(text, "sun.gc.generation.") && strings.Contains(text, ".space.") && strings.HasSuffix(text, ".used") && e[12] == 'J' && data+8 <= length {
			used, found = used+int64(order.Uint64(e[data:])), true
		}
		at += length
	}
	if !found {
		return 0, fmt.Errorf("counters of HotSpot: none of a generation's space among %d", n)
	}
	return used, nil
}

// MaxHeap reads the flag MaxHeapSize, in bytes (-Xmx, or what HotSpot chose).
func MaxHeap(s Source) (int64, error) {
	n, err := number(s, "MaxHeapSize")
	if err != nil || n == 0 || n > 1<<48 {
		return 0, fmt.Errorf("MaxHeapSize of HotSpot: %d, %w", n, err)
	}
	return int64(n), nil
}
