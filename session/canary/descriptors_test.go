package canary

import (
	"testing"

	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// began is a folder that notes when it is listed.
type began struct {
	files.Dir
	at stack.Time
}

func (b *began) ReadDir(string, int) ([]string, error) {
	b.at = target.Now()
	return []string{"0"}, nil
}

// A descriptor that is opened while the others are listed may lack in the list, and is not closed for that.
func TestOpenedWhileListed(t *testing.T) {
	dir := &began{}
	c := &Canary{fs: dir}
	if c.relist(); !c.listed[0] || c.listedAt > dir.at {
		t.Errorf("the list %v is called one of %d, and was begun at %d", c.listed, c.listedAt, dir.at)
	}
}
