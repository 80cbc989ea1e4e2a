package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// IO watches the I/O system calls of one process with two programs, at the beginning and the end of
// every system call of the machine (raw tracepoints sys_enter and sys_exit). They keep sums for each
// thread and descriptor, and write a record for an operation that was slow and for each descriptor
// that is made, synced or closed. Records of slow operations have a copy of registers and stack: a
// thread's stack does not change during a system call.
//
// System calls of other processes cost a comparison more. The kernel removes the programs when this
// process ends, also if it is killed. An IO is for one goroutine.
type IO struct {
	attached
	without []string // see Without
	noRings error
	start   func() error
	news    *ringbuf.Reader // of records that wake Wait
	record  IORecord
	bad     uint64

	share, announce bool
	each            uint64
}

// IOOptions are the thresholds that the programs know.
type IOOptions struct {
	Slow     time.Duration // operations that take longer have a record with a stack
	Gap      time.Duration // see iowatch.Config
	SmallOps uint64        // the operation after these has a record with a stack
	// Each makes records of all reads and writes that take at least Slower, at most 20,000 a second
	// for each thread. Without it, only slow ones have records.
	Each   bool
	Slower time.Duration
	Ring   int // bytes for records, a power of two of at least 1 MiB; 0: 64 MiB
}

// ioRingBytes is the usual size of the ring: 270 of the largest records, more than two threads may have in a second, or
// 640,000 of the smallest.
const ioRingBytes = 64 << 20

// OpenIO prepares to watch process pid: Start begins.
func OpenIO(pid int, o IOOptions) (*IO, error) {
	if err := errors.Join(rights(), initialSpace()); err != nil {
		return nil, fmt.Errorf("watch I/O: %w", err)
	}
	e := &IO{attached: attached{maps: map[string]*ebpf.Map{}}}
	if err := e.open(pid, o, kernelAbilities()); err != nil {
		e.Close()
		return nil, fmt.Errorf("watch I/O: %w", explain(err))
	}
	return e, nil
}

