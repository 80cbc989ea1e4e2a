// Threads that take turns, as those of a pool: each works for some ms, in two functions, and wakes the next one. After
// "ready PID" and a line of input they begin; after another line it prints "shares NS NS", the CPU time of both functions,
// and waits for a last line.
//
//     inturn THREADS
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t *turn_cv;
static int count, turn = -1;
static long shares[2];
static volatile unsigned long sink;

static long cpu(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void work(long ns) {
	long from = cpu();
	do {
		for (int i = 0; i < 20000; i++)
			sink += i;
	} while (cpu() - from < ns);
}

__attribute__((noinline)) static void render(void) {
	work(3000000);
	__asm__ volatile("");
}

__attribute__((noinline)) static void query(void) {
	work(2000000);
	__asm__ volatile("");
}

static void *member(void *arg) {
	for (long self = (long)arg;;) {
		pthread_mutex_lock(&m);
		while (turn != self)
			pthread_cond_wait(turn_cv + self, &m);
		pthread_mutex_unlock(&m);
		long a = cpu();
		render();
		long b = cpu();
		query();
		long c = cpu();
		pthread_mutex_lock(&m);
		shares[0] += b - a;
		shares[1] += c - b;
		turn = (self + 1) % count;
		pthread_cond_signal(turn_cv + turn);
		pthread_mutex_unlock(&m);
	}
	return NULL;
}

int main(int argc, char **argv) {
	char line[16];
	pthread_t t;
	count = argc > 1 ? atoi(argv[1]) : 200;
	turn_cv = calloc(count, sizeof *turn_cv);
	for (long i = 0; i < count; i++) {
		pthread_cond_init(turn_cv + i, NULL);
		pthread_create(&t, NULL, member, (void *)i);
	}
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	pthread_mutex_lock(&m);
	turn = 0;
	pthread_cond_signal(turn_cv);
	pthread_mutex_unlock(&m);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	pthread_mutex_lock(&m);
	printf("shares %ld %ld\n", shares[0], shares[1]);
	fflush(stdout);
	pthread_mutex_unlock(&m);
	return !fgets(line, sizeof line, stdin);
}
