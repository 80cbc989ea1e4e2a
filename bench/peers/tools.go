package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tool is a tool that samples a process's stacks.
type tool struct {
	name, version string
	python        bool // it supports only Python
	// look runs the tool on pid at 100 samples per second, or as often as it can, for
	// span.
	look func(ctx context.Context, pid int, span time.Duration) (outcome, error)
}

// outcome is the result of one measurement.
type outcome struct {
	samples int
	cpu     time.Duration // of the tool, from its start to its end
	rss     int64         // kB, at most
	sum     summary       // of sliver
}

// summary is the output of sliver record --json.
type summary struct {
	Samples int `json:"samples"`
	Stops   int `json:"stops"`
	Pause   struct {
		Mean  int64   `json:"mean"`
		P50   int64   `json:"p50"`
		P99   int64   `json:"p99"`
		P999  int64   `json:"p999"`
		Max   int64   `json:"max"`
		Under float64 `json:"under_40us_share"`
		Worst int64   `json:"worst_of_10000"`
	} `json:"pause_ns"`
	Share float64 `json:"stopped_share"`
	CPU   int64   `json:"self_cpu_ns"`
	First int64   `json:"first_sample_ns"`

	Duration int64 `json:"duration_ns"`
	Asked    int64 `json:"asked_ns"`
	Untaken  int   `json:"untaken"`
}

// ran runs a tool's command to its end.
func ran(ctx context.Context, path string, args ...string) (out string, o outcome, err error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var b, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &errs
	err = cmd.Run()
	if st := cmd.ProcessState; st != nil {
		o.cpu = st.UserTime() + st.SystemTime()
		if ru, ok := st.SysUsage().(*syscall.Rusage); ok {
			o.rss = ru.Maxrss
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %.300s", filepath.Base(path), err, errs.String())
	}
	return b.String() + errs.String(), o, err
}

// alone measures the machine without any tool.
func alone() tool {
	return tool{name: untouched, look: func(ctx context.Context, _ int, span time.Duration) (outcome, error) {
		select {
		case <-ctx.Done():
			return outcome{}, ctx.Err()
		case <-time.After(span):
			return outcome{}, nil
		}
	}}
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func sliverTool(path, dir string) tool {
	return tool{name: "sliver", look: func(ctx context.Context, pid int, span time.Duration) (outcome, error) {
		return record(ctx, path, dir, pid, span, "-i", "10ms")
	}}
}

// record runs sliver once.
func record(ctx context.Context, path, dir string, pid int, span time.Duration, more ...string) (outcome, error) {
	args := append([]string{"record", "-p", strconv.Itoa(pid), "-d", span.String(), "--json", "-o", filepath.Join(dir, "x.sliver")}, more...)
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		return outcome{}, fmt.Errorf("sliver: %w: %s", err, errs.String())
	}
	var o outcome
	if err := json.Unmarshal(out.Bytes(), &o.sum); err != nil {
		return o, fmt.Errorf("sliver: %w", err)
	}
	o.samples = o.sum.Samples
	o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.rss = ru.Maxrss
	}
	return o, nil
}

var perfSamples = regexp.MustCompile(`\(~?(\d+) samples\)`)

func perfTool(path, dir string) tool { return perfAt(path, dir, 100) }

// perfAt is perf with a rate in Hz. It leaves its samples in perf.data of the folder.
func perfAt(path, dir string, hz int) tool {
	rate := strconv.Itoa(hz)
	return tool{name: "perf record -F " + rate + " --call-graph dwarf", look: func(ctx context.Context, pid int, span time.Duration) (outcome, error) {
		out, o, err := ran(ctx, path, "record", "-F", rate, "--call-graph", "dwarf", "-p", strconv.Itoa(pid),
			"-o", filepath.Join(dir, "perf.data"), "--", "sleep", seconds(span))
		if m := perfSamples.FindStringSubmatch(out); m != nil {
			o.samples, _ = strconv.Atoi(m[1])
		}
		return o, err
	}}
}

