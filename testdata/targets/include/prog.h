// Common code of the C and C++ target programs: the clock, the start
// signal, and a few helpers. Included by one file per program.
#ifndef PROG_H
#define PROG_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

// Not inlined, not cloned, nothing known about it at its call sites: one
// function, one frame, whatever the optimisation.
#define FRAME __attribute__((noipa))
#define INLINE static inline __attribute__((always_inline, unused))
#define MAYBE_UNUSED __attribute__((unused))

static MAYBE_UNUSED void die(const char *what) {
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(3);
}

// prog_now is CLOCK_MONOTONIC in ns, by the vDSO.
INLINE uint64_t prog_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// prog_spin keeps the CPU busy until the deadline and returns how often it looked.
INLINE uint64_t prog_spin(uint64_t deadline) {
	uint64_t loops = 0;
	while (prog_now() < deadline) {
		for (int i = 0; i < 1000; i++)
			__asm__ volatile("");
		loops++;
	}
	return loops;
}

static MAYBE_UNUSED int prog_tid(void) { return (int)syscall(SYS_gettid); }

// prog_await reads one line of standard input. Its end means that whoever
// started the program is gone.
static MAYBE_UNUSED void prog_await(void) {
	char c = 0;
	while (c != '\n') {
		ssize_t n = read(0, &c, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			exit(3);
	}
}

// prog_ready reports that the program is set up, lets any process of the same
// user trace it (Yama), and waits for a line to continue if `wait` is set.
static MAYBE_UNUSED void prog_ready(int wait) {
	prctl(PR_SET_PTRACER, -1ul, 0, 0, 0);
	if (!wait)
		return;
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	prog_await();
}

static MAYBE_UNUSED uint64_t prog_number(const char *s) {
	char *end;
	errno = 0;
	uint64_t v = strtoull(s, &end, 10);
	if (errno || end == s || *end) {
		fprintf(stderr, "not a number: %s\n", s);
		exit(2);
	}
	return v;
}
#endif
