// renames: a thread of a pool that takes the name of each kind of work, sleeps for a moment and works:
// in encode() as "pool: encode", in scan() as "pool: scan".
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static long cpu_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void spin(void) {
	for (long end = cpu_ms() + 200; cpu_ms() < end;)
		for (int i = 0; i < 100000; i++)
			sink++;
}

__attribute__((noinline)) void encode(void) {
	spin();
	sink++;
}

__attribute__((noinline)) void scan(void) {
	spin();
	sink++;
}

static void *pool(void *arg) {
	for (;;) {
		pthread_setname_np(pthread_self(), "pool: encode");
		usleep(50000);
		encode();
		pthread_setname_np(pthread_self(), "pool: scan");
		usleep(50000);
		scan();
	}
	return arg;
}

int main(void) {
	pthread_t t;
	pthread_create(&t, 0, pool, 0);
	printf("ready %d\n", getpid());
	fflush(stdout);
	pthread_join(t, 0);
	return 0;
}
