// A pool whose threads have nothing to do, and a thread that waits for an
// answer by the same means as the pool. It prints a line when all wait.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_cv = PTHREAD_COND_INITIALIZER, answer_cv = PTHREAD_COND_INITIALIZER;
static int jobs, answers;

static void *work(void *arg) {
	pthread_mutex_lock(&m);
	for (;;) {
		while (jobs == 0)
			pthread_cond_wait(&work_cv, &m);
		jobs--;
	}
	return arg;
}

__attribute__((noinline)) static int call_server(void) {
	pthread_mutex_lock(&m);
	while (answers == 0)
		pthread_cond_wait(&answer_cv, &m);
	pthread_mutex_unlock(&m);
	return answers;
}

static void *ask(void *arg) {
	for (int n = 0;; n += call_server())
		;
	return arg;
}

int main(void) {
	pthread_t t;
	for (int i = 0; i < 4; i++)
		pthread_create(&t, NULL, work, NULL);
	pthread_create(&t, NULL, ask, NULL);
	usleep(100000);
	puts("{}");
	fflush(stdout);
	for (;;) {
		struct timespec rest = {0, 5000000};
		nanosleep(&rest, NULL);
	}
}
