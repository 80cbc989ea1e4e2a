package main

import (
	"bufio"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func near(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-9
}

func TestLoss(t *testing.T) {
	for _, c := range []struct{ before, with, after, want float64 }{
		{100, 90, 100, 10}, {80, 90, 120, 10}, {100, 100, 100, 0}, {90, 104, 110, -4}, {100, 0, 100, 100},
	} {
		if got := lossOf(c.before, c.with, c.after); !near(got, c.want) {
			t.Errorf("%v between %v and %v: a loss of %v %%, want %v", c.with, c.before, c.after, got, c.want)
		}
	}
}

func TestMedianAndSpread(t *testing.T) {
	for _, c := range []struct {
		v              []float64
		median, spread float64
	}{
		{nil, math.NaN(), math.NaN()},
		{[]float64{7}, 7, math.NaN()},
		{[]float64{3, 1, 2}, 2, 25},
		{[]float64{4, 1, 3, 2}, 2.5, 30},
		{[]float64{100, 100, 100, 100, 5000}, 100, 0}, // one outlier counts for nothing
		{[]float64{96, 98, 100, 102, 104}, 100, 2},
	} {
		in := fmt.Sprint(c.v)
		if got := median(c.v); !near(got, c.median) {
			t.Errorf("median of %s: %v, want %v", in, got, c.median)
		}
		if got := spreadOf(c.v); !near(got, c.spread) {
			t.Errorf("spread of %s: %v, want %v", in, got, c.spread)
		}
		if fmt.Sprint(c.v) != in {
			t.Errorf("%s is changed to %v", in, c.v)
		}
	}
}

func TestTurnsOf(t *testing.T) {
	all := []spy{{name: "sliver", hz: 100}, {name: "sliver", hz: 1000}, {name: "perf", hz: 100}, {name: "perf", hz: 1000}}
	for round, want := range []string{
		"sliver 100, sliver 1000, perf 100, perf 1000",
		"sliver 1000, perf 1000, sliver 100",
		"perf 1000, sliver 100, sliver 1000",
		"perf 1000, sliver 100, sliver 1000",
		"sliver 100, sliver 1000, perf 1000",
		"sliver 1000, perf 100, perf 1000, sliver 100",
	} {
		var got []string
		for _, s := range turnsOf(all, round) {
			got = append(got, fmt.Sprint(s.name, " ", s.hz))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("round %d: %s, want %s", round, strings.Join(got, ", "), want)
		}
	}
}

func TestTimeFor(t *testing.T) {
	if got := timeFor(5, 2*time.Second); got != 6*time.Minute {
		t.Errorf("%v, want 6 minutes", got)
	}
}

func TestLimitOfAndOver(t *testing.T) {
	c := costs{loss: map[key][]float64{
		{"sliver", 1000}: {1}, {"perf", 1000}: {9, 4, 5}, {"async-profiler", 1000}: {7, 6, 8}, {"perf", 100}: {-1},
	}}
	for _, x := range []struct {
		hz          int
		peer        string
		loss, limit float64
	}{{1000, "perf", 5, 6.5}, {100, "perf", -1, 2}, {10, "", math.NaN(), 2}} {
		peer, loss := c.best(x.hz)
		if peer != x.peer || !near(loss, x.loss) || !near(limitOf(x.hz, loss), x.limit) {
			t.Errorf("%d Hz: %q with %v, limit %v; want %+v", x.hz, peer, loss, limitOf(x.hz, loss), x)
		}
	}
	if got := limitOf(1000, 1); got != 2 {
		t.Errorf("limit beside a peer with 1 %%: %v, want 2", got)
	}
	for _, x := range []struct {
		loss, limit, spread float64
		want                bool
	}{{1, 2, 0.1, false}, {3, 2, 0.1, true}, {3, 2, 4, false}, {3, 2, math.NaN(), true}, {math.NaN(), 2, 1, false}} {
		if got := (&cost{loss: x.loss, limit: x.limit, spread: x.spread}).over(); got != x.want {
			t.Errorf("%+v: over is %v", x, got)
		}
	}
}

func TestReplies(t *testing.T) {
	for _, c := range []struct {
		read func(*bufio.Reader) error
		text string
		ok   bool
	}{
		{webReply, "HTTP/1.1 200 OK\r\ncontent-LENGTH: 3\r\nDate: x\r\n\r\nabc", true},
		{webReply, "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc", false},
		{webReply, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc", false},
		{webReply, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na", false},
		{webReply, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", false},
		{redisReply, "$3\r\nabc\r\n", true},
		{redisReply, "$-1\r\n", false},
		{redisReply, "-ERR\r\n", false},
		{redisReply, "", false},
	} {
		r := bufio.NewReader(strings.NewReader(c.text))
		err := c.read(r)
		if (err == nil) != c.ok || c.ok && r.Buffered() != 0 {
			t.Errorf("%q: %v, and %d bytes are left", c.text, err, r.Buffered())
		}
	}
}

func TestShareOfScript(t *testing.T) {
	const text = `            1170 work (/tmp/turns)
            1234 main (/tmp/turns)

ffffffff81000000 workqueue ([kernel.kallsyms])
            1234 main (/tmp/turns)

            1170 work (/tmp/turns)

`
	if got, err := shareOfScript(text, "work"); err != nil || !near(got, 2./3) {
		t.Errorf("share %v, %v; want 2/3", got, err)
	}
	if _, err := shareOfScript("\n", "work"); err == nil {
		t.Error("a share of no stacks")
	}
}

func TestFoldedSamples(t *testing.T) {
	if got := foldedSamples("a;b c 3\nd 4\n\n"); got != 7 {
		t.Errorf("%d samples, want 7", got)
	}
}
