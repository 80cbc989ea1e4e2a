/*
 * The minimum cost of sampling several running threads with ptrace: they stay
 * attached, and at each tick all of them are asked to stop. A thread that has stopped has its
 * registers and 4 KiB of its stack copied, and continues.
 *
 *   stops TICKS INTERVAL-IN-US TID…
 *
 * It prints one JSON object: stops, and this program's CPU time and the time that
 * passed, in ns. A tick that is over before it has begun is left out.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

static long now(clockid_t c)
{
	struct timespec t;
	clock_gettime(c, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int find(char **all, int n, int tid)
{
	for (int i = 0; i < n; i++)
		if (atoi(all[i]) == tid)
			return i;
	return -1;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	long ticks = atol(argv[1]), every = atol(argv[2]) * 1000, stops = 0;
	char **tid = argv + 3;
	int n = argc - 3;
	char *asked = calloc(n, 1); /* and not stopped since */
	static char copy[4096];
	prctl(PR_SET_TIMERSLACK, 1);
	for (int i = 0; i < n; i++)
		if (ptrace(PTRACE_SEIZE, atoi(tid[i]), 0, 0)) {
			perror("stops: attach");
			return 1;
		}
	long from = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	for (long k = 1; k <= ticks; k++) {
		long due = from + k * every;
		struct timespec at = {due / 1000000000L, due % 1000000000L};
		if (now(CLOCK_MONOTONIC) > due + every)
			continue;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		int left = 0;
		for (int i = 0; i < n; i++)
			if (!asked[i] && !ptrace(PTRACE_INTERRUPT, atoi(tid[i]), 0, 0))
				asked[i] = 1;
		for (int i = 0; i < n; i++)
			left += asked[i];
		for (; left > 0; left--) {
			struct user_regs_struct regs;
			struct iovec r = {&regs, sizeof regs};
			int t = waitpid(-1, NULL, __WALL), i = find(tid, n, t);
			if (i < 0) {
				perror("stops: wait");
				return 1;
			}
			ptrace(PTRACE_GETREGSET, t, NT_PRSTATUS, &r);
			struct iovec to = {copy, sizeof copy}, in = {(void *)regs.rsp, sizeof copy};
			process_vm_readv(t, &to, 1, &in, 1, 0);
			ptrace(PTRACE_CONT, t, 0, 0);
			asked[i] = 0;
			stops++;
		}
	}
	printf("{\"stops\":%ld,\"cpu\":%ld,\"time\":%ld}\n", stops, now(CLOCK_PROCESS_CPUTIME_ID) - cpu, now(CLOCK_MONOTONIC) - from);
	return 0;
}
