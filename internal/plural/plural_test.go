package plural

import "testing"

func TestOf(t *testing.T) {
	for _, x := range []struct {
		n          int
		noun, want string
	}{
		{0, "thread", "0 threads"}, {1, "thread", "1 thread"}, {2, "thread", "2 threads"},
		{1, "process", "1 process"}, {2, "process", "2 processes"}, {2, "context switch", "2 context switches"},
		{3, "entry", "3 entries"}, {3, "array", "3 arrays"}, {2, "more file", "2 more files"}, {2, "index", "2 indexes"},
	} {
		if got := Of(x.n, x.noun); got != x.want {
			t.Errorf("Of(%d, %q) = %q, want %q", x.n, x.noun, got, x.want)
		}
	}
	if got := Either(1, "read or write is", "reads and writes are") + ", " + Either(2, "read or write is", "reads and writes are"); got != "1 read or write is, 2 reads and writes are" {
		t.Errorf("Either: %q", got)
	}
	if got := Word(1, "is", "are") + " " + Word(uint64(0), "is", "are"); got != "is are" {
		t.Errorf("Word: %q", got)
	}
}
