// Three threads, each of which holds one of three mutexes and waits for the next
// one's: a real deadlock. Prints {"threads":[TID,…],"locks":["0x…",…]};
// threads[i] holds locks[i] and waits for locks[i+1]. It ends when its standard
// input closes.
#include "prog.h"

enum { N = 3 };

pthread_mutex_t ring[N];
static pthread_barrier_t all_hold;
static int tids[N];

FRAME void lock_next(int i) {
	pthread_mutex_lock(&ring[(i + 1) % N]);
	abort(); // no thread releases its lock
}

static void *link_main(void *arg) {
	int i = (int)(intptr_t)arg;
	tids[i] = prog_tid();
	pthread_mutex_lock(&ring[i]);
	pthread_barrier_wait(&all_hold);
	lock_next(i);
	return NULL;
}

int main(void) {
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK); // all libcs keep an owner then
	pthread_barrier_init(&all_hold, NULL, N + 1);
	prog_ready(0);
	for (int i = 0; i < N; i++)
		pthread_mutex_init(&ring[i], &a);
	for (int i = 0; i < N; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, link_main, (void *)(intptr_t)i))
			die("pthread_create");
	}
	pthread_barrier_wait(&all_hold);
	printf("{\"threads\":[%d,%d,%d],\"locks\":[\"%p\",\"%p\",\"%p\"]}\n", tids[0], tids[1], tids[2], (void *)&ring[0],
	       (void *)&ring[1], (void *)&ring[2]);
	fflush(stdout);
	prog_await();
	_exit(0);
}
