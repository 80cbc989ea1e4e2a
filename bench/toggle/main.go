// Toggle measures how much a flight recorder slows down a server under load when separate
// runs differ by more than that. Under one continuous load, it suspends (SIGSTOP) and
// continues (SIGCONT) the recorder repeatedly, in a random order within each pair. It
// prints the throughput with and without, and the ratio with its error.
//
// A suspended recorder leaves no thread of the target stopped: separate processes make
// the stops, complete their current one and then rest. A measurement starts only after
// that. It is an error if anything of the recorder ran in the suspended half of a pair,
// or if a thread of the target was traced. It does not work for programs whose stops the
// recorder makes itself (Go programs).
package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	pid := flag.Int("pid", 0, "the recorder")
	targets := flag.String("targets", "", "the processes that it watches, with commas")
	from := flag.String("count", "", "where the server's count is: redis:HOST:PORT, nginx:URL of its\nstub_status, lines:FILE (a growing file of counts), segments:PORT (requests\nof one segment each, such as pgbench -S sends)")
	pairs := flag.Int("pairs", 100, "how many pairs")
	span := flag.Duration("span", 250*time.Millisecond, "of each half of a pair")
	settle := flag.Duration("settle", 300*time.Millisecond, "from SIGSTOP to the measuring: the recorder's stoppers go through up to 250 ms by themselves")
	flag.Parse()
	watched, err := numbers(*targets)
	if err != nil || *pid <= 0 || *pairs < 2 || *span <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	c, err := parseCounter(*from)
	if err == nil {
		err = run(&recorder{pid: *pid}, watched, c, *pairs, *span, *settle)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "toggle:", err)
		os.Exit(1)
	}
}

func numbers(s string) (out []int, err error) {
	for _, f := range strings.Split(s, ",") {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// half is the measurement of one half of a pair.
type half struct {
	rate float64 // requests per second
	cpu  float64 // server CPU time in s per second
}

// each returns the requests per second of the server's CPU time, which excludes the
// effect of other load on the machine.
func (h half) each() float64 { return h.rate / max(h.cpu, 1e-9) }

func run(r *recorder, watched []int, c counter, pairs int, span, settle time.Duration) error {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer r.signal(syscall.SIGCONT)
	var with, without, ratios, each []float64
	var spent usage // while the recorder ran
	var lasted time.Duration
	again := 0
	for len(ratios) < pairs {
		var on, off half
		first := rand.IntN(2) == 0
		whole := true
		for _, held := range []bool{first, !first} {
			select {
			case <-interrupted:
				return errors.New("interrupted")
			default:
			}
			var err error
			if held {
				off, err = r.held(watched, c, span, settle)
			} else {
				var u usage
				begin := time.Now()
				on, u, err = r.going(watched, c, span)
				spent, lasted = spent.plus(u), lasted+time.Since(begin)-warm
			}
			if errors.Is(err, errRan) && again < pairs {
				again, whole = again+1, false
				break
			}
			if err != nil {
				return err
			}
		}
		if whole {
			with, without = append(with, on.rate), append(without, off.rate)
			ratios, each = append(ratios, on.rate/off.rate), append(each, on.each()/off.each())
		}
	}
	m, low, high := median(ratios)
	s := lasted.Seconds()
	fmt.Printf("without %9.0f/s  with %9.0f/s  of medians %.4f  of pairs %.4f (%.4f to %.4f)  mean %.4f ± %.4f  %d pairs of %v  sliver %.2f %% of a CPU, runs %.0f times/s\n",
		middle(without), middle(with), middle(with)/middle(without), m, low, high, mean(ratios), spread(ratios)/math.Sqrt(float64(pairs)),
		pairs, span, float64(spent.ns)/1e7/s, float64(spent.runs)/s)
	m, low, high = median(each)
	fmt.Printf("          for each second of the server's CPU time %.4f (%.4f to %.4f)  mean %.4f ± %.4f; %d pairs left out, in which it ran while it was held\n",
		m, low, high, mean(each), spread(each)/math.Sqrt(float64(pairs)), again)
	return nil
}

// warm is how long the recorder runs before a measurement: first it catches up on what it
// missed while suspended.
const warm = 100 * time.Millisecond

// going returns the throughput, per second, while the recorder runs, and the recorder's
// usage in that time.
func (r *recorder) going(watched []int, c counter, span time.Duration) (h half, u usage, err error) {
	if err := r.signal(syscall.SIGCONT); err != nil {
		return h, u, err
	}
	time.Sleep(warm)
	before, err := r.usage()
	if err != nil {
		return h, u, err
	}
	if h, err = measure(watched, c, span); err != nil {
		return h, u, err
	}
	after, err := r.usage()
	return h, after.minus(before), err
}

// measure returns the throughput and the server's CPU time.
func measure(watched []int, c counter, span time.Duration) (h half, err error) {
	var cpu []int64
	var at []time.Time
	h.rate, err = c.rate(span, func() {
		at = append(at, time.Now())
		sum := int64(0)
		for _, pid := range watched {
			u, _ := own(pid) // zero if it has ended
			sum += u.ns
		}
		cpu = append(cpu, sum)
	})
	if err == nil {
		h.cpu = float64(cpu[1]-cpu[0]) / float64(at[1].Sub(at[0]))
	}
	return h, err
}

// errRan reports an invalid half.
var errRan = errors.New("the recorder ran while it was held")

// held returns the throughput while the recorder is suspended.
func (r *recorder) held(watched []int, c counter, span, settle time.Duration) (h half, err error) {
	if err := r.signal(syscall.SIGSTOP); err != nil {
		return h, err
	}
	time.Sleep(settle)
	before, err := r.resting()
	if err != nil {
		return h, err
	}
	for _, pid := range watched {
		if tids := traced(pid); len(tids) > 0 {
			return h, fmt.Errorf("threads %v of %d are traced while the recorder is held", tids, pid)
		}
	}
	if h, err = measure(watched, c, span); err != nil {
		return h, err
	}
	after, err := r.usage()
	if err == nil && after != before {
		err = errRan
	}
	return h, err
}

// resting waits until nothing of the recorder has run for a while: on busy CPUs, a thread
// reacts late to the stop signal.
func (r *recorder) resting() (u usage, err error) {
	const each, most = 100 * time.Millisecond, 40
	if u, err = r.usage(); err != nil {
		return u, err
	}
	for range most {
		time.Sleep(each)
		now, err := r.usage()
		if err != nil || now == u {
			return now, err
		}
		u = now
	}
	return u, errors.New("the recorder runs on though it is held")
}

// median returns the median and its 95 % confidence interval, by order statistics and so
// independent of the distribution.
func median(v []float64) (m, low, high float64) {
	v = slices.Sorted(slices.Values(v))
	n := float64(len(v))
	d := 1.96 * math.Sqrt(n) / 2
	at := func(i float64) float64 { return v[min(max(int(i), 0), len(v)-1)] }
	return middle(v), at(n/2 - d), at(n/2 + d)
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

func mean(v []float64) (m float64) {
	for _, x := range v {
		m += x / float64(len(v))
	}
	return m
}

// spread returns the standard deviation.
func spread(v []float64) float64 {
	m, s := mean(v), 0.
	for _, x := range v {
		s += (x - m) * (x - m)
	}
	return math.Sqrt(s / float64(len(v)-1))
}
