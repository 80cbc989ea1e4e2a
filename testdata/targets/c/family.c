// family starts processes in every usual way and logs their lives, a line each, to its
// standard output:
//
//	born PID PPID NAME    a process, by the one that started it or by itself
//	exec PID NAME         it became another program
//	died PID              it is about to end
//
// usage: family MS SHORTS PATH   MS is the CPU time in ms of each process, SHORTS the number
// of children that end at once, PATH another name of this program, for execs. The last
// process, a daemon, outlives the first one, which ends with status 7.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long ms;

static void say(const char *format, ...) {
	char line[512];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (write(1, line, n) != n)
		_exit(3);
}

static long long cpu(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static volatile unsigned long sink;

#define BURN(name)                                                            \
	__attribute__((noinline)) static void name(void) {                    \
		long long end = cpu() + ms * 1000000LL;                       \
		while (cpu() < end)                                           \
			for (int i = 0; i < 20000; i++)                       \
				sink += i ^ sizeof #name;                     \
		__asm__ volatile("");                                         \
	}

BURN(burn_first)
BURN(burn_fork)
BURN(burn_exec)
BURN(burn_chain)
BURN(burn_daemon)

static const char *other;

static void end(int status) {
	say("died %d\n", getpid());
	_exit(status);
}

static void run(const char *what) {
	char text[32];
	snprintf(text, sizeof text, "%ld", ms);
	execl(other, other, text, what, NULL);
	_exit(4);
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 2;
	ms = atol(argv[1]);
	other = argv[0];
	const char *slash = strrchr(argv[0], '/');
	const char *name = slash ? slash + 1 : argv[0];
	if (argc == 3) { // after an exec
		say("exec %d %s\n", getpid(), name);
		if (!strcmp(argv[2], "chain2"))
			run("chain1");
		if (!strcmp(argv[2], "chain1"))
			burn_chain();
		else
			burn_exec();
		end(0);
	}
	int shorts = atoi(argv[2]);
	other = argv[3];
	say("born %d %d %s\n", getpid(), getppid(), name);

	pid_t forked = fork();
	if (forked == 0) {
		say("born %d %d %s\n", getpid(), getppid(), name);
		burn_fork();
		end(0);
	}
	pid_t vforked = vfork();
	if (vforked == 0)
		run("exec");
	say("born %d %d %s\n", vforked, getpid(), name);
	pid_t chain = fork();
	if (chain == 0) {
		say("born %d %d %s\n", getpid(), getppid(), name);
		run("chain2");
	}
	pid_t middle = fork();
	if (middle == 0) { // a daemon: its parent ends at once
		pid_t above = getpid();
		say("born %d %d %s\n", above, getppid(), name);
		setsid();
		if (fork() > 0)
			end(0);
		say("born %d %d %s\n", getpid(), above, name);
		burn_daemon();
		burn_daemon();
		burn_daemon();
		end(0);
	}
	for (int i = 0; i < shorts; i++) {
		pid_t p = fork();
		if (p == 0) {
			say("born %d %d %s\n", getpid(), getppid(), name);
			end(0);
		}
		waitpid(p, NULL, 0);
	}
	burn_first();
	waitpid(forked, NULL, 0);
	waitpid(vforked, NULL, 0);
	waitpid(chain, NULL, 0);
	waitpid(middle, NULL, 0);
	end(7);
}
