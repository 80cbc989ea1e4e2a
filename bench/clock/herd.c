/*
 * herd: a thread that reads the clock beside many that wake now and then.
 *
 *   cc -O1 -pthread -o herd herd.c
 *   herd THREADS PERIOD     in ms; 0: they sleep for good
 *
 * At each SIGUSR1 it prints the share of the time since the last one that the thread lost: its clock did not advance there, as
 * something else ran on its CPU, or it was stopped. The speed of the CPU does not count: on a shared machine it varies by
 * more than a tool costs. Ends with the process that started it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define GAP 1000 /* ns: some 20 times what one round takes */

static volatile sig_atomic_t asked;
static long period;

static void ask(int sig)
{
	(void)sig;
	asked = 1;
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *wake(void *arg)
{
	struct timespec t = {period / 1000, period % 1000 * 1000000};
	usleep((useconds_t)((intptr_t)arg * 97 % 100000)); /* not all at once */
	for (;;)
		if (period > 0)
			nanosleep(&t, NULL);
		else
			pause();
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	long n = atol(argv[1]);
	period = atol(argv[2]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	sigset_t usr1;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	for (long i = 0; i < n; i++) {
		pthread_t t;
		if (pthread_create(&t, &small, wake, (void *)(intptr_t)i) != 0) {
			perror("herd");
			return 1;
		}
	}
	signal(SIGUSR1, ask);
	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
	puts("ready");
	fflush(stdout);
	int64_t lost = 0;
	for (int64_t from = now(), last = from;;) {
		int64_t t = now();
		if (t - last > GAP)
			lost += t - last;
		last = t;
		if (asked) {
			asked = 0;
			printf("%.6f\n", (double)lost / (double)(t - from));
			fflush(stdout);
			lost = 0;
			from = last = now();
		}
	}
}
