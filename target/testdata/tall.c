/* tall: a thread that runs with 300 KiB of stack in use; says its TID; ends with its input. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int enough; /* it never is */

/* Each call has some 480 bytes of its own, as a frame of an interpreter has. */
static __attribute__((noinline)) int tall(int n, int *ready)
{
	volatile uint64_t kept[56];
	for (int i = 0; i < 56; i++)
		kept[i] = (uint64_t)n * 56 + i;
	if (n == 0) {
		__atomic_store_n(ready, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
		while (!enough)
			kept[0]++;
		return 0;
	}
	return tall(n - 1, ready) + (int)kept[n % 56];
}

static void *run(void *p)
{
	return (void *)(intptr_t)tall(640, p);
}

int main(void)
{
	int tid = 0;
	pthread_t t;
	if (pthread_create(&t, 0, run, &tid))
		return 1;
	while (!__atomic_load_n(&tid, __ATOMIC_SEQ_CST))
		usleep(100);
	printf("%d\n", tid);
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
