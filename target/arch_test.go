package target

import (
	"encoding/binary"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// block returns a register block whose word i is base+i.
func block(words int, base uint64) []byte {
	b := make([]byte, words*8)
	for i := range words {
		binary.LittleEndian.PutUint64(b[i*8:], base+uint64(i))
	}
	return b
}

func TestRegsAMD64(t *testing.T) {
	b := block(amdWords, 0x1000)
	var r stack.Regs
	var c stack.Call
	if !RegsAMD64(b, &r, &c) {
		t.Fatal("too short")
	}
	// Order of struct user_regs_struct: r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi
	// orig_rax rip cs eflags rsp ss fs_base …
	for dwarf, word := range map[int]uint64{0: 10, 1: 12, 2: 11, 3: 5, 4: 13, 5: 14, 6: 4, 7: 19, 8: 9, 9: 8, 10: 7, 11: 6, 12: 3, 13: 2, 14: 1, 15: 0, 16: 16} {
		if r.R[dwarf] != 0x1000+word {
			t.Errorf("register %d is word %d, want %d", dwarf, r.R[dwarf]-0x1000, word)
		}
	}
	if r.Known != 1<<17-1 || r.PC != 0x1010 || r.TLS != 0x1015 {
		t.Errorf("known %#x PC %#x TLS %#x", r.Known, r.PC, r.TLS)
	}
	if c.Nr != 0x100f || c.Args != [6]uint64{0x100e, 0x100d, 0x100c, 0x1007, 0x1009, 0x1008} {
		t.Errorf("call %+v", c)
	}
	binary.LittleEndian.PutUint64(b[amdOrigRAX*8:], ^uint64(0))
	if RegsAMD64(b, &r, &c); c.Nr != -1 {
		t.Errorf("call %d", c.Nr)
	}
	if RegsAMD64(b[:len(b)-1], &r, &c) {
		t.Error("a short block was taken")
	}
}

func TestRegsARM64(t *testing.T) {
	b := block(armWords, 0x1000)
	var r stack.Regs
	if !RegsARM64(b, &r) {
		t.Fatal("too short")
	}
	for i := range 32 {
		if r.R[i] != 0x1000+uint64(i) {
			t.Errorf("register %d is %#x", i, r.R[i])
		}
	}
	if r.Known != 1<<32-1 || r.PC != 0x1020 {
		t.Errorf("known %#x PC %#x", r.Known, r.PC)
	}
	if RegsARM64(b[:len(b)-1], &r) {
		t.Error("a short block was taken")
	}
}

func TestCutAMD64(t *testing.T) {
	for _, c := range []struct {
		rax, orig uint64
		cut, back bool
	}{
		{minusEINTR, 232, true, true},          // epoll_wait
		{minusEINTR, 426, true, true},          // io_uring_enter
		{minusEINTR, 3, true, false},           // close: the descriptor is gone
		{minusEINTR, 16, true, false},          // ioctl: only the driver knows
		{minusEINTR, ^uint64(0), false, false}, // not in a call
		{minusEINTR, 1<<30 | 45, false, false}, // x32
		{minusERESTARTNOHAND, 232, false, false},
		{0, 232, false, false},
		{5, 1, false, false}, // a write that was interrupted half done
	} {
		k, cut := cutAMD64(c.rax, c.orig)
		if cut != c.cut || cut && k.putBackable() != c.back {
			t.Errorf("rax %#x orig %d: cut %v, put back %v", c.rax, c.orig, cut, k.putBackable())
		}
	}
}

func TestRewindARM64(t *testing.T) {
	call := stack.Call{Nr: 22, Args: [6]uint64{4, 0x8000, 16, 30, 0, 8}} // epoll_pwait
	good := func() ([armWords]uint64, callBefore) {
		var r [armWords]uint64
		for i := range r {
			r[i] = 0x5000 + uint64(i)
		}
		r[0] = minusEINTR
		copy(r[1:6], call.Args[1:])
		r[8], r[armSP], r[armPC] = 22, 0xffff0000, 0x400104
		return r, callBefore{call: call, pc: 0x400104, sp: 0xffff0000}
	}
	r, b := good()
	if how := rewindARM64(&r, &b); how != putDone || r[0] != 4 || r[armPC] != 0x400100 {
		t.Errorf("%d: x0 %#x pc %#x", how, r[0], r[armPC])
	}
	for i := 1; i < armWords; i++ {
		if want, _ := good(); i != armPC && r[i] != want[i] {
			t.Errorf("register %d was changed", i)
		}
	}
	for name, c := range map[string]struct {
		change func(r *[armWords]uint64, b *callBefore)
		how    int
	}{
		"not cut short":      {func(r *[armWords]uint64, b *callBefore) { r[0] = 1 }, putNothing},
		"nothing known":      {func(r *[armWords]uint64, b *callBefore) { b.call.Nr = -1 }, putNothing},
		"another call":       {func(r *[armWords]uint64, b *callBefore) { r[8] = 63 }, putNothing},
		"another argument":   {func(r *[armWords]uint64, b *callBefore) { r[3]++ }, putNothing},
		"another place":      {func(r *[armWords]uint64, b *callBefore) { r[armPC] += 8 }, putNothing},
		"another frame":      {func(r *[armWords]uint64, b *callBefore) { r[armSP] -= 16 }, putNothing},
		"restarted already":  {func(r *[armWords]uint64, b *callBefore) { r[0], r[armPC] = 4, 0x400100 }, putNothing},
		"a mask of its own":  {func(r *[armWords]uint64, b *callBefore) { r[4], b.call.Args[4] = 0x9000, 0x9000 }, putLost},
		"ioctl":              {func(r *[armWords]uint64, b *callBefore) { r[8], b.call.Nr = 29, 29 }, putLost},
		"close":              {func(r *[armWords]uint64, b *callBefore) { r[8], b.call.Nr = 57, 57 }, putLost},
		"a number too large": {func(r *[armWords]uint64, b *callBefore) { r[8] = 1 << 40 }, putNothing},
	} {
		r, b := good()
		c.change(&r, &b)
		before := r
		if how := rewindARM64(&r, &b); how != c.how || r != before {
			t.Errorf("%s: %d, want %d; changed: %v", name, how, c.how, r != before)
		}
	}
}

func TestCallARM64(t *testing.T) {
	b := callBefore{call: stack.Call{Nr: 98}, pc: 0x1004, sp: 0x9000}
	var r stack.Regs
	r.R[8], r.R[armSP] = 98, 0x9000
	for pc, want := range map[uint64]int32{0x1004: 98, 0x1000: 98, 0x1008: -1} {
		if r.PC = pc; callARM64(&r, &b).Nr != want {
			t.Errorf("pc %#x: call %d", pc, callARM64(&r, &b).Nr)
		}
	}
	r.PC, r.R[8] = 0x1004, 63
	if callARM64(&r, &b).Nr != -1 {
		t.Error("another call was taken for it")
	}
}

func (r Risk) String() string {
	switch r {
	case RiskNone:
		return "none"
	case RiskMaybe:
		return "late if a socket has a timeout, or it is read-only"
	case RiskLate:
		return "late"
	case RiskShort:
		return "short"
	}
	return "EINTR"
}

func TestStopRisk(t *testing.T) {
	minusOne := ^uint64(0)
	for _, c := range []struct {
		amd, arm int32
		args     [6]uint64
		want     Risk
	}{
		{-1, -1, [6]uint64{}, RiskNone},
		{232, 22, [6]uint64{3, 1, 1, 0xffffffff}, RiskNone}, // epoll_wait without timeout: an int
		{281, 22, [6]uint64{3, 1, 1, minusOne}, RiskNone},
		{232, 22, [6]uint64{3, 1, 1, 100}, RiskLate},
		{441, 441, [6]uint64{3, 1, 1, 0}, RiskNone},
		{441, 441, [6]uint64{3, 1, 1, 0x7000}, RiskLate},
		{202, 98, [6]uint64{1, 0, 0, 0x7000}, RiskNone}, // futex
		{35, 101, [6]uint64{1}, RiskNone},
		{271, 73, [6]uint64{1, 1, 0x7000}, RiskNone},
		{220, 192, [6]uint64{1, 1, 1, 0x7000}, RiskLate},
		{220, 192, [6]uint64{1, 1, 1, 0}, RiskNone},
		{65, 193, [6]uint64{1, 1, 1, 5}, RiskNone},
		{128, 137, [6]uint64{1, 0, 0x7000}, RiskLate},
		{128, 137, [6]uint64{1, 0, 0}, RiskNone},
		{208, 4, [6]uint64{1, 1, 8, 0x10, 0x7000}, RiskLate},
		{208, 4, [6]uint64{1, 4, 8, 0x10, 0}, RiskShort},
		{426, 426, [6]uint64{5, 0, 1, 1}, RiskNone},
		{426, 426, [6]uint64{5, 2, 1, 1}, RiskShort},
		{426, 426, [6]uint64{5, 0, 1, 9}, RiskLate},
		{0, 63, [6]uint64{1}, RiskMaybe},
		{45, 207, [6]uint64{1, 1, 1, 0}, RiskMaybe},
		{45, 207, [6]uint64{1, 1, 1, 0x100}, RiskShort},
		{47, 212, [6]uint64{1, 1, 0x100}, RiskShort},
		{43, 202, [6]uint64{1}, RiskMaybe},
		{1, 64, [6]uint64{1}, RiskShort},
		{40, 71, [6]uint64{1}, RiskShort},
		{16, 29, [6]uint64{1}, RiskEINTR}, // ioctl
		{9999, 9999, [6]uint64{}, RiskEINTR},
	} {
		call := stack.Call{Nr: c.amd, Args: c.args}
		if got := stopRisk(kindAMD64(c.amd), &call, true); got != c.want {
			t.Errorf("amd64 call %d %v: %v, want %v", c.amd, c.args, got, c.want)
		}
		call.Nr = c.arm
		if got := stopRisk(kindARM64(c.arm), &call, false); got != c.want {
			t.Errorf("arm64 call %d %v: %v, want %v", c.arm, c.args, got, c.want)
		}
	}
	for _, c := range []struct {
		nr   int32
		args [6]uint64
		sp   uint64
		want Risk
	}{
		{271, [6]uint64{1, 1, 0}, 0, RiskNone},
		{271, [6]uint64{1, 1, 0x7000}, 0, RiskMaybe},
		{271, [6]uint64{1, 1, 0x7000}, 0x6f00, RiskNone},
		{271, [6]uint64{1, 1, 0x7000}, 0x7010, RiskMaybe},
		{270, [6]uint64{1, 1, 1, 1, 0}, 0x6f00, RiskNone},
		{270, [6]uint64{1, 1, 1, 1, 0x7000}, 0x6f00, RiskNone},
		{23, [6]uint64{1, 1, 1, 1, 0x7000}, 0x7000000, RiskMaybe},
	} {
		if got := selectRisk(&stack.Call{Nr: c.nr, Args: c.args}, c.sp, 271); got != c.want {
			t.Errorf("call %d %v at SP %#x: %v, want %v", c.nr, c.args, c.sp, got, c.want)
		}
	}
	call := stack.Call{Nr: 22, Args: [6]uint64{3, 1, 1, minusOne, 0x7000}}
	if got := stopRisk(kindARM64(22), &call, false); got != RiskEINTR {
		t.Errorf("arm64 epoll_pwait with a mask: %v", got)
	}
	call.Nr = 281
	if got := stopRisk(kindAMD64(281), &call, true); got != RiskNone {
		t.Errorf("amd64 epoll_pwait with a mask: %v", got)
	}
}
