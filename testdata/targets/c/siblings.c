// Threads that sleep in the same call with the same stack pointer, called by two functions
// in turn: only the return addresses distinguish them. Options: a number of
// threads beside main, 40 by default. They are called t0 (main), t1, … before the program is ready; main
// waits for a line then.
// Runs until it is killed.
#include "prog.h"

FRAME int slumber(long ms) {
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	int r = nanosleep(&t, NULL);
	return r + (t.tv_nsec == 1);
}

FRAME int first(void) { return slumber(60) + 1; }
FRAME int second(void) { return slumber(60) + 2; }

static pthread_barrier_t named;

static void *turns(void *arg) {
	char name[16];
	snprintf(name, sizeof name, "t%d", (int)(intptr_t)arg);
	prctl(PR_SET_NAME, name);
	pthread_barrier_wait(&named);
	if (!arg)
		prog_ready(1);
	for (volatile int n = 0;; n += first() + second())
		;
	return NULL;
}

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 40;
	pthread_t t;
	if (pthread_barrier_init(&named, NULL, (unsigned)n + 1))
		die("pthread_barrier_init");
	for (int i = 0; i < n; i++)
		if (pthread_create(&t, NULL, turns, (void *)(intptr_t)(i + 1)))
			die("pthread_create");
	turns((void *)0);
	return 0;
}
