package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/iowatch"
)

// Two further programs of IO find what the page cache did not have. One runs when a page of a file is put
// into the cache (raw tracepoint mm_filemap_add_to_page_cache): in a read it notes that the read has to
// wait, and otherwise which file a page fault reads. The other runs at each major page fault, by a
// software event of each CPU. Neither costs a call whose data is in memory.

// missLimit is how many reads of one thread in a second have a stack because they waited for storage.
const missLimit = 10

// cacheLayout has offsets for the page cache, from the kernel's type information.
type cacheLayout struct {
	mapping, host, ino, super, dev uint32 // of folio, address_space, inode, inode, super_block
	switches                       uint32 // voluntary ones, of task_struct
}

// cacheOffsets finds them.
func cacheOffsets() (*cacheLayout, error) {
	l := &cacheLayout{}
	err := offsets([]member{
		{&l.mapping, "folio", []string{"mapping"}},
		{&l.host, "address_space", []string{"host"}},
		{&l.ino, "inode", []string{"i_ino"}},
		{&l.super, "inode", []string{"i_sb"}},
		{&l.dev, "super_block", []string{"s_dev"}},
		{&l.switches, "task_struct", []string{"nvcsw"}},
	})
	return l, err
}

// watchCache attaches the two programs. Without them, reads that waited and page faults are not counted,
// and the error says why.
func (e *IO) watchCache(c *ioConfig, m ioMaps, l *layout) error {
	added, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_cached", Type: ebpf.RawTracepoint, License: "GPL", Instructions: pageAdded(c, m, l)})
	if err != nil {
		return fmt.Errorf("load program sliver_cached: %w", err)
	}
	e.progs = append(e.progs, added)
	fault, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_fault", Type: ebpf.PerfEvent, License: "GPL", Instructions: faulted(c, m, l)})
	if err != nil {
		return fmt.Errorf("load program sliver_fault: %w", err)
	}
	e.progs = append(e.progs, fault)
	x, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "mm_filemap_add_to_page_cache", Program: added})
	if err != nil {
		return fmt.Errorf("attach to mm_filemap_add_to_page_cache: %w", err)
	}
	e.links = append(e.links, x)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	for cpu := range cpus {
		if err := e.watchFaults(fault, cpu); err != nil && !errors.Is(err, unix.ENODEV) { // a CPU that is off
			return fmt.Errorf("count page faults of CPU %d: %w", cpu, err)
		}
	}
	return nil
}

// faultEvent is an event of one CPU that runs a program.
type faultEvent int

// Close implements io.Closer.
func (f faultEvent) Close() error { return unix.Close(int(f)) }

func (e *IO) watchFaults(p *ebpf.Program, cpu int) error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ, Sample: 1, Bits: unix.PerfBitDisabled}
	attr.Size = unix.PERF_ATTR_SIZE_VER5
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return err
	}
	e.links = append(e.links, faultEvent(fd))
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.FD()); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
}

// switches sets R1 to the thread's voluntary switches plus one: never 0.
func (a *assembler) switches(l *cacheLayout) {
	a.add(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(asm.R3, asm.R0), storeWord(asm.RFP, onTmp, 0))
	a.kernelRead(onTmp, 8, int32(l.switches))
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTmp, asm.DWord), asm.Add.Imm(asm.R1, 1))
}

// identity reads the inode number of the inode at R3 to onSize, and its device to onMode.
func (a *assembler) identity(l *cacheLayout) {
	a.add(storeWord(asm.RFP, onMode, 0), asm.StoreMem(asm.RFP, onKey, asm.R3, asm.DWord))
	a.kernelRead(onSize, 8, int32(l.ino))
	a.add(asm.LoadMem(asm.R3, asm.RFP, onKey, asm.DWord))
	a.kernelRead(onTmp, 8, int32(l.super))
	a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord))
	a.kernelRead(onMode, 4, int32(l.dev))
}

// pageAdded is the program that runs when a page is put into the cache. Its argument is the folio.
func pageAdded(c *ioConfig, m ioMaps, all *layout) asm.Instructions {
	l := all.cache
	a := &assembler{}
	a.own(c.pid, all)
	a.task(m, all, true)
	a.add(asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord))
	a.kernelRead(onTmp, 8, int32(l.mapping))
	a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord))
	a.kernelRead(onTmp, 8, int32(l.host))
	a.add(asm.LoadMem(asm.R3, asm.RFP, onTmp, asm.DWord), asm.JEq.Imm(asm.R3, 0, "out"))
	a.identity(l)
	a.add(asm.LoadMem(asm.R1, asm.RFP, onSize, asm.DWord), asm.StoreMem(asm.R9, taskAddIno, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, onMode, asm.DWord), asm.StoreMem(asm.R9, taskAddDev, asm.R1, asm.Word),
		asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.R9, taskAddAt, asm.R0, asm.DWord))
	a.queued(all)
	a.add(asm.StoreMem(asm.R9, taskAddQ, asm.R0, asm.DWord))
	a.add(asm.LoadMem(asm.R1, asm.R9, taskStart, asm.DWord), asm.JEq.Imm(asm.R1, 0, "out"),
		asm.LoadMem(asm.R1, asm.R9, taskClass, asm.DWord), asm.And.Imm(asm.R1, 0xff), asm.JEq.Imm(asm.R1, classMove, "reads"), asm.JNE.Imm(asm.R1, classRead, "out"))
	a.label("reads")
	a.add(asm.LoadMem(asm.R1, asm.R9, taskMiss, asm.DWord), asm.JNE.Imm(asm.R1, 0, "out"))
	a.switches(l)
	a.add(asm.StoreMem(asm.R9, taskMiss, asm.R1, asm.DWord), asm.LoadMem(asm.R1, asm.R9, taskAddIno, asm.DWord), asm.StoreMem(asm.R9, taskMissOf, asm.R1, asm.DWord))
	return a.end()
}

