package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"

	"github.com/sliverprof/sliver/internal/testprog"
)

// rss returns the process's peak resident memory in kB. SQLite allocates outside Go's
// heap.
func rss(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kB); n == 1 {
			return kB
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// A question stays within its memory limit, whichever SQL construct asks for memory.
func TestMemoryOfQuestions(t *testing.T) {
	testprog.Whole(t, "values of gigabytes, each bounded alike")
	rec := waiting(t)
	for _, q := range []string{
		"select zeroblob(1000000000)",
		"select length(zeroblob(1000000000))",
		"select hex(zeroblob(500000000))",
		"select replace(hex(zeroblob(4000000)), '0', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')",
		"select printf('%.*c', 1000000000, 'x')",
		"with recursive r(x) as (select zeroblob(10000000) union all select x || x from r limit 20) select length(x) from r",
		"select group_concat(zeroblob(10000000)) from (with recursive c(n) as (select 1 union all select n+1 from c limit 1000) select n from c)",
		"select json_group_array(hex(zeroblob(1000000))) from (with recursive c(n) as (select 1 union all select n+1 from c limit 1000) select n from c)",
	} {
		before := rss(t)
		got, err := answer(t, rec, view.Options{}, "csv", q)
		if err == nil || !strings.Contains(err.Error(), "too big") && !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("%s: %.60q, %v", q, got, err)
		}
		if after := rss(t); after-before > 600<<10 {
			t.Errorf("%s: took %d MB", q, (after-before)>>10)
		}
	}
	// A large value below the limit works.
	if got := must(t, rec, view.Options{}, "csv", "select length(zeroblob(10000000)) n"); got != "n\n10000000\n" {
		t.Error(got)
	}
}

// Canceling the context ends a query, both while it runs and while its rows are read.
func TestQuestionsEnd(t *testing.T) {
	rec := waiting(t)
	for _, q := range []string{
		"with recursive r(n) as (select 1 union all select n+1 from r) select sum(n) from r",
		"with recursive r(n) as (select 1 union all select n+1 from r) select n from r",
		"select count(*) from (with recursive r(n) as (select 1 union all select n+1 from r limit 100000) select a.n from r a, r b, r c)",
	} {
		db, err := Open(context.Background(), rec, view.Options{}, q)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		out := &ending{cancel: cancel}
		go out.after(1 << 20)
		rows, err := db.Rows(ctx, q)
		if err == nil {
			_, err = Write(out, rows, "csv")
		}
		if err == nil || !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("%s: %v", q, err)
		}
		cancel()
		db.Close()
	}
}

// ending cancels the context after the first write, or after a short time.
type ending struct {
	bytes.Buffer
	cancel func()
}

func (e *ending) after(spins int) {
	for range spins {
		runtime.Gosched()
	}
	e.cancel()
}