func (e *IO) open(pid int, o IOOptions, s abilities) error {
	l, err := kernelLayout(s)
	if err != nil {
		return err
	}
	for _, s := range []ebpf.MapSpec{
		{Name: "io_classes", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: maxCalls},
		taskMap(l.abilities),
		{Name: "io_fds", Type: ebpf.Array, KeySize: 4, ValueSize: fdBytes, MaxEntries: maxFDs},
		{Name: "io_uses", Type: ebpf.Hash, KeySize: 16, ValueSize: useBytes, MaxEntries: maxUses},
		{Name: "io_zero", Type: ebpf.Array, KeySize: 4, ValueSize: useBytes, MaxEntries: 1},
		{Name: "io_mask", Type: ebpf.Array, KeySize: 4, ValueSize: maskBytes, MaxEntries: 1},
		{Name: "io_stats", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 24, MaxEntries: maxCalls},
		{Name: "io_lost", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: numLost},
		{Name: "io_plans", Type: ebpf.Hash, KeySize: 4, ValueSize: planBytes, MaxEntries: maxPlans},
		objectMap("io_objects"),
		{Name: "io_ring", Type: ebpf.RingBuf, MaxEntries: uint32(cmp.Or(o.Ring, ioRingBytes))},
		{Name: "io_requests", Type: ebpf.LRUHash, KeySize: 8, ValueSize: reqBytes, MaxEntries: maxRequests},
		{Name: "io_rings", Type: ebpf.Hash, KeySize: 16, ValueSize: ringUseBytes, MaxEntries: maxRingUses},
		{Name: "io_news", Type: ebpf.RingBuf, MaxEntries: uint32(max(os.Getpagesize(), 4096))},
		{Name: "io_after", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: numAfter},
	} {
		m, err := ebpf.NewMap(&s)
		if err != nil {
			return fmt.Errorf("make map %s: %w", s.Name, err)
		}
		e.maps[s.Name] = m
	}
	if err := e.choose(); err != nil {
		return err
	}
	for _, all := range [][]ioCall{ioCalls, ioCallsArch} {
		for _, c := range all {
			if err := e.maps["io_classes"].Put(uint32(c.nr), c.class); err != nil {
				return fmt.Errorf("choose calls: %w", err)
			}
		}
	}
	fd := func(name string) int { return e.maps[name].FD() }
	m := ioMaps{classes: fd("io_classes"), tasks: fd("io_tasks"), fds: fd("io_fds"), uses: fd("io_uses"), zero: fd("io_zero"), mask: fd("io_mask"), stats: fd("io_stats"),
		lost: fd("io_lost"), plans: fd("io_plans"), objects: fd("io_objects"), ring: fd("io_ring"), news: fd("io_news"),
		requests: fd("io_requests"), rings: fd("io_rings"), after: fd("io_after"), crowded: int32(cmp.Or(o.Ring, ioRingBytes) / 4 * 3)}
	if l.cache, err = cacheOffsets(); err != nil {
		l.cache = nil
		e.without = append(e.without, "waits for the page cache are not known: "+err.Error())
	}
	c := &ioConfig{pid: uint32(pid), slow: uint64(o.Slow), gap: uint64(o.Gap), smallOps: o.SmallOps, each: o.Each, slower: uint64(o.Slower)}
	if e.reader, err = ringbuf.NewReader(e.maps["io_ring"]); err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	if e.news, err = ringbuf.NewReader(e.maps["io_news"]); err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	if err := e.loadAfter(c, m, l); err != nil {
		return err
	}
	var loaded [2]*ebpf.Program
	for i, p := range []ebpf.ProgramSpec{
		{Name: "sliver_leave", Type: ebpf.RawTracepoint, License: "GPL", Instructions: leave(c, m, l)},
		{Name: "sliver_enter", Type: ebpf.RawTracepoint, License: "GPL", Instructions: entry(c, m, l)},
	} {
		if loaded[i], err = ebpf.NewProgram(&p); err != nil {
			return fmt.Errorf("load program %s: %w", p.Name, err)
		}
		e.progs = append(e.progs, loaded[i])
	}
	e.start = func() error {
		for i, name := range []string{"sys_exit", "sys_enter"} {
			x, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: loaded[i]})
			if err != nil {
				return fmt.Errorf("attach to %s: %w", name, err)
			}
			e.links = append(e.links, x)
		}
		if l.cache != nil {
			if err := e.watchCache(c, m, l); err != nil {
				e.without = append(e.without, "waits for the page cache are not known: "+err.Error())
			}
		}
		e.noRings = e.watchRings(c, m, l)
		return nil
	}
	return nil
}

// Start begins to watch: when it returns, every further call is seen. It is called once.
func (e *IO) Start() error {
	if err := e.start(); err != nil {
		return fmt.Errorf("watch I/O: %w", explain(err))
	}
	return nil
}

// Without returns a line for each thing that this kernel does not let IO count.
func (e *IO) Without() []string { return e.without }

// maxPlans bounds the threads for which further pages are copied.
const maxPlans = 1 << 12

// kernelLayout finds the offsets in the type information of the running kernel.
func kernelLayout(s abilities) (*layout, error) {
	l := &layout{abilities: s}
	want := []member{
		{&l.files, "task_struct", []string{"files"}},
		{&l.fdt, "files_struct", []string{"fdt"}},
		{&l.maxFDs, "fdtable", []string{"max_fds"}},
		{&l.fds, "fdtable", []string{"fd"}},
		{&l.inode, "file", []string{"f_inode"}},
		{&l.mode, "inode", []string{"i_mode"}},
		{&l.size, "inode", []string{"i_size"}},
		{&l.super, "inode", []string{"i_sb"}},
		{&l.magic, "super_block", []string{"s_magic"}},
		{&l.opened, "file", []string{"f_mode"}},
		{&l.tgid, "task_struct", []string{"tgid"}},
		{&l.pid, "task_struct", []string{"pid"}},
	}
	if len(taskTLSPath) > 0 {
		want = append(want, member{&l.tls, "task_struct", taskTLSPath})
	}
	if err := offsets(want); err != nil {
		return nil, err
	}
	// A kernel without the account (CONFIG_SCHED_INFO) has no such member: waits for a CPU count then.
	if err := offsets([]member{{&l.queued, "task_struct", []string{"sched_info", "run_delay"}}}); err != nil || l.queued > math.MaxInt16 {
		l.queued = 0
	}
	if !fits(l.tgid, l.pid) {
		l.abilities = abilities{}
	}
	if !fits(l.files, l.fdt, l.maxFDs, l.fds, l.inode, l.mode, l.size, l.super, l.magic, l.opened) {
		l.casts = nil
	}
	return l, nil
}

