package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/oneshot"
)

// exitDeadlock is the exit status of stack --fail-on-deadlock if there is one.
const exitDeadlock = 3

// maxStackPIDs limits the processes of one call of stack: each needs open files for its
// threads.
const maxStackPIDs = 64

// stackFlags are the flags of stack.
type stackFlags struct {
	threads  string
	json     bool
	fail     bool
	routines bool
	full     bool
	address  bool
	kinds    kindFlags
	names    nameFlags
	set      setFlags
}

func stackCommand() *command {
	f := &stackFlags{}
	return &command{
		name: "stack", args: "[FLAGS] PID...", short: "print what each thread does now, its wait and the holder",
		pids: true,
		flags: func(fs *pflag.FlagSet) {
			fs.StringVarP(&f.threads, "threads", "t", "all", threadsUsage)
			fs.BoolVar(&f.json, "json", false, "print JSON (docs/stack-json.md), a document for each process")
			fs.BoolVar(&f.fail, "fail-on-deadlock", false, "exit with status 3 if there is a deadlock")
			fs.BoolVar(&f.routines, "goroutines", false, "also show the goroutines of a Go program, with their waits and creators; read without a stop")
			fs.BoolVar(&f.full, "full", false, "show each call of a recursion, the frames of interpreters, and whole paths")
			fs.BoolVar(&f.address, "addresses", false, "show the address of each frame")
			f.set.register(fs, "show", "")
			f.kinds.register(fs)
			f.names.register(fs, "")
		},
		help: `
One look at every thread: its state, the system call with what its arguments
mean, the lock it waits for, its holder, and its stack with lines. At the end
deadlocks, and locks that many threads queue for. Sleeping threads are read
without a stop, running ones stopped once, for well under a millisecond.

Recursion is shown in one line, and paths relative to the program's folder. In
stacks of ` + managedLanguages() + `, the interpreter's own frames are
counted and not shown: --full, --native=on and --kinds show them.

Deadlocks are looked for among all threads, whatever --threads selects. Where
processes share locks, give all of them.

Examples:
  sliver stack 1234
  sliver stack -t main,'worker-*' 1234
  sliver stack --json 1234 | jq '.threads[] | select(.wait.kind == "lock")'
  sliver stack --children $(pidof -s nginx)            a server with its workers
  sliver stack --goroutines $(pidof server)            a Go program's goroutines
  sliver stack --fail-on-deadlock $(pidof server)      exit status 3: deadlock`,
		run: f.run,
	}
}

func (f *stackFlags) run(_ context.Context, e *env, args []string) error {
	sel, err := sampler.ParseSelection(f.threads)
	if err != nil {
		return usagef("stack", "%v", err)
	}
	if err := f.kinds.parse("stack"); err != nil {
		return err
	}
	procs, err := f.set.open("stack", args, maxStackPIDs)
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range procs {
			p.Close()
		}
	}()
	more, err := f.names.sources("stack", e.stderr)
	if err != nil {
		return err
	}
	snaps, problems, err := oneshot.Take(procs, oneshot.Options{Selection: sel, DebugDirs: f.names.debugDirs, FullNames: f.names.fullNames,
		Finder: more.finder, Cache: more.cache, Routines: f.routines, Urgent: true})
	if err != nil {
		var none *oneshot.NoThreadsError
		if errors.As(err, &none) {
			return noThreads(f.threads, none.Process)
		}
		return explain(err)
	}
	deadlock := false
	for i, s := range snaps {
		deadlock = deadlock || len(s.Deadlocks) > 0
		if f.kinds.any() {
			s.Only(f.kinds.only.Has)
		}
		s.Full, s.Natives, s.Addresses = f.full, f.kinds.given(), f.address
		if f.json {
			err = s.WriteJSON(e.stdout)
		} else {
			if i > 0 {
				fmt.Fprintln(e.stdout)
			}
			err = s.WriteText(e.stdout)
		}
		if err != nil {
			return fmt.Errorf("write the stacks: %w", err)
		}
	}
	for _, p := range problems {
		fmt.Fprintf(e.stderr, "sliver: %s\n", printable(p))
	}
	if deadlock && f.fail {
		return exitStatus(exitDeadlock)
	}
	return nil
}
