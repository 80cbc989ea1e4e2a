// bursts LOOPS SECONDS: works for a moment of LOOPS additions, then makes a short system call, again and
// again, and accounts for its own CPU time. It never sleeps.
//
// How long the work takes beside the calls is measured by the work alone, in turns (rest). The last
// line of output is the truth, by CLOCK_THREAD_CPUTIME_ID, in the form of duty.c:
//
//	truth burn NS rest NS write NS total NS elapsed NS
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

enum { TURNS = 2000, ALONE = 500 };

static volatile unsigned long sink;
static char block[2048];
static int file;

static long now(int clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

NOINLINE static void burn(long loops) {
	for (long i = 0; i < loops; i++)
		sink += (unsigned long)i;
}

NOINLINE static void writes(void) {
	if (pwrite(file, block, sizeof block, 0) != sizeof block)
		abort();
}

NOINLINE static long mix(long loops) {
	long begin = now(CLOCK_THREAD_CPUTIME_ID);
	for (int i = 0; i < TURNS; i++) {
		burn(loops);
		writes();
	}
	return now(CLOCK_THREAD_CPUTIME_ID) - begin;
}

NOINLINE static long rest(long loops) {
	long begin = now(CLOCK_THREAD_CPUTIME_ID);
	for (int i = 0; i < ALONE; i++)
		burn(loops);
	return now(CLOCK_THREAD_CPUTIME_ID) - begin;
}

int main(int argc, char **argv) {
	if (argc != 3) {
		fprintf(stderr, "usage: bursts LOOPS SECONDS\n");
		return 2;
	}
	long loops = atol(argv[1]);
	file = memfd_create("bursts", MFD_CLOEXEC);
	if (file < 0) {
		perror("bursts");
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	long first = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID), end = first + (long)(atof(argv[2]) * 1e9);
	long burned = 0, wrote = 0, rested = 0;
	while (now(CLOCK_MONOTONIC) < end) {
		long all = mix(loops), alone = rest(loops), own = alone * (TURNS / ALONE);
		burned += own;
		wrote += all - own;
		rested += alone;
	}
	printf("truth burn %ld rest %ld write %ld total %ld elapsed %ld\n", burned, rested, wrote,
		now(CLOCK_THREAD_CPUTIME_ID) - cpu, now(CLOCK_MONOTONIC) - first);
	return 0;
}
