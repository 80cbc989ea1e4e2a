// Command sliver shows what the threads of a running Linux process do, when, and why they
// wait, without changing or restarting it. This package parses command lines and connects
// the other packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/target"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2

	// As those of shells, env(1) and timeout(1), for a command that does not start.
	exitNotRun  = 126
	exitMissing = 127
)

// usageError is wrong usage: exit status 2, and a reference to the help.
type usageError struct {
	msg  string
	help string // the command whose help to refer to
}

func (e *usageError) Error() string { return e.msg }

func usagef(help, format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...), help: help}
}

// exitStatus is the exit status of a command, or of a program that it ran.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// released lets a command run to its end. Its exit status becomes this program's, unless err says that
// there is nothing to show of it.
func released(c *target.Command, err error) error {
	c.Release()
	status, werr := c.Wait()
	switch {
	case err != nil:
		return err
	case werr != nil:
		return werr
	case status != 0:
		return exitStatus(status)
	}
	return nil
}

// processOrCommand checks that a subcommand was given either a process or, after --, a command. flags are those that it
// needs for both, with a space before each.
func processOrCommand(ctx context.Context, name, flags string, pid onePID, args []string) error {
	switch d := dash(ctx); {
	case d > 0, d < 0 && len(args) > 0:
		return usagef(name, "unexpected %q; a command goes after --", args[0])
	case pid > 0 && len(args) > 0:
		return usagef(name, "both a process and a command given; choose one")
	case pid == 0 && len(args) == 0:
		return usagef(name, "give a process (sliver %[1]s -p PID%[2]s) or a command (sliver %[1]s%[2]s -- COMMAND ARGS...)", name, flags)
	}
	return nil
}

// command is one subcommand of sliver.
type command struct {
	name    string
	args    string // arguments in the usage line
	short   string
	help    string // examples and further notes
	flags   func(*pflag.FlagSet)
	run     func(ctx context.Context, e *env, args []string) error
	words   func() []string // completions of the first argument
	pids    bool            // its arguments are PIDs, which -p may give as well, as in record
	given   somePIDs        // PIDs given by -p
	files   bool            // it needs no other process: see caps.Files
	samples bool            // it samples threads: see checkTasks
}

// env holds a command's output streams.
type env struct {
	stdin  *os.File
	stdout *output
	stderr io.Writer

	damaged bool // parts of an input are lost
	lost    bool // and that is not accepted: exit status 1
}

// output is standard output that keeps the first write error, so that lost output never
// ends with exit status 0.
type output struct {
	*os.File
	lost error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if o.lost == nil {
		o.lost = err
	}
	return n, err
}

func commands() []*command {
	return []*command{recordCommand(), traceCommand(), ioCommand(), watchCommand(), dumpCommand(), recoverCommand(), lsCommand(),
		viewCommand(), exportCommand(), reportCommand(), sqlCommand(), hprofCommand(), heapCommand(), stackCommand(), topCommand(), threadsCommand(), demoCommand(), doctorCommand(),
		explainCommand(), completionCommand(), versionCommand()}
}

func main() {
	os.Exit(run(os.Args[1:], &env{stdin: os.Stdin, stdout: &output{File: os.Stdout}, stderr: os.Stderr}))
}

func run(args []string, e *env) int {
	boundMemory()
	err := dispatch(args, e)
	if err == nil {
		err = e.stdout.lost
	}
	if err != nil {
		err = underLimits(err)
	}
	var usage *usageError
	var status exitStatus
	var start *target.StartError
	switch {
	case err == nil && e.lost:
		return exitFailed
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		help := "sliver --help"
		if usage.help != "" {
			help = "sliver " + usage.help + " --help"
		}
		fmt.Fprintf(e.stderr, "sliver: %s (see '%s')\n", oneLine(err), help)
		return exitUsage
	}
	fmt.Fprintf(e.stderr, "sliver: %s\n", oneLine(err))
	switch {
	case errors.As(err, &start) && start.Missing():
		return exitMissing
	case start != nil:
		return exitNotRun
	}
	return exitFailed
}

// oneLine formats an error on one line, whatever target names it contains.
func oneLine(err error) string {
	return printable(strings.NewReplacer("\n", " ", "\r", " ").Replace(err.Error()))
}

func versionCommand() *command {
	return &command{
		name: "version", short: "print the version, the commit and the build settings",
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) > 0 {
				return usagef("version", "version takes no arguments")
			}
			writeVersion(e.stdout)
			return nil
		},
	}
}
