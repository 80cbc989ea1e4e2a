// deadmain: the first thread ends by pthread_exit(3), the others go on: one computes in
// outlives(), one sleeps, and with the argument "short" a third ends a second later.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void outlives(void) {
	for (;;)
		sink++;
}

static void *computes(void *arg) {
	outlives();
	return arg;
}

static void *sleeps(void *arg) {
	for (;;)
		pause();
	return arg;
}

static void *ends(void *arg) {
	sleep(1);
	return arg;
}

int main(int argc, char **argv) {
	pthread_t t;
	if (argc > 1 && !strcmp(argv[1], "short")) // created first
		pthread_create(&t, 0, ends, 0);
	pthread_create(&t, 0, sleeps, 0);
	pthread_create(&t, 0, computes, 0);
	printf("ready %d\n", getpid());
	fflush(stdout);
	pthread_exit(0);
}
