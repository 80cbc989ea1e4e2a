/*
 * loop is the reference for the length of a stop: the shortest ptrace loop
 * that reads what a sample needs from one running thread, and nothing else.
 *
 *   cc -O2 -o loop loop.c
 *   loop TID
 *
 * Each line on standard input is one round, answered by one line:
 *
 *   spin N GAP     N stops, GAP microseconds apart, waiting for each by spinning
 *   block N GAP    the same with a blocking wait
 *   under N GAP    spin, while the process that sends it keeps the CPUs busy
 *
 * The thread is attached at the start of a round and detached at its end, so
 * that another tracer can take turns. At the end of input it prints one JSON
 * object with a member for each of them, with n, mean, p50, p90, p99, p999 and max
 * in nanoseconds, from before the request to stop to after the resume, and with
 * net999: p999 without what the thread waited for a CPU in that time, and cpu: the
 * CPU time of this program a stop, with the sleep before it.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK 4096
#define MAXSTOPS 1000000

struct series {
	const char *name;
	long *ns, *net;
	long cpu;
	size_t n;
};

static char copy[STACK];

static void die(const char *what)
{
	fprintf(stderr, "loop: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* delay is how long the thread has waited for a CPU so far, in ns. */
static long delay(int schedstat)
{
	char b[96];
	long cpu, waited;
	ssize_t n = pread(schedstat, b, sizeof b - 1, 0);
	if (n <= 0)
		die("schedstat");
	b[n] = 0;
	if (sscanf(b, "%ld %ld", &cpu, &waited) != 2)
		die("schedstat");
	return waited;
}

static void stopped(pid_t tid, int spin)
{
	int st;
	pid_t r;
	do
		r = waitpid(tid, &st, __WALL | (spin ? WNOHANG : 0));
	while (r == 0 || (r < 0 && errno == EINTR));
	if (r < 0)
		die("wait");
	if (!WIFSTOPPED(st)) {
		fprintf(stderr, "loop: the thread ended\n");
		exit(1);
	}
}

static unsigned long registers(pid_t tid)
{
	struct user_regs_struct r;
	struct iovec v = {&r, sizeof r};
	if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &v))
		die("GETREGSET");
#ifdef __x86_64__
	return r.rsp;
#else
	return r.sp;
#endif
}

static void round_of(struct series *s, pid_t tid, int schedstat, int spin, long n, long gap)
{
	if (ptrace(PTRACE_SEIZE, tid, 0, 0))
		die("SEIZE");
	long used = now(CLOCK_PROCESS_CPUTIME_ID);
	for (long i = 0; i < n && s->n < MAXSTOPS; i++) {
		struct timespec t = {gap / 1000000, gap % 1000000 * 1000};
		nanosleep(&t, 0);
		long waited = delay(schedstat);
		long from = now(CLOCK_MONOTONIC);
		if (ptrace(PTRACE_INTERRUPT, tid, 0, 0))
			die("INTERRUPT");
		stopped(tid, spin);
		unsigned long sp = registers(tid);
		struct iovec to = {copy, STACK}, at = {(void *)sp, STACK};
		if (process_vm_readv(tid, &to, 1, &at, 1, 0) <= 0)
			die("process_vm_readv");
		if (ptrace(PTRACE_CONT, tid, 0, 0))
			die("CONT");
		s->ns[s->n] = now(CLOCK_MONOTONIC) - from;
		waited = delay(schedstat) - waited;
		s->net[s->n] = s->ns[s->n] - (waited < s->ns[s->n] ? waited : s->ns[s->n]);
		s->n++;
	}
	s->cpu += now(CLOCK_PROCESS_CPUTIME_ID) - used;
	/* Detaching takes one more stop, which counts for nothing. */
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0))
		die("INTERRUPT");
	stopped(tid, 0);
	if (ptrace(PTRACE_DETACH, tid, 0, 0))
		die("DETACH");
}

static int order(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;
	return (x > y) - (x < y);
}

static long quantile(const long *ns, size_t n, double q)
{
	size_t i = (size_t)(q * (double)n);
	return n == 0 ? 0 : ns[i < n ? i : n - 1];
}

static void print(struct series *s)
{
	double sum = 0;
	const long *ns = s->ns;
	qsort(s->ns, s->n, sizeof *ns, order);
	qsort(s->net, s->n, sizeof *ns, order);
	for (size_t i = 0; i < s->n; i++)
		sum += (double)ns[i];
	printf("\"%s\":{\"n\":%zu,\"mean\":%.0f,\"p50\":%ld,\"p90\":%ld,\"p99\":%ld,\"p999\":%ld,\"max\":%ld,\"net999\":%ld,\"cpu\":%ld}", s->name,
	       s->n, s->n ? sum / (double)s->n : 0, quantile(ns, s->n, .5), quantile(ns, s->n, .9), quantile(ns, s->n, .99),
	       quantile(ns, s->n, .999), s->n ? ns[s->n - 1] : 0, quantile(s->net, s->n, .999), s->n ? s->cpu / (long)s->n : 0);
}

int main(int argc, char **argv)
{
	struct series all[] = {{.name = "spin"}, {.name = "block"}, {.name = "under"}};
	const int kinds = sizeof all / sizeof *all;
	char line[128], how[16], path[64];
	if (argc != 2) {
		fprintf(stderr, "usage: loop TID\n");
		return 2;
	}
	pid_t tid = atoi(argv[1]);
	snprintf(path, sizeof path, "/proc/%d/schedstat", tid);
	int schedstat = open(path, O_RDONLY | O_CLOEXEC);
	if (schedstat < 0)
		die(path);
	for (int i = 0; i < kinds; i++)
		if (!(all[i].ns = malloc(MAXSTOPS * sizeof(long))) || !(all[i].net = malloc(MAXSTOPS * sizeof(long))))
			die("malloc");
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	while (fgets(line, sizeof line, stdin)) {
		long n, gap;
		if (sscanf(line, "%15s %ld %ld", how, &n, &gap) != 3 || n < 0 || gap < 0) {
			fprintf(stderr, "loop: not a round: %s", line);
			return 2;
		}
		int kind = 0;
		while (kind < kinds && strcmp(how, all[kind].name) != 0)
			kind++;
		if (kind == kinds) {
			fprintf(stderr, "loop: neither spin, block nor under: %s", line);
			return 2;
		}
		round_of(&all[kind], tid, schedstat, kind != 1, n, gap);
		puts("ok");
		fflush(stdout);
	}
	for (int i = 0; i < kinds; i++) {
		putchar(i == 0 ? '{' : ',');
		print(&all[i]);
	}
	puts("}");
	return 0;
}
