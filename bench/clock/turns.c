/*
 * turns: a thread that alternates between work and sleep, and prints its share of work.
 *
 *   cc -O1 -o turns turns.c
 *   turns WORK PERIOD     in µs; sleeps for the rest of the period
 *   turns WORK 0          makes a short system call instead of sleeping
 *   turns WORK -1         makes a system call of a few µs
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

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* A clock for short times, in units of its own. */
static int64_t ticks(void)
{
#if defined(__x86_64__)
	return (int64_t)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	int64_t t;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
	return now();
#endif
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
}

__attribute__((noinline, noclone)) static void call(int longer)
{
	static char random[1500];
	if (longer)
		syscall(SYS_getrandom, random, sizeof random, 0);
	else
		syscall(SYS_getppid);
}

static int later(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/*
 * The share of work among calls. A turn that took ten times the median was interrupted, and says nothing of the two. One that
 * took no time or less went to a CPU whose clock is behind.
 */
static void bursts(long rounds, int longer)
{
	enum { FIRST = 1001 };
	static int64_t firsts[FIRST];
	int64_t worked = 0, all = 0, usual = 0;
	for (int n = 0;;) {
		if (asked) {
			asked = 0;
			printf("%.6f\n", all > 0 ? (double)worked / (double)all : 0);
			fflush(stdout);
			worked = all = 0;
		}
		int64_t from = ticks();
		work(rounds);
		int64_t half = ticks();
		call(longer);
		int64_t took = ticks() - from;
		if (n < FIRST) {
			firsts[n++] = took;
			if (n == FIRST) {
				qsort(firsts, FIRST, sizeof *firsts, later);
				usual = firsts[FIRST / 2];
			}
		}
		if (half >= from && took >= half - from && took < 10 * usual) {
			worked += half - from;
			all += took;
		}
	}
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
	puts("ready");
	fflush(stdout);
	if (period <= 0)
		bursts(rounds, period < 0);
	int64_t worked = 0, from = now();
	for (;;) {
		if (asked) {
			asked = 0;
			printf("%.6f\n", (double)worked / (double)(now() - from));
			fflush(stdout);
			worked = 0;
			from = now();
		}
		int64_t begun = now();
		work(rounds);
		worked += now() - begun;
		rest(period - on);
	}
}
