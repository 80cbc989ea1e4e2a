package background

import (
	"errors"
	"strings"
	"testing"
)

func broken(s []int) int { return s[len(s)] }

// A panic in urgent work reaches its caller on any thread, and Urgent's settings are
// restored.
func TestUrgentPanics(t *testing.T) {
	for range 2 { // more often than there are reserved threads
		fell := Contain(func() {
			Urgent(func() { Urgent(func() { broken(nil) }) })
			t.Error("it went on")
		})
		if fell == nil || !strings.Contains(fell.Error(), "index out of range") || !strings.Contains(fell.At, "background.broken contain_test.go:") {
			t.Errorf("%+v", fell)
		}
	}
	garbage.mu.Lock()
	keeping := garbage.keeping
	garbage.mu.Unlock()
	if keeping != 0 {
		t.Errorf("%d still keep garbage", keeping)
	}
	if fell := Contain(func() { panic(errors.New("frob")) }); fell == nil || !strings.HasPrefix(fell.Error(), "panic: frob, at ") {
		t.Errorf("%v", fell)
	}
	ran := false
	if fell := Contain(func() { Urgent(func() { ran = true }) }); fell != nil || !ran {
		t.Errorf("%v, %v", fell, ran)
	}
}
