/*
 * cost: how long calls of a traced function take in this process.
 *
 *   cost WINDOW_MS
 *
 * For each line of input it calls traced() for a window of that many milliseconds and prints
 * "call NS elapsed NS calls N": the CPU time and the time on the clock of a call, on average,
 * and how many calls there were.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

long traced(long x); /* in a file of its own, so that a tool's way of compiling it changes nothing else */

static uint64_t now(clockid_t c)
{
	struct timespec t;
	clock_gettime(c, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	uint64_t window = strtoull(argv[1], NULL, 10) * 1000000;
	char line[64];
	long sum = 0;
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		uint64_t begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID), calls = 0, t;
		do {
			for (int i = 0; i < 100; i++)
				sum += traced(sum);
			calls += 100;
			t = now(CLOCK_MONOTONIC);
		} while (t - begin < window);
		cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
		printf("call %.1f elapsed %.1f calls %llu\n", (double)cpu / calls, (double)(t - begin) / calls, (unsigned long long)calls);
		fflush(stdout);
	}
	return sum == 42;
}
