/*
 * turns: a thread that alternates between work and sleep, and prints its share of work.
 *
 *   cc -O1 -o turns turns.c
 *   turns WORK PERIOD     in µs; sleeps for the rest of the period
 *   turns WORK 0          makes a system call instead of sleeping; prints the share of its time on CPUs
 *
 * At each SIGUSR1 it prints the share since the last one, and starts over. Ends with
 * its parent process.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

static void ask(int sig)
{
	(void)sig;
	asked = 1;
}

static clockid_t clock_used = CLOCK_MONOTONIC;

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(clock_used, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

__attribute__((noinline, noclone)) static void work(long rounds)
{
	for (long i = 0; i < rounds; i++)
		__asm__ volatile("");
}

__attribute__((noinline, noclone)) static void rest(int64_t ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	if (ns > 0)
		nanosleep(&t, NULL);
	else
		syscall(SYS_getppid);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int64_t on = (int64_t)(atof(argv[1]) * 1e3), period = (int64_t)(atof(argv[2]) * 1e3);
	const long try = 10000000;
	int64_t best = INT64_MAX;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < 20; i++) {
		int64_t from = now();
		work(try);
		int64_t took = now() - from;
		best = took < best ? took : best;
	}
	long rounds = (long)((double)try * (double)on / (double)best);
	signal(SIGUSR1, ask);
	if (period == 0)
		clock_used = CLOCK_THREAD_CPUTIME_ID;
	puts("ready");
	fflush(stdout);
	int64_t worked = 0, from = now(), last = from;
	long turns = 0;
	for (;;) {
		if (asked) {
			asked = 0;
			/* Where turns are short, to read the clock would be a part of them. */
			int64_t all = now() - from;
			printf("%.6f\n", period > 0 ? (double)worked / (double)all : (double)turns * (double)on / (double)all);
			fflush(stdout);
			worked = turns = 0;
			from = now();
		}
		if (period > 0) {
			last = now();
			work(rounds);
			worked += now() - last;
		} else {
			work(rounds);
		}
		turns++;
		rest(period > 0 ? period - on : 0);
	}
}