// member is an offset that the programs need: of a member, by its path, in a structure of the kernel.
type member struct {
	to   *uint32
	of   string
	path []string
}

// offsets finds members in the type information of the running kernel.
func offsets(want []member) error {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTypes, err)
	}
	for _, x := range want {
		var s *btf.Struct
		if err := spec.TypeByName(x.of, &s); err != nil {
			return fmt.Errorf("find struct %s: %w", x.of, err)
		}
		off, ok := memberOffset(s.Members, x.path)
		if !ok {
			return fmt.Errorf("struct %s has no member %v", x.of, x.path)
		}
		*x.to = off
	}
	return nil
}

// memberOffset finds a member, also in structures without a name.
func memberOffset(members []btf.Member, path []string) (uint32, bool) {
	for _, m := range members {
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		at := m.Offset.Bytes()
		switch {
		case m.Name == path[0] && len(path) == 1:
			return at, true
		case m.Name == path[0]:
			off, ok := memberOffset(inner, path[1:])
			return at + off, ok
		case m.Name == "":
			if off, ok := memberOffset(inner, path); ok {
				return at + off, true
			}
		}
	}
	return 0, false
}

// Wait sleeps for d, or until the process maps code of a file or runs another program: mapped is true
// then. A program that ends soon has its maps until then only. After Announce, it also returns when a thread
// without a plan has its first stack, and as Plan says.
func (e *IO) Wait(d time.Duration) (mapped bool) {
	e.news.SetDeadline(time.Now().Add(d))
	for e.news.ReadInto(&e.rec) == nil {
		young := len(e.rec.RawSample) >= newsBytes && binary.NativeEndian.Uint64(e.rec.RawSample) == newsYoung
		mapped = mapped || !young
		if e.news.AvailableBytes() == 0 {
			break
		}
	}
	return mapped
}

// Announce lets Wait return once for each thread that has no plan when it has its first stack. Memory of such
// a thread can be read as long as it lives. Each of the next stacks of such threads does, up to each of them.
func (e *IO) Announce(on bool, each uint64) error {
	e.announce, e.each = on, each
	return e.choose()
}

// Read calls f for each record, in the order of their ends per thread. The record is valid until f
// returns.
func (e *IO) Read(f func(*IORecord)) {
	e.records(func(b []byte) {
		if err := parseIO(b, &e.record); err != nil {
			e.bad++
			return
		}
		f(&e.record)
	})
}

// useID is the key of the sums of a thread on a descriptor.
type useID struct{ TID, FD, Gen, Zero uint32 }

// Share chooses whether all threads have the same sums on a descriptor, with thread number 0, or each
// has its own. Sums that began before stay.
func (e *IO) Share(on bool) error {
	e.share = on
	return e.choose()
}

// choose writes what Share and Announce have chosen.
func (e *IO) choose() error {
	v := [maskBytes / 8]uint64{maskThread / 8: ^uint64(0)}
	if e.share {
		v[maskThread/8] = 0
	}
	if e.announce || e.each > 0 {
		v[maskYoung/8] = 1
	}
	v[maskEach/8] = e.each
	if err := e.maps["io_mask"].Put(uint32(0), v); err != nil {
		return fmt.Errorf("choose whose sums are kept: %w", err)
	}
	return nil
}

// Sums calls f for the sums of each thread on each descriptor, as they are now.
func (e *IO) Sums(f func(tid stack.TID, fd int32, gen uint32, kind iowatch.Kind, s *iowatch.Sums)) error {
	var k useID
	var s iowatch.Sums
	v := make([]byte, useBytes)
	it := e.maps["io_uses"].Iterate()
	for it.Next(&k, &v) {
		parseSums(v, &s)
		f(stack.TID(k.TID), int32(k.FD), k.Gen, iowatch.KindOf(modeOf(v)), &s)
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // it changes while it is read
		return fmt.Errorf("read sums: %w", err)
	}
	return nil
}