// missed marks a read that put pages into the cache and then waited. A read that only began to read ahead
// did not.
func (a *assembler) missed(l *layout) {
	if l.cache == nil {
		return
	}
	a.add(asm.LoadMem(asm.R1, asm.R9, taskMiss, asm.DWord), asm.JEq.Imm(asm.R1, 0, "hit"))
	a.switches(l.cache)
	a.add(asm.LoadMem(asm.R2, asm.R9, taskMiss, asm.DWord), storeWord(asm.R9, taskMiss, 0), storeWord(asm.R9, taskAddAt, 0), asm.JEq.Reg(asm.R1, asm.R2, "hit"))
	a.set(recMissed, 1, asm.Byte)
	a.get(asm.R1, recBusy, asm.DWord)
	a.more(useMissTime, asm.R1)
	a.add(asm.Mov.Imm(asm.R1, 1))
	a.more(useMisses, asm.R1)
	a.label("hit")
	a.add(asm.Mov.Imm(asm.R0, 0))
}

// missStack goes to "stack" for the first missLimit reads of a second that waited, and else to "each".
func (a *assembler) missStack() {
	a.get(asm.R1, recMissed, asm.Byte)
	a.add(asm.JEq.Imm(asm.R1, 0, "each"))
	a.window()
	a.add(asm.LoadMem(asm.R1, asm.R9, taskMissed, asm.Word), asm.JGE.Imm(asm.R1, missLimit, "each"), asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, taskMissed, asm.R1, asm.Word))
	a.set(recOp, int64(iowatch.OpMark), asm.Byte)
	a.add(asm.Ja.Label("stack"))
}

// faulted is the program that runs at the end of a major page fault. Its context is struct
// bpf_perf_event_data (include/uapi/linux/bpf_perf_event.h).
func faulted(c *ioConfig, m ioMaps, l *layout) asm.Instructions {
	a := &assembler{}
	a.own(c.pid, l)
	a.task(m, l, true)
	for off := 0; off < recBytes; off += 8 {
		a.set(off, 0, asm.DWord)
	}
	a.add(asm.FnKtimeGetNs.Call())
	a.put(recEnd, asm.R0, asm.DWord)
	// The wait began when the page was put into the cache. A page of swapped memory has none.
	a.add(asm.LoadMem(asm.R1, asm.R9, taskAddAt, asm.DWord), asm.JEq.Imm(asm.R1, 0, "unknown"), asm.JGT.Reg(asm.R1, asm.R0, "unknown"),
		storeWord(asm.R9, taskAddAt, 0), asm.Sub.Reg(asm.R0, asm.R1))
	a.put(recBusy, asm.R0, asm.DWord)
	a.busy(l, taskAddQ)
	a.add(asm.LoadMem(asm.R1, asm.R9, taskAddIno, asm.DWord))
	a.put(recIno, asm.R1, asm.DWord)
	a.add(asm.LoadMem(asm.R1, asm.R9, taskAddDev, asm.Word))
	a.put(recDev, asm.R1, asm.Word)
	a.label("unknown")
	a.set(recOp, int64(iowatch.OpFault), asm.Byte)
	a.set(recNr, maxCalls, asm.Word) // none
	a.add(asm.LoadMem(asm.R1, asm.RFP, onTID, asm.Word))
	a.put(recTID, asm.R1, asm.Word)
	a.add(asm.LoadMem(asm.R1, asm.R6, eventAddr, asm.DWord))
	a.put(recRet, asm.R1, asm.DWord)
	a.add(asm.LoadMem(asm.R1, asm.R9, taskPolls, asm.Word), asm.JLT.Imm(asm.R1, loopPolls, "registers"))
	a.set(recLoop, 1, asm.Byte)
	a.label("registers")
	for off := 0; off < regBlock; off += 8 {
		from := off
		if off >= eventRegs { // argument 0 of a call, which the event has where its result is
			from = int(regResult)
		}
		a.add(asm.LoadMem(asm.R1, asm.R6, int16(from), asm.DWord), asm.StoreMem(asm.RFP, int16(onRegs+off), asm.R1, asm.DWord))
	}
	a.add(asm.Mov.Imm(asm.R7, 0), asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+regSP), asm.DWord))
	a.put(recSP, asm.R1, asm.DWord)
	a.window()
	// In the kernel, the registers are its own: a call reads or writes memory that is mapped.
	a.add(asm.LoadMem(asm.R1, asm.RFP, int16(onRegs+regSP), asm.DWord), asm.RSh.Imm(asm.R1, 63), asm.JNE.Imm(asm.R1, 0, "many"),
		asm.LoadMem(asm.R1, asm.R9, taskFaults, asm.Word), asm.JGE.Imm(asm.R1, stacksLimit, "many"), asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, taskFaults, asm.R1, asm.Word), asm.Ja.Label("stack"))
	a.label("many")
	a.add(asm.LoadMem(asm.R1, asm.R9, taskOps, asm.Word), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R9, taskOps, asm.R1, asm.Word),
		asm.JLE.Imm(asm.R1, opsLimit, "plain"))
	a.count(m, lostFaults)
	a.add(asm.Ja.Label("out"))
	a.label("stack")
	a.copies(m, l)
	a.plain(m)
	return a.end()
}
