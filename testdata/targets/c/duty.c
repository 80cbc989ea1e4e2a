// duty REST BURN_US REST_US SECONDS [WRITE_US]: works and rests in turns, and accounts for its own CPU time.
//
// REST is how it rests: nanosleep, pipe, futex or cond; the last three are woken by
// a second thread after REST_US. With WRITE_US, each turn also writes to /dev/urandom
// until its CPU clock has advanced by that much, work that the kernel does for a call.
// The last line of output is the truth, by CLOCK_THREAD_CPUTIME_ID of the thread "main":
//
//	truth burn NS rest NS write NS total NS elapsed NS
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static long now(int clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static volatile unsigned long sink;
static long burned, rested, wrote;
static int device;
static char block[512];

NOINLINE static void burn(long ns) {
	long begin = now(CLOCK_THREAD_CPUTIME_ID), end = begin + ns, t;
	while ((t = now(CLOCK_THREAD_CPUTIME_ID)) < end)
		for (int i = 0; i < 2000; i++)
			sink += i;
	burned += t - begin;
}

NOINLINE static void writes(long ns) {
	long begin = now(CLOCK_THREAD_CPUTIME_ID), end = begin + ns, t;
	while ((t = now(CLOCK_THREAD_CPUTIME_ID)) < end)
		if (write(device, block, sizeof block) < 0)
			abort();
	wrote += t - begin;
}

// The second thread sleeps for as long as it is asked to, and then wakes main.
static enum { NANOSLEEP, PIPE, FUTEX, COND } how;
static int ask[2], answer[2];
static atomic_int word;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;

static void sleep_ns(long ns) {
	struct timespec t = {ns / 1000000000L, ns % 1000000000L};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static void *waker(void *unused) {
	long ns;
	prctl(PR_SET_NAME, "waker");
	while (read(ask[0], &ns, sizeof ns) == sizeof ns) {
		sleep_ns(ns);
		switch (how) {
		case PIPE:
			if (write(answer[1], "x", 1) != 1)
				abort();
			break;
		case FUTEX:
			atomic_store(&word, 1);
			syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
			break;
		default:
			pthread_mutex_lock(&mutex);
			turn = 1;
			pthread_cond_signal(&cond);
			pthread_mutex_unlock(&mutex);
		}
	}
	return unused;
}

NOINLINE static void rest(long ns) {
	long begin = now(CLOCK_THREAD_CPUTIME_ID);
	char c;
	if (how != NANOSLEEP && write(ask[1], &ns, sizeof ns) != sizeof ns)
		abort();
	switch (how) {
	case NANOSLEEP:
		sleep_ns(ns);
		break;
	case PIPE:
		if (read(answer[0], &c, 1) != 1)
			abort();
		break;
	case FUTEX:
		while (!atomic_exchange(&word, 0))
			syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
		break;
	case COND:
		pthread_mutex_lock(&mutex);
		while (!turn)
			pthread_cond_wait(&cond, &mutex);
		turn = 0;
		pthread_mutex_unlock(&mutex);
	}
	rested += now(CLOCK_THREAD_CPUTIME_ID) - begin;
}

int main(int argc, char **argv) {
	static const char *names[] = {"nanosleep", "pipe", "futex", "cond"};
	pthread_t thread;
	int found = 0;
	for (int i = 0; argc >= 5 && i < 4; i++)
		if (strcmp(argv[1], names[i]) == 0)
			how = i, found = 1;
	if (!found) {
		fprintf(stderr, "usage: duty nanosleep|pipe|futex|cond BURN_US REST_US SECONDS [WRITE_US]\n");
		return 2;
	}
	long burn_ns = atol(argv[2]) * 1000, rest_ns = atol(argv[3]) * 1000, write_ns = argc > 5 ? atol(argv[5]) * 1000 : 0;
	device = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
	if (device < 0 || pipe(ask) != 0 || pipe(answer) != 0 || (how != NANOSLEEP && pthread_create(&thread, NULL, waker, NULL) != 0)) {
		perror("duty");
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	long first = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID), end = first + (long)(atof(argv[4]) * 1e9);
	while (now(CLOCK_MONOTONIC) < end) {
		burn(burn_ns);
		if (write_ns > 0)
			writes(write_ns);
		rest(rest_ns);
	}
	printf("truth burn %ld rest %ld write %ld total %ld elapsed %ld\n", burned, rested, wrote,
		now(CLOCK_THREAD_CPUTIME_ID) - cpu, now(CLOCK_MONOTONIC) - first);
	return 0;
}
