/*
 * traced: functions that are called in every way a call can begin and end, with
 * the program's own account of it.
 *
 *   traced SCENARIO N
 *
 * prints "ready PID" and waits for a line of input, runs the scenario, prints
 * "truth CALLS RETURNED LEFT" and for the scenario "edges" a line "call ENTER
 * LEAVE" (ns, CLOCK_MONOTONIC) for each call, then "done", and waits for the end
 * of its input. A second line of input runs the scenario once more.
 *
 *   return     N calls
 *   longjmp    N calls, every second one leaves by longjmp
 *   deep       N calls, every third one leaves by longjmp over 10 frames of itself
 *   recursion  a recursion of depth N, as often as makes 2000 calls
 *   tail       N calls that end in a jump to another function
 *   signal     N calls, each interrupted by a handler on a stack of its own that
 *              calls the function as well
 *   storm      N calls while a timer sends up to N signals, each some microseconds
 *              after the one before: their handler calls the function as well. It
 *              prints "at entry K" for the signals that came at the entry
 *   threads    50 threads at a time that come and go, each calls 20 times, N in all
 *   switch     N calls of a function with a table
 *   edges      N calls of 200 us or more, with their times
 *   fork       N calls, and as many in a child
 *   seccomp    N calls behind a filter that ends the process at any system call but
 *              read, write and exit_group
 *   within     a call with N calls in it, or as many as the line of input says, all on
 *              one CPU
 *   hot        calls without end, until the input ends
 */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static jmp_buf back;
static volatile long sink;
static long calls, returned, left;

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

NOINLINE long probed(long x)
{
	sink += x;
	return sink ^ x;
}

NOINLINE long around(long n)
{
	do /* one way out: the entries and exits of both functions are four */
		probed(n);
	while (--n > 0);
	return sink;
}

NOINLINE long jumping(long x)
{
	sink += x;
	if (x & 1)
		longjmp(back, 1);
	return sink;
}

NOINLINE long deep(long n, long level)
{
	if (level == 0 && n % 3 == 2)
		longjmp(back, 1);
	if (level > 0)
		sink += deep(n, level - 1);
	return sink + n;
}

NOINLINE long recursing(long n)
{
	if (n == 0)
		return sink;
	long below = recursing(n - 1);
	sink += below;
	return below + n;
}

NOINLINE long finish(long x)
{
	sink += x;
	return sink * 3;
}

NOINLINE long tailing(long x)
{
	sink ^= x;
	return finish(x + 1);
}

NOINLINE long interrupted(long x)
{
	sink += x;
	if (x >= 0)
		raise(SIGUSR1);
	return sink - x;
}

static void handler(int s)
{
	(void)s;
	calls++;
	interrupted(-1);
	returned++;
}

static volatile long handled, at_entry, most;
static timer_t timer;

static void arm(void)
{
	struct itimerspec t = {.it_value.tv_nsec = 1000 + handled * 7919 % 30000};
	timer_settime(timer, 0, &t, NULL);
}

static void count(int s, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	(void)s, (void)info;
#ifdef __x86_64__
	at_entry += (uintptr_t)u->uc_mcontext.gregs[REG_RIP] == (uintptr_t)probed;
#else
	at_entry += (uintptr_t)u->uc_mcontext.pc == (uintptr_t)probed;
#endif
	probed(-1);
	if (++handled < most)
		arm();
}

NOINLINE long choosing(long x)
{
	switch (x & 7) {
	case 0: sink += 11; break;
	case 1: sink ^= 22; break;
	case 2: sink -= x; break;
	case 3: sink *= 3; break;
	case 4: sink |= 5; break;
	case 5: sink &= ~6; break;
	case 6: sink = ~sink; break;
	default: sink = -sink; break;
	}
	return sink + x;
}

struct edge { uint64_t enter, leave; };
static struct edge *edges;

NOINLINE void timed(long i)
{
	edges[i].enter = now();
	uint64_t until = edges[i].enter + 200000 + i % 7 * 50000;
	if (i % 5 == 0) {
		struct timespec t = {0, 300000};
		nanosleep(&t, NULL);
	}
	while (now() < until)
		;
	edges[i].leave = now();
}

static atomic_long done_calls;

static void *worker(void *a)
{
	for (long i = 0; i < 20; i++) {
		probed(i);
		atomic_fetch_add(&done_calls, 1);
	}
	return a;
}

