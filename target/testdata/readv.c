/*
 * readv: what one read of a stopped thread's stack takes at least: N stops, 1 ms apart,
 * and in each one process_vm_readv of SIZE bytes above its stack pointer, into a buffer
 * that begins as far from the beginning of a page as they do.
 *
 *   readv TID
 *
 * Each line "N SIZE" on standard input is answered by a line with the ns of each read.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

static char copy[1 << 20] __attribute__((aligned(4096)));

static void die(const char *what)
{
	fprintf(stderr, "readv: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static unsigned long stop(pid_t tid)
{
	int st;
	pid_t r;
	struct user_regs_struct regs;
	struct iovec v = {&regs, sizeof regs};
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0))
		die("INTERRUPT");
	do
		r = waitpid(tid, &st, __WALL | WNOHANG);
	while (r == 0 || (r < 0 && errno == EINTR));
	if (r < 0 || !WIFSTOPPED(st))
		die("wait");
	if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &v))
		die("GETREGSET");
#ifdef __x86_64__
	return regs.rsp;
#else
	return regs.sp;
#endif
}

int main(int argc, char **argv)
{
	pid_t tid = argc == 2 ? atoi(argv[1]) : 0;
	long n, size;
	memset(copy, 1, sizeof copy);
	while (scanf("%ld %ld", &n, &size) == 2) {
		if (size <= 0 || size > (long)sizeof copy - 4096)
			die("size");
		if (ptrace(PTRACE_SEIZE, tid, 0, 0))
			die("SEIZE");
		for (long i = 0; i < n; i++) {
			struct timespec t = {0, 1000000};
			nanosleep(&t, 0);
			unsigned long sp = stop(tid);
			struct iovec to = {copy + sp % 4096, size}, at = {(void *)sp, size};
			long from = now();
			ssize_t got = process_vm_readv(tid, &to, 1, &at, 1, 0);
			long took = now() - from;
			if (got != size)
				die("process_vm_readv");
			if (ptrace(PTRACE_CONT, tid, 0, 0))
				die("CONT");
			printf("%ld ", took);
		}
		stop(tid);
		if (ptrace(PTRACE_DETACH, tid, 0, 0))
			die("DETACH");
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
