// A server of N threads under load: each takes a request, computes for some
// 200 µs in a few functions, and sleeps for a moment (100 µs, or what a second
// argument says, in µs) as one that waits for the next. Every 100 ms it prints how many requests it has served.
#include "prog.h"

static uint64_t served;
static long pause_ns = 100000;

FRAME void parse(unsigned k) {
	for (volatile unsigned i = 0; i < 20000 + k % 1000; i++)
		;
}
FRAME void compute(unsigned k) {
	for (volatile unsigned i = 0; i < 60000 + k % 5000; i++)
		;
}
FRAME void reply(unsigned k) {
	for (volatile unsigned i = 0; i < 10000 + k % 500; i++)
		;
}
FRAME void handle(unsigned k) {
	parse(k);
	compute(k);
	reply(k);
	__atomic_fetch_add(&served, 1, __ATOMIC_RELAXED);
}

static void *serve(void *arg) {
	for (unsigned k = (unsigned)(uintptr_t)arg;; k++) {
		handle(k);
		struct timespec t = {pause_ns / 1000000000, pause_ns % 1000000000};
		nanosleep(&t, NULL);
	}
	return NULL;
}

int main(int argc, char **argv) {
	long n = argc > 1 ? strtol(argv[1], NULL, 10) : 64;
	if (argc > 2)
		pause_ns = strtol(argv[2], NULL, 10) * 1000;
	prog_ready(0);
	for (long i = 0; i < n; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, serve, (void *)(uintptr_t)(i * 7919)))
			die("pthread_create");
	}
	for (;;) {
		struct timespec t = {0, 100000000};
		nanosleep(&t, NULL);
		printf("%" PRIu64 "\n", __atomic_load_n(&served, __ATOMIC_RELAXED));
		fflush(stdout);
	}
}
