package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// topic is a word of sliver's outputs with what it means and what a user can do about it.
type topic struct {
	name  string
	about string
}

// topicGroup is the topics of one place in the outputs.
type topicGroup struct {
	title  string
	topics []topic
}

// topics returns all that 'sliver explain' knows.
func topics() []topicGroup {
	reason := func(r stack.Reason, about string) topic { return topic{r.String(), about} }
	why := func(w stack.Why, about string) topic { return topic{w.String(), about} }
	state := func(s stack.State, about string) topic { return topic{s.String(), about} }
	return []topicGroup{
		{"Frames in brackets: the stack above them is right, what called it is missing", []topic{
			reason(stack.ReasonShort, "The stack is larger than the part that was copied. sliver copies more at the next sample of the thread; frames are missing only where it grows quickly."),
			reason(stack.ReasonNoRule, "No unwinding information covers the address: hand-written assembly, generated code, or a program stripped of .eh_frame. Install the package's debug symbols, or compile with -fno-omit-frame-pointer or -fasynchronous-unwind-tables."),
			reason(stack.ReasonUnmapped, "The return address is in no known mapping: generated code, code that was unloaded since, or a stack that is being changed at that moment. For code of a JIT compiler that sliver does not know, only native frames above it are shown."),
			reason(stack.ReasonRegister, "The unwinding information needs a register whose value is not known that far out. It happens in hand-written assembly and in functions that do not return."),
			reason(stack.ReasonMemory, "A word of the stack could not be read: the thread went on, or the memory was unmapped. In the first moments of a program in Python or another such language, its frames are not known yet."),
			reason(stack.ReasonLoop, "The stack pointer would not rise from one frame to the next: the unwinding information is wrong there, or the stack is damaged."),
			reason(stack.ReasonCorrupt, "The unwinding tables of the file are damaged, or the file on disk is another one than the one that runs. Restart the program after its package was updated."),
			reason(stack.ReasonEmpty, "No part of the stack could be read, for example since the process ended."),
			reason(stack.ReasonHeap, "Frames of a Java virtual thread that lie in the heap, and that could not be read: the thread was about to move them."),
			reason(stack.ReasonNull, "A return address of 0 before the end of the stack. Some programs mark the beginning of a coroutine so; then nothing is missing."),
			reason(stack.ReasonDeep, "The stack has more frames than one stack may have: endless recursion, in most cases. The innermost frames are shown."),
			reason(stack.ReasonParent, "Below this frame are the functions of the greenlet or coroutine that started the present one; those between are not on this stack."),
			reason(stack.ReasonBound, "The runtime's own list of frames is longer than sliver reads of one stack. The innermost are shown."),
			reason(stack.ReasonKernel, "The thread used CPU time in a system call or page fault. With a kernel.perf_event_paranoid of 2, CPU clocks see threads in their own code alone, and no stop showed the call."),
		}},
		{"Gaps: times without samples, in which the timeline shows the last sample", []topic{
			why(stack.WhyLate, "Samples came too late, since the machine was busy or the thread had no CPU. Record fewer threads (-t), or use a longer interval (-i)."),
			why(stack.WhyTimeout, "The thread did not stop in time: it was in uninterruptible sleep, or had no CPU for long."),
			why(stack.WhyTraced, "A debugger or strace holds the thread. Only one tracer can stop a thread at a time; --yield leaves the process to it."),
			why(stack.WhyExec, "The process became another program by exec. The recording goes on with the new one."),
			why(stack.WhyLost, "The thread made events faster than they were written, so that old ones were overwritten. Use a longer interval, or write to a faster disk."),
			why(stack.WhyDenied, "The kernel refused access to the thread. 'sliver doctor PID' says what is missing."),
			why(stack.WhyStopped, "Someone paused the recording on the page."),
			why(stack.WhyBudget, "The interval was stretched so that the cost stays within --max-overhead. A larger limit gives more samples; 0 removes it."),
			why(stack.WhyGone, "The thread ended."),
			why(stack.WhyUnreadable, "The registers were read, but not the stack."),
			why(stack.WhyTrigger, "A rule of 'sliver watch' matched at this time, which is why the recording was kept."),
		}},
		{"States of a thread", []topic{
			state(stack.StateRunning, "The thread was on a CPU, in its own code or in the kernel on its behalf. The time is the scheduler's account."),
			state(stack.StateRunnable, "The thread could run and waited for a CPU. Much of it means more busy threads than CPUs, or a CPU limit of the control group."),
			state(stack.StateBlocked, "The thread slept: for a lock, for input, for a timer. Its waits say for what."),
			state(stack.StateDisk, "Uninterruptible sleep, \"disk sleep\" in a report: the kernel waits for a device or a file system. Signals, and stops, wait too."),
			state(stack.StateFault, "The thread touched memory that the kernel had to fetch: from a file, from swap, or from another process."),
			state(stack.StateStopped, "A signal such as SIGSTOP stopped the process, or the freezer of its control group does, as with docker pause."),
			state(stack.StateTraced, "Another tracer holds the thread."),
			state(stack.StateDead, "The thread has ended."),
		}},
		{"Words of the summary and the views", []topic{
			{trace.NotSampled, "CPU time of a thread in which no sample found it on a CPU: bursts shorter than some 20 µs, or threads that ran less than one interval. It is counted, but its functions are not known."},
			{"idle waits", "Time in which a thread had nothing to do: pools without work, event loops without events, helper threads of a runtime. Views that rank leave it out and say how much; --idle counts it."},
			{"samples by a stop", "The thread was suspended for some microseconds, and its registers and stack were copied."},
			{"samples of threads that had not run", "The thread had no CPU since its last sample, so its stack is still the same: it was not stopped."},
			{"samples read while blocked", "The stack of a blocked thread was read without stopping it. A thread that woke meanwhile is recognized by its counters, and the sample is discarded."},
			{"samples by a CPU clock", "A clock of the kernel, which runs while the thread is on a CPU, copied its registers and stack once per interval: no stop, and no delay until the end of a system call. Threads of C, C++, Rust, Java and Node that use a CPU get one where the kernel allows it (root, CAP_PERFMON, or kernel.perf_event_paranoid of 1 or less; with 2, stops show their system calls); --engine=ptrace uses none."},
			{"pauses", "How long stopped threads stood. The distribution is measured at each stop."},
			{"cost", "CPU time of sliver itself as a share of all CPUs, and the time that the process stood. --max-overhead limits both."},
			{"inferred holder", "The thread that most likely holds a lock: its stack shows that it took it. Locks whose memory names the holder are marked as known."},
		}},
	}
}

