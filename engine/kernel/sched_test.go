package kernel

import (
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// switchRecord makes a record of a wait.
func switchRecord() []byte {
	b := make([]byte, schedRecBytes)
	le := binary.NativeEndian
	le.PutUint64(b[swOut:], 1000)
	le.PutUint64(b[swWake:], 1500)
	le.PutUint64(b[swIn:], 1600)
	le.PutUint32(b[swTID:], 77)
	le.PutUint16(b[swState:], 0x2001) // TASK_INTERRUPTIBLE, freezable
	le.PutUint32(b[swWaker:], 78)
	le.PutUint32(b[swWaker+4:], 70)
	copy(b[swComm:], "waker")
	return b
}

func TestParseSwitch(t *testing.T) {
	var s Switch
	want := Switch{TID: 77, Out: 1000, Wake: 1500, In: 1600, How: 0x2001, Waker: 78, WakerPID: 70}
	copy(want.WakerComm[:], "waker")
	if err := parseSwitch(switchRecord(), &s); err != nil || !reflect.DeepEqual(s, want) || s.WakerName() != "waker" || s.How.State() != stack.StateBlocked {
		t.Errorf("%+v, %v", s, err)
	}
	for name, c := range map[string]struct {
		change func(b []byte)
		ok     func(s *Switch) bool
	}{
		"preempted":    {func(b []byte) { b[swState], b[swState+1] = 0, 0 }, func(s *Switch) bool { return s.Wake == 1000 && s.Waker == 0 && s.How.State() == stack.StateRunnable }},
		"woken before": {func(b []byte) { binary.NativeEndian.PutUint64(b[swWake:], 900) }, func(s *Switch) bool { return s.Wake == 1000 && s.Waker == 78 }},
		"timer":        {func(b []byte) { b[swBy] = byHard | byTimer }, func(s *Switch) bool { return s.Hard && s.Timer && !s.Soft }},
		"idle thread":  {func(b []byte) { binary.NativeEndian.PutUint32(b[swWaker:], 0) }, func(s *Switch) bool { return s.Hard && s.Waker == 0 }},
		"ended":        {func(b []byte) { b[swFlags] = swEnded }, func(s *Switch) bool { return s.Ended && s.In == 0 && s.Wake == 0 }},
		"disk":         {func(b []byte) { b[swState], b[swState+1] = 2, 1 }, func(s *Switch) bool { return s.How.State() == stack.StateDisk }},
		"stopped":      {func(b []byte) { b[swState] = 4 }, func(s *Switch) bool { return s.How.State() == stack.StateStopped }},
		"traced":       {func(b []byte) { b[swState] = 8 }, func(s *Switch) bool { return s.How.State() == stack.StateTraced }},
		"skipped": {func(b []byte) {
			b[swFlags] = swFull
			binary.NativeEndian.PutUint64(b[swSkipped:], 3)
			binary.NativeEndian.PutUint64(b[swAsleep:], 4)
			binary.NativeEndian.PutUint64(b[swQueued:], 5)
		}, func(s *Switch) bool { return s.Skipped == 3 && s.Asleep == 4 && s.Queued == 5 && s.Full && !s.Rate }},
	} {
		b := switchRecord()
		if c.change(b); parseSwitch(b, &s) != nil || !c.ok(&s) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for name, b := range map[string][]byte{"short": switchRecord()[:schedRecBytes-1], "times": func() []byte {
		b := switchRecord()
		binary.NativeEndian.PutUint64(b[swIn:], 1400)
		return b
	}()} {
		if parseSwitch(b, &s) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func FuzzParseSwitch(f *testing.F) {
	f.Add(switchRecord())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Switch
		if parseSwitch(b, &s) == nil && !s.Ended && (s.Out < 0 || s.In != 0 && (s.In < s.Out || s.Wake > s.In) || s.Wake != 0 && s.Wake < s.Out) {
			t.Errorf("%+v", s)
		}
	})
}