var pyspySamples = regexp.MustCompile(`Samples: (\d+)`)

func pyspyTool(path, dir string) tool { return pyspyAt(path, dir, 100) }

// pyspyAt is py-spy with a rate in Hz.
func pyspyAt(path, dir string, hz int) tool {
	rate := strconv.Itoa(hz)
	return tool{name: "py-spy record -r " + rate, python: true, look: func(ctx context.Context, pid int, span time.Duration) (outcome, error) {
		whole := max(1, int(span.Round(time.Second).Seconds()))
		out, o, err := ran(ctx, path, "record", "-r", rate, "-d", strconv.Itoa(whole), "-f", "raw", "-p", strconv.Itoa(pid),
			"-o", filepath.Join(dir, "pyspy.txt"))
		if m := pyspySamples.FindStringSubmatch(out); m != nil {
			o.samples, _ = strconv.Atoi(m[1])
		}
		return o, err
	}}
}

func samplyTool(path, dir string) tool {
	return tool{name: "samply record -r 100", look: func(ctx context.Context, pid int, span time.Duration) (outcome, error) {
		file := filepath.Join(dir, "samply.json")
		_, o, err := ran(ctx, path, "record", "-p", strconv.Itoa(pid), "-r", "100", "-d", seconds(span), "--save-only", "-o", file)
		if err != nil {
			return o, err
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return o, err
		}
		var p struct {
			Threads []struct {
				Samples struct {
					Length int `json:"length"`
				} `json:"samples"`
			} `json:"threads"`
		}
		err = json.Unmarshal(b, &p)
		for _, t := range p.Threads {
			o.samples += t.Samples.Length
		}
		return o, err
	}}
}

// again repeats a command that takes one sample.
func again(path string, args func(pid int) []string) func(context.Context, int, time.Duration) (outcome, error) {
	return func(ctx context.Context, pid int, span time.Duration) (all outcome, err error) {
		end := time.Now().Add(span)
		next := time.Now()
		for time.Now().Before(end) && ctx.Err() == nil {
			_, o, err := ran(ctx, path, args(pid)...)
			if err != nil {
				return all, err
			}
			all.samples++
			all.cpu += o.cpu
			all.rss = max(all.rss, o.rss)
			if next = next.Add(10 * time.Millisecond); time.Until(next) > 0 {
				time.Sleep(time.Until(next))
			}
		}
		return all, ctx.Err()
	}
}

func euStackTool(path, _ string) tool {
	return tool{name: "eu-stack -p", look: again(path, func(pid int) []string { return []string{"-p", strconv.Itoa(pid)} })}
}

func gdbTool(path, _ string) tool {
	return tool{name: "gdb -p … bt", look: again(path, func(pid int) []string {
		return []string{"-nx", "-batch", "-p", strconv.Itoa(pid), "-ex", "bt"}
	})}
}

// sums reads a target's report of its gaps, and the scheduler's statistics of it.
type sums struct {
	file *os.File
	stat string
}

// state is the state of a target at one moment.
type state struct {
	lost   time.Duration // in gaps
	gaps   uint64
	worst  time.Duration
	waited time.Duration // runnable, waiting for a CPU
	at     time.Time
}

func (s *sums) read() (st state) {
	var b [24]byte
	if _, err := s.file.ReadAt(b[:], 0); err != nil {
		return st // it has not started
	}
	st.lost = time.Duration(binary.NativeEndian.Uint64(b[:]))
	st.gaps = binary.NativeEndian.Uint64(b[8:])
	st.worst = time.Duration(binary.NativeEndian.Uint64(b[16:]))
	if b, err := os.ReadFile(s.stat); err == nil {
		if f := strings.Fields(string(b)); len(f) == 3 {
			ns, _ := strconv.ParseInt(f[1], 10, 64)
			st.waited = time.Duration(ns)
		}
	}
	st.at = time.Now()
	return st
}

var errNothing = errors.New("it had no sample")
