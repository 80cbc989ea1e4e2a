/*
 * clock: a thread that only reads the clock, 30 frames deep, and sums
 * the gaps: time in which something else ran, or in which it was stopped.
 *
 *   cc -O2 -pthread -o clock clock.c
 *   clock FILE [THREADS]
 *
 * The sums are in FILE, mapped and shared, as 64-bit words: ns lost, gaps,
 * longest gap in ns, rounds of the loop. Further threads sleep 100 ms at a time,
 * as deep. Ends with its parent process.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define FRAMES 27 /* and one more, the loop, and main or the start of the thread: 30 */
#define GAP 1000  /* ns: some 20 times what one round takes */

static volatile uint64_t *sums;

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static __attribute__((noinline)) void watch(void)
{
	for (uint64_t last = now();;) {
		uint64_t t = now(), gap = t - last;
		if (gap > GAP) {
			sums[0] += gap;
			sums[1]++;
			if (gap > sums[2])
				sums[2] = gap;
		}
		sums[3]++;
		last = t;
	}
}

static __attribute__((noinline)) void doze(void)
{
	for (;;)
		usleep(100000);
}

static __attribute__((noinline)) void deep(int n, void (*leaf)(void))
{
	if (n)
		deep(n - 1, leaf);
	else
		leaf();
	__asm__ volatile("" ::: "memory"); /* no tail call */
}

static void *sleeper(void *arg)
{
	deep(FRAMES, doze);
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;
	int n = argc > 2 ? atoi(argv[2]) : 1;
	int fd = argc > 1 ? open(argv[1], O_RDWR) : -1;
	if (fd < 0 || ftruncate(fd, 4096) ||
	    (sums = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
		perror("clock: FILE");
		return 1;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 1; i < n; i++)
		if (pthread_create(&t, 0, sleeper, 0))
			return 1;
	deep(FRAMES, watch);
	return 0;
}
