package limits

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestGroups(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("memory.max", "max\n")
	put("a/memory.max", "5000\n")
	put("a/b/memory.max", "9000\n")
	put("memory/x/memory.limit_in_bytes", "4000\n")
	put("memory/memory.limit_in_bytes", "9223372036854771712\n")
	for text, want := range map[string]int64{
		"0::/a/b\n":                         5000,
		"0::/\n":                            0,
		"0::/host/path/that/is/not/here\n":  0,
		"3:cpu,memory:/x\n0::/\n":           4000,
		"3:cpu:/x\n":                        0,
		"3:memory:/y\n":                     9223372036854771712,
		"nonsense\n":                        0,
		"0::/../../../../../../../a/../a\n": 5000,
	} {
		if got := groups(root, text); got != want {
			t.Errorf("groups(%q) = %d, want %d", text, got, want)
		}
	}
	if n, name := Memory(); n <= 0 || name == "" {
		t.Errorf("Memory() = %d, %q", n, name)
	}
}

func TestBudget(t *testing.T) {
	all := &Budget{of: "all", most: 1000, mu: new(sync.Mutex), used: new(int64)}
	a, b := all.New("a", 600), all.New("b", 400)
	if a.Most() != 500 || b.Most() != 400 {
		t.Errorf("%d, %d", a.Most(), b.Most())
	}
	take := func(x *Budget, n int64, ok bool) {
		t.Helper()
		err := x.Take(n)
		var e *Error
		if (err == nil) != ok || err != nil && !errors.As(err, &e) {
			t.Errorf("Take(%d): %v", n, err)
		}
	}
	take(a, 500, true)
	take(a, 1, false)
	take(a, -1, false)
	take(b, 400, true)
	c := all.New("c", 500)
	take(c, 101, false)
	take(c, 100, true)
	if all.Used() != 1000 {
		t.Errorf("%d", all.Used())
	}
	a.Give(200)
	take(c, 200, true)
	a.Close()
	if a.Used() != 0 || all.Used() != 700 {
		t.Errorf("%d, %d", a.Used(), all.Used())
	}
	runtime.KeepAlive(b)
	runtime.KeepAlive(c)
	// Unreachable budgets return their memory.
	b, c = nil, nil
	for end := time.Now().Add(time.Minute); all.Used() != 0; {
		if runtime.GC(); time.Now().After(end) {
			t.Fatalf("%d bytes are still taken", all.Used())
		}
	}
	if err := (*Budget)(nil).Take(1 << 60); err != nil {
		t.Error(err)
	}
}
