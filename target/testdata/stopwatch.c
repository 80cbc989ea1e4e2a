/* stopwatch MB [huge]: holds MB of memory in small or huge pages, and looks at the clock without end. For each line of
 * input it says the longest time in ns that passed between two looks since the line before. Ends with its input. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static atomic_long longest, looks;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void *look(void *unused)
{
	for (long last = now(), t; (t = now()) > 0; last = t) {
		if (t - last > atomic_load(&longest))
			atomic_store(&longest, t - last);
		atomic_fetch_add(&looks, 1);
	}
	return unused;
}

int main(int argc, char **argv)
{
	size_t n = (size_t)atoi(argv[1]) << 20;
	char *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED || madvise(m, n, argc > 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE))
		return 1;
	memset(m, 1, n);
	pthread_t t;
	if (pthread_create(&t, NULL, look, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	for (char line[64]; fgets(line, sizeof line, stdin);) {
		for (long n = atomic_load(&looks); atomic_load(&looks) < n + 2;) /* what was before is seen */
			sched_yield();
		printf("%ld\n", atomic_exchange(&longest, 0));
		fflush(stdout);
	}
	return 0;
}