/* What the last calls of the program need, and nothing else: the kernel kills it otherwise. */
static void confine(void)
{
#ifdef __x86_64__
	const unsigned arch = AUDIT_ARCH_X86_64;
#else
	const unsigned arch = AUDIT_ARCH_AARCH64;
#endif
	static int done;
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arch, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_read, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
	if (done++)
		return;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		exit(5);
}

static void pin(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof one, &one))
		exit(6);
}

static void run(const char *what, long n)
{
	calls = returned = left = 0;
	if (!strcmp(what, "seccomp"))
		confine();
	if (!strcmp(what, "return") || !strcmp(what, "seccomp")) {
		for (volatile long i = 0; i < n; i++)
			probed(i), calls++, returned++;
	} else if (!strcmp(what, "longjmp")) {
		for (volatile long i = 0; i < n; i++) {
			calls++;
			if (!setjmp(back)) {
				jumping(i);
				returned++;
			} else
				left++;
		}
	} else if (!strcmp(what, "deep")) {
		for (volatile long i = 0; i < n; i++) {
			calls += 11;
			if (!setjmp(back)) {
				deep(i, 10);
				returned += 11;
			} else
				left += 11;
		}
	} else if (!strcmp(what, "within")) {
		pin();
		around(n);
		calls = returned = n + 1;
	} else if (!strcmp(what, "recursion")) {
		for (int i = 0; i < 2000 / n; i++) {
			recursing(n);
			calls += n + 1;
			returned += n + 1;
		}
	} else if (!strcmp(what, "tail")) {
		for (volatile long i = 0; i < n; i++)
			tailing(i), calls++, returned++;
	} else if (!strcmp(what, "signal")) {
		stack_t st = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
		sigaltstack(&st, NULL);
		struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
		sigaction(SIGUSR1, &sa, NULL);
		for (volatile long i = 0; i < n; i++)
			interrupted(i), calls++, returned++;
	} else if (!strcmp(what, "storm")) {
		struct sigaction sa = {.sa_sigaction = count, .sa_flags = SA_SIGINFO};
		struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
		sigaction(SIGUSR2, &sa, NULL);
		if (timer_create(CLOCK_MONOTONIC, &e, &timer))
			exit(3);
		handled = at_entry = 0, most = n;
		arm();
		for (volatile long i = 0; i < n; i++)
			probed(i);
		timer_delete(timer);
		printf("at entry %ld\n", at_entry);
		calls = returned = n + handled;
	} else if (!strcmp(what, "threads")) {
		while (calls < n) {
			pthread_t t[50];
			for (int i = 0; i < 50; i++)
				if (pthread_create(&t[i], NULL, worker, NULL))
					exit(3);
			for (int i = 0; i < 50; i++)
				pthread_join(t[i], NULL);
			calls += 1000;
		}
		returned = calls;
		if (atomic_exchange(&done_calls, 0) != calls)
			exit(4);
	} else if (!strcmp(what, "switch")) {
		for (volatile long i = 0; i < n; i++)
			choosing(i), calls++, returned++;
	} else if (!strcmp(what, "edges")) {
		edges = calloc(n, sizeof *edges);
		for (volatile long i = 0; i < n; i++)
			timed(i), calls++, returned++;
		for (long i = 0; i < n; i++)
			printf("call %llu %llu\n", (unsigned long long)edges[i].enter, (unsigned long long)edges[i].leave);
	} else if (!strcmp(what, "fork")) {
		pid_t child = fork();
		for (volatile long i = 0; i < n; i++)
			probed(i), calls++, returned++;
		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
	} else
		exit(2);
	printf("truth %ld %ld %ld\ndone\n", calls, returned, left);
	fflush(stdout);
}

static void *hot(void *a)
{
	for (;;)
		probed(1);
	return a;
}

int main(int argc, char **argv)
{
	char line[64];
	if (argc != 3)
		return 2;
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (!strcmp(argv[1], "hot")) {
		pthread_t t;
		pthread_create(&t, NULL, hot, NULL);
		while (fgets(line, sizeof line, stdin))
			;
		return 0;
	}
	while (fgets(line, sizeof line, stdin))
		run(argv[1], atol(line) > 0 ? atol(line) : atol(argv[2]));
	return 0;
}
