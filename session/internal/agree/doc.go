// Package agree compares sliver's stacks with those of eu-stack and gdb, for real
// programs at work: Redis, nginx, PostgreSQL, SQLite's shell, CPython, Node, gcc's
// cc1plus, a go build. It contains only tests.
//
// A process is stopped as a whole (SIGSTOP). Each of its threads is sampled the way a
// recording does it, then each oracle attaches in turn, then the threads are sampled
// again. A thread that moved in between is omitted and counted.
//
// Two frames are equal if their PCs are: the leaf's next instruction, and return
// addresses above it. That is stricter than the same function. Frames that an oracle
// derives from debug information (inlined and tail calls) are not physical, and are
// omitted. Two stacks are aligned by their longest common subsequence; its length counts
// as equal, out of the length of the longer stack. A frame that either side lacks or that
// differs counts against sliver, and so does everything missing when sliver ends early.
//
// Two cases are not compared to their end, and counted. "early": the oracle reports that
// it cannot continue, or its next address is in no executable mapping (without call frame
// information, as in V8's code, gdb guesses). Our frames beyond do not count ("beyond" is
// their sum). "known": ends of Go stacks on which sliver differs on purpose, see excuse.
// In both cases the stacks must agree at the last frame that counts.
//
// For programs in Python and Go, the results of py-spy and delve are compared as well:
// function, file and line of each frame (peers_test.go).
//
// In all other cases, a frame on which the oracle is wrong and sliver is right counts
// against sliver.
package agree
