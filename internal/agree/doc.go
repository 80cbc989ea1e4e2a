// Package agree holds our stacks against those of eu-stack and gdb, over real
// programs at work: Redis, nginx, PostgreSQL, SQLite's shell, CPython, Node,
// gcc's cc1plus, a go build. It is a test; there is nothing to import.
//
// A process is stopped as a whole (SIGSTOP). Each of its threads is sampled the
// way a recording does it, then each oracle attaches in turn, then the threads
// are sampled again: one that moved meanwhile is left out, and counted.
//
// Two frames are equal if their PCs are: the leaf's next instruction, and
// return addresses above it. That is stricter than the same function. Frames
// that an oracle makes up from debug information (inlined and tail calls) are
// none of the stack's own, and are left out. Two stacks are aligned by their
// longest common subsequence; its length counts as equal, out of the length of
// the longer stack: a frame that either side lacks, or has another of, counts
// against us, and so does all that is missing where we end early.
//
// Two cases are not compared to their end, and counted. "early": the oracle says
// itself that it cannot go on, or its next address lies in no executable mapping
// (without call frame information, as in V8's code, gdb guesses); what we have
// beyond does not count ("beyond" adds up these frames). "known": ends of Go
// stacks on which we differ on purpose, see excuse. In both cases the stacks have
// to agree at the last frame that counts.
//
// Of programs in Python and Go, what py-spy and delve say is compared as well: function,
// file and line of each frame (peers_test.go).
//
// For the rest, a frame on which an oracle is wrong and we are right counts
// against us.
package agree
