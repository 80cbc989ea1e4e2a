package target

import "testing"

// A stopper shares the files of this program from its start to its end, and no other process does.
func TestSharesFiles(t *testing.T) {
	s, err := newStopper()
	if err != nil {
		t.Skip(err)
	}
	if !SharesFiles(s.proc) || SharesFiles(1) {
		t.Errorf("stopper %v, process 1 %v", SharesFiles(s.proc), SharesFiles(1))
	}
	s.close()
	if SharesFiles(s.proc) {
		t.Error("an ended stopper is still one")
	}
}