func explainCommand() *command {
	return &command{
		name: "explain", args: "[TOPIC]", short: "explain a word of sliver's output, such as a frame in brackets",
		help: `
TOPIC is a word or a part of one, with or without brackets. Without it, all
topics are listed.

Examples:
  sliver explain
  sliver explain no unwind rule
  sliver explain '[overhead budget]'`,
		words: func() (out []string) {
			for _, g := range topics() {
				for _, t := range g.topics {
					out = append(out, t.name)
				}
			}
			return out
		},
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) == 0 {
				listTopics(e.stdout)
				return nil
			}
			found := topicsOf(strings.Join(args, " "))
			if len(found) == 0 {
				return usagef("explain", "no topic matches %q; 'sliver explain' lists all", strings.Join(args, " "))
			}
			for i, t := range found {
				if i > 0 {
					fmt.Fprintln(e.stdout)
				}
				fmt.Fprintf(e.stdout, "%s\n  %s\n", t.name, wrap(t.about, 78, "  "))
			}
			return nil
		},
	}
}

// topicsOf returns the topics that a word names: the one with exactly that name, otherwise all that contain it,
// otherwise those of groups with it in their title, otherwise those with it in their text.
func topicsOf(word string) (found []topic) {
	word = bareTopic(word)
	for _, g := range topics() {
		for _, t := range g.topics {
			switch name := bareTopic(t.name); {
			case name == word:
				return []topic{t}
			case strings.Contains(name, word) && word != "":
				found = append(found, t)
			}
		}
	}
	if len(found) > 0 || word == "" {
		return found
	}
	for _, g := range topics() {
		if strings.Contains(strings.ToLower(g.title), word) {
			found = append(found, g.topics...)
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, g := range topics() {
		for _, t := range g.topics {
			if strings.Contains(strings.ToLower(t.about), word) {
				found = append(found, t)
			}
		}
	}
	return found
}

// bareTopic removes what outputs put around a topic: brackets, "gap: " and "frames are missing: ".
func bareTopic(s string) string {
	s = strings.ToLower(strings.Trim(strings.TrimSpace(s), "[]()"))
	if i := strings.LastIndex(s, ": "); i >= 0 {
		s = s[i+2:]
	}
	return strings.TrimSpace(s)
}

func listTopics(w io.Writer) {
	for i, g := range topics() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s:\n", g.title)
		for _, t := range g.topics {
			fmt.Fprintf(w, "  %s\n", t.name)
		}
	}
}
