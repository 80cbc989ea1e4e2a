// Threads that take turns with one lock. Usage: contend KIND THREADS SECONDS;
// KIND is normal, recursive, robust, pi or rwlock (whose writers they are).
// Prints {"lock":"0x…","threads":[TID,…]}, begins after a line of standard
// input, and at the end prints {"turns":[[TID,wanted,got,left],…]} in ns of
// CLOCK_MONOTONIC: from wanted to got it waited, from got to left it held the
// lock.
#include "prog.h"

enum { MAX_THREADS = 16, MAX_TURNS = 20000 };

static pthread_mutex_t mutex;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int rw;
static pthread_barrier_t begin;
static uint64_t seconds;
static struct worker {
	int tid, n;
	struct {
		uint64_t wanted, got, left;
	} turns[MAX_TURNS];
} workers[MAX_THREADS];

static void *work(void *arg) {
	struct worker *me = (struct worker *)arg;
	unsigned seed = (unsigned)(me - workers) + 1;
	__atomic_store_n(&me->tid, prog_tid(), __ATOMIC_RELEASE);
	pthread_barrier_wait(&begin);
	uint64_t end = prog_now() + seconds * 1000000000u;
	for (me->n = 0; me->n < MAX_TURNS && prog_now() < end; me->n++) {
		uint64_t wanted = prog_now();
		if (rw)
			pthread_rwlock_wrlock(&rwlock);
		else
			pthread_mutex_lock(&mutex);
		me->turns[me->n].wanted = wanted;
		me->turns[me->n].got = prog_now();
		struct timespec t = {0, 200000 + (long)(rand_r(&seed) % 3000000)};
		if (rand_r(&seed) % 2)
			nanosleep(&t, NULL);
		else
			prog_spin(prog_now() + (uint64_t)t.tv_nsec / 4);
		me->turns[me->n].left = prog_now();
		if (rw)
			pthread_rwlock_unlock(&rwlock);
		else
			pthread_mutex_unlock(&mutex);
		if (rand_r(&seed) % 4 == 0)
			nanosleep(&t, NULL);
	}
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	int n = (int)prog_number(argv[2]);
	seconds = prog_number(argv[3]);
	if (n < 2 || n > MAX_THREADS)
		return 2;
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	if (!strcmp(argv[1], "recursive"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	else if (!strcmp(argv[1], "robust"))
		pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	else if (!strcmp(argv[1], "pi"))
		pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	else if (!strcmp(argv[1], "rwlock"))
		rw = 1;
	pthread_mutex_init(&mutex, &a);
	pthread_barrier_init(&begin, NULL, (unsigned)n + 1);
	prog_ready(0);
	pthread_t t[MAX_THREADS];
	for (int i = 0; i < n; i++) {
		if (pthread_create(&t[i], NULL, work, &workers[i]))
			die("pthread_create");
		while (!__atomic_load_n(&workers[i].tid, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	printf("{\"lock\":\"%p\",\"threads\":[", rw ? (void *)&rwlock : (void *)&mutex);
	for (int i = 0; i < n; i++)
		printf("%s%d", i ? "," : "", workers[i].tid);
	printf("]}\n");
	fflush(stdout);
	prog_await();
	pthread_barrier_wait(&begin);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	printf("{\"turns\":[");
	for (int i = 0, first = 1; i < n; i++)
		for (int j = 0; j < workers[i].n; j++, first = 0)
			printf("%s[%d,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", first ? "" : ",", workers[i].tid, workers[i].turns[j].wanted,
			       workers[i].turns[j].got, workers[i].turns[j].left);
	printf("]}\n");
	return 0;
}
