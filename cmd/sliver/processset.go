package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/target"
)

// setFlags choose processes by their names, groups and parents.
type setFlags struct {
	names, units, cgroups []string
	children              bool
}

// register adds the flags; does is what the command does with a process, and later says whether
// processes that start later are included.
func (f *setFlags) register(fs *pflag.FlagSet, does, later string) {
	fs.StringArrayVar(&f.names, "name", nil, does+" every process whose name matches (a glob or /regexp/)"+later+"; repeatable")
	fs.StringArrayVar(&f.units, "unit", nil, does+" the processes of this systemd unit"+later+"; repeatable")
	fs.StringArrayVar(&f.cgroups, "cgroup", nil, does+" the processes of this control group and those below it"+later+"; repeatable")
	fs.BoolVar(&f.children, "children", false, "also "+does+" all descendants"+later)
}

// matches reports whether processes are chosen by their names or groups.
func (f *setFlags) matches() bool { return len(f.names)+len(f.units)+len(f.cgroups) > 0 }

// noPID is the error of a command without a process.
const noPID = "give a process number"

// parsePIDs returns the distinct PIDs in args.
func parsePIDs(command string, args []string) (pids somePIDs, err error) {
	for _, a := range args {
		if err := pids.Set(a); err != nil {
			return nil, usagef(command, "%v", err)
		}
	}
	return pids, nil
}

// open opens the processes of args and those that the flags choose, at most most: the given ones
// first, then by age. The caller closes them.
func (f *setFlags) open(command string, args []string, most int) (procs []*target.Process, err error) {
	if len(args) == 0 && !f.matches() {
		return nil, usagef(command, noPID)
	}
	pids, err := parsePIDs(command, args)
	if err != nil {
		return nil, err
	}
	if len(pids) > most {
		return nil, usagef(command, "%d processes are too many at once; give %d at most", len(pids), most)
	}
	want := procset.Options{Children: f.children, Max: most, Once: true}
	var what []string
	if f.matches() {
		if want.Match, what, err = matching(command, f.names, f.units, f.cgroups); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			for _, p := range procs {
				p.Close()
			}
			procs = nil
		}
	}()
	for _, pid := range pids {
		p, err := target.Open(pid)
		if err != nil {
			return procs, explain(err)
		}
		procs = append(procs, p)
	}
	set := procset.New(want)
	defer set.Close()
	set.Take(procs...)
	more, err := set.Now()
	if err != nil {
		return procs, err
	}
	for _, m := range more {
		procs = append(procs, m.Process)
	}
	left := set.Left()
	switch {
	case len(procs) == 0 && left.Count > 0:
		return procs, fmt.Errorf("no process of %d can be read: %s", left.Count, strings.Join(left.Lines(), "; "))
	case len(procs) == 0:
		return procs, fmt.Errorf("there is no %s%s", strings.Join(what, " or "), others(want.Match, f.names))
	case left.Seen > most:
		return procs, usagef(command, "%d processes are too many at once; choose %d at most", left.Seen, most)
	}
	return procs, nil
}
