package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// recorder is a running 'sliver watch'.
type recorder struct{ pid int }

func (r *recorder) signal(s syscall.Signal) error {
	if err := syscall.Kill(r.pid, s); err != nil {
		return fmt.Errorf("recorder %d: %w", r.pid, err)
	}
	return nil
}

// usage is CPU time in ns, and the number of times that a thread got a CPU.
type usage struct{ ns, runs int64 }

func (u usage) plus(v usage) usage  { return usage{u.ns + v.ns, u.runs + v.runs} }
func (u usage) minus(v usage) usage { return usage{u.ns - v.ns, u.runs - v.runs} }

// own returns the usage of a process's threads.
func own(pid int) (sum usage, err error) {
	tids, err := tasks(pid)
	for _, tid := range tids {
		sum = sum.plus(readUsage(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, tid)))
	}
	return sum, err
}

// readUsage returns zero for a process that has ended.
func readUsage(name string) usage {
	b, err := os.ReadFile(name)
	f := strings.Fields(string(b))
	if err != nil || len(f) != 3 {
		return usage{}
	}
	ns, _ := strconv.ParseInt(f[0], 10, 64)
	runs, _ := strconv.ParseInt(f[2], 10, 64)
	return usage{ns, runs}
}

// usage returns the usage of its threads and of its stopper processes.
func (r *recorder) usage() (sum usage, err error) {
	tids, err := tasks(r.pid)
	if err != nil {
		return sum, err
	}
	var files []string
	for _, tid := range tids {
		dir := fmt.Sprintf("/proc/%d/task/%s/", r.pid, tid)
		files = append(files, dir+"schedstat")
		b, err := os.ReadFile(dir + "children")
		if os.IsNotExist(err) {
			continue // it has ended
		}
		if err != nil {
			return sum, err
		}
		for _, child := range strings.Fields(string(b)) {
			files = append(files, "/proc/"+child+"/schedstat")
		}
	}
	for _, name := range files {
		sum = sum.plus(readUsage(name))
	}
	return sum, nil
}

func tasks(pid int) (tids []string, err error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range all {
		tids = append(tids, e.Name())
	}
	return tids, err
}

// traced returns the traced threads of a process.
func traced(pid int) (tids []string) {
	all, _ := tasks(pid) // none if it has ended
	for _, tid := range all {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, tid))
		if err != nil {
			continue // it has ended
		}
		if !strings.Contains(string(b), "\nTracerPid:\t0\n") {
			tids = append(tids, tid)
		}
	}
	return tids
}
