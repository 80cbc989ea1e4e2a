/* Threads that run, 20 calls deep: busy N. Then "busy". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile long sink[1024];

static __attribute__((noinline)) long leaf(long n, long k)
{
	long s = 0;
	for (long i = 0; i < n; i++)
		s += i ^ k;
	return s;
}

static __attribute__((noinline)) long deep(int d, long k)
{
	long v = d > 0 ? deep(d - 1, k) : leaf(20000, k);
	return v + 1;
}

static void *work(void *a)
{
	long k = (long)a;
	for (;;)
		sink[16 * (k % 64)] += deep(20, k);
	return NULL;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 10;
	for (long i = 0; i < n; i++) {
		pthread_t t;
		char name[16];
		snprintf(name, sizeof name, "busy-%ld", i);
		if (pthread_create(&t, NULL, work, (void *)i))
			return 1;
		pthread_setname_np(t, name);
	}
	puts("busy");
	fflush(stdout);
	getchar();
	return 0;
}
