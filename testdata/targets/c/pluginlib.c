// A plugin for reload.c: run() computes for 60 ms of CPU time in WORK.
#include <time.h>

#ifndef WORK
#define WORK work_a
#endif

static volatile unsigned long sink;

static long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) void WORK(void) {
	for (long end = now() + 60000000; now() < end;)
		for (int i = 0; i < 100000; i++)
			sink += i;
}

void run(void) {
	WORK();
	sink++;
}
