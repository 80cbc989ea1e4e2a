// Threads that come and go: --live N at a time, each named churn-K and ended
// after 1 to 20 ms of spinning or sleeping. Options: --live N, --seconds N,
// --seed N, --wait-go. Prints {"threads":N}: how many there were.
#include "prog.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static uint64_t live;

FRAME void churn_body(uint64_t ticket) {
	uint64_t us = 1000 + ticket % 19001;
	if (ticket & 1 << 20)
		prog_spin(prog_now() + us * 1000);
	else
		nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
	__asm__ volatile("" ::: "memory");
}

static void *churner(void *arg) {
	churn_body((uint64_t)(uintptr_t)arg);
	pthread_mutex_lock(&mutex);
	live--;
	pthread_cond_signal(&ended);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

int main(int argc, char **argv) {
	uint64_t most = 8, seconds = 1, seed = 1, made = 0;
	int wait_go = 0;
	static const struct option longs[] = {
	    {"live", 1, 0, 'n'}, {"seconds", 1, 0, 's'}, {"seed", 1, 0, 'r'}, {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (c) {
		case 'n': most = prog_number(optarg); break;
		case 's': seconds = prog_number(optarg); break;
		case 'r': seed = prog_number(optarg); break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	if (optind != argc || most < 1 || most > 1000)
		return 2;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 128 << 10);
	prog_ready(wait_go);
	uint64_t end = prog_now() + seconds * 1000000000u, state = seed * 0x9E3779B97F4A7C15u | 1;
	pthread_mutex_lock(&mutex);
	while (prog_now() < end) {
		while (live >= most)
			pthread_cond_wait(&ended, &mutex);
		state ^= state >> 12;
		state ^= state << 25;
		state ^= state >> 27;
		pthread_t thread;
		if (pthread_create(&thread, &attr, churner, (void *)(uintptr_t)(state >> 20 & 0x1fffff)))
			die("pthread_create");
		char name[16];
		snprintf(name, sizeof name, "churn-%u", (unsigned)(made % 1000000));
		pthread_setname_np(thread, name); // it cannot end before the mutex is let go
		live++;
		made++;
	}
	while (live > 0)
		pthread_cond_wait(&ended, &mutex);
	pthread_mutex_unlock(&mutex);
	printf("{\"threads\":%" PRIu64 "}\n", made);
	return 0;
}