// Drop forgets the sums of a descriptor that was closed.
func (e *IO) Drop(tid stack.TID, fd int32, gen uint32) {
	_ = e.maps["io_uses"].Delete(useID{TID: uint32(tid), FD: uint32(fd), Gen: gen})
}

// Gen returns the generation of a descriptor now.
func (e *IO) Gen(fd int32) uint32 {
	var v [fdBytes / 4]uint32
	if fd < 0 || fd >= maxFDs || e.maps["io_fds"].Lookup(uint32(fd), &v) != nil {
		return 0
	}
	return v[fdGen/4]
}

// Plan sets which pages of memory are copied with the stacks of a thread, and the list that is followed; nil: none. Its
// stacks are copied further too. Pages beyond the most that fit are dropped. The next wakes stacks let Wait return, after
// Announce: the thread may need other pages by then.
func (e *IO) Plan(tid stack.TID, pages []uint64, list *List, wakes uint64) {
	e.plan(uint32(tid), pages, list, 0, wakes)
}

// Guess sets which pages are copied with the stacks of threads that have no plan, and the list that is followed, for
// the next stacks only.
func (e *IO) Guess(pages []uint64, list *List, stacks uint64) { e.plan(0, pages, list, stacks, 0) }

func (e *IO) plan(key uint32, pages []uint64, list *List, left, wakes uint64) {
	v := [planBytes / 8]uint64{planLeft / 8: left, planWakes / 8: wakes}
	list.put(v[planList/8:])
	n := 0
	for _, p := range pages {
		if n < maxExtras && p != 0 {
			v[n] = p
			n++
		}
	}
	_ = e.maps["io_plans"].Put(key, v) // full: the stacks of this thread stay short
}

// Extras is how many pages Plan takes, StackPages how many pages of a stack are copied before it.
const (
	Extras     = maxExtras
	StackPages = shallow
)

// CallCount is how often a system call was made.
type CallCount struct {
	Name          string
	Calls, Errors uint64
	Time          uint64 // ns
}

// Counts returns the calls that were watched, by name, without those of none.
func (e *IO) Counts() (out []CallCount) {
	for _, all := range [][]ioCall{ioCalls, ioCallsArch} {
		for _, c := range all {
			var each [][3]uint64
			if e.maps["io_stats"].Lookup(uint32(c.nr), &each) != nil {
				continue
			}
			x := CallCount{Name: c.name}
			for _, n := range each {
				x.Calls, x.Errors, x.Time = x.Calls+n[0], x.Errors+n[1], x.Time+n[2]
			}
			if x.Calls > 0 {
				out = append(out, x)
			}
		}
	}
	return out
}

// IOLosses are what the programs had to drop.
type IOLosses struct {
	Records uint64 // because the ring was full
	Sums    uint64 // operations without sums, because there were too many threads and descriptors
	FDs     uint64 // operations on descriptors above 65535
	Tasks   uint64 // calls of threads beyond the limit
	Skipped uint64 // reads and writes without a record, since the thread had too many: they are in the sums
	Faults  uint64 // page faults without a record, for the same reason
	Stacks  uint64 // of opens and syncs, since the ring was three quarters full
	Bad     uint64 // records that cannot be parsed
}

// Losses returns the losses so far.
func (e *IO) Losses() IOLosses {
	get := func(i uint32) (n uint64) {
		var each []uint64
		if e.maps["io_lost"].Lookup(i, &each) == nil {
			for _, x := range each {
				n += x
			}
		}
		return n
	}
	return IOLosses{get(lostRecords), get(lostUses), get(lostFDs), get(lostTasks), get(lostOps), get(lostFaults), get(lostStacks), e.bad}
}

// Close removes the programs and frees the maps.
func (e *IO) Close() error {
	err := e.attached.Close()
	if e.news != nil {
		err = errors.Join(err, e.news.Close())
	}
	return err
}
