package target

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Room is how much memory a process's control groups allow it.
type Room struct {
	Free, Limit int64 // bytes; pages of files that can be dropped are free
}

// errNoLimit says that no control group limits the process's memory, as far as this process
// can see.
var errNoLimit = errors.New("no control group limits its memory")

// MemoryRoom reads the limits of the process's control groups, of both versions, and
// returns the tightest.
func (p *Process) MemoryRoom() (Room, error) {
	b, err := p.read("cgroup", maxStatus)
	if err != nil {
		return Room{}, gone(err)
	}
	best := Room{Free: math.MaxInt64}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !path.IsAbs(f[2]) {
			continue
		}
		v2 := f[0] == "0" && f[1] == ""
		root := "/sys/fs/cgroup"
		switch {
		case v2:
			if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
				root += "/unified"
			}
		case strings.Contains(","+f[1]+",", ",memory,"):
			root += "/memory"
		default:
			continue
		}
		for dir := path.Clean(f[2]); ; dir = path.Dir(dir) {
			if r, err := roomOf(root+dir, v2); err == nil && r.Free < best.Free {
				best = r
			}
			if dir == "/" {
				break
			}
		}
	}
	if best.Free == math.MaxInt64 {
		return Room{}, errNoLimit
	}
	return best, nil
}

// unlimited is above every limit that is one: version 1 has the largest multiple of a page.
const unlimited = 1 << 60

// roomOf reads one group (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).
func roomOf(dir string, v2 bool) (r Room, err error) {
	limit, usage, inactive := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if v2 {
		limit, usage, inactive = "memory.max", "memory.current", "inactive_file"
	}
	number := func(name string) int64 {
		b, e := readWhole(dir+"/"+name, 4096)
		if e != nil {
			err = errors.Join(err, e)
			return 0
		}
		n, e := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
		err = errors.Join(err, e) // "max"
		return n
	}
	if r.Limit = number(limit); err == nil && r.Limit >= unlimited {
		err = errNoLimit
	}
	used := number(usage)
	if err != nil {
		return r, err
	}
	stat, err := readWhole(dir+"/memory.stat", maxStatus)
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(stat)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == inactive {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			used -= n
		}
	}
	r.Free = r.Limit - used
	return r, nil
}

// readWhole reads a file under /proc or /sys of at most limit bytes.
func readWhole(name string, limit int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	if n, err := b.ReadFrom(io.LimitReader(f, int64(limit)+1)); err != nil {
		return nil, err
	} else if n > int64(limit) {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return b.Bytes(), nil
}
