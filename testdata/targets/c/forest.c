// forest starts a tree of processes as fast as it can and logs their lives, a line each, to its
// standard output:
//
//	born PID PPID   a process, by itself
//	again PID PPID  another process with the number of one that has ended
//	died PID        it is about to end
//
// usage: forest COUNT MS   COUNT is the number of processes, at most 500; MS is how long a process
// with children waits, in ms, before it waits for them. The first process waits for a line first.
// It ends with status 9 if the kernel refuses the reuse of a number, otherwise with 0.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, int parent) {
	char line[64];
	int n = parent ? snprintf(line, sizeof line, "%s %d %d\n", what, getpid(), parent)
	               : snprintf(line, sizeof line, "%s %d\n", what, getpid());
	if (write(1, line, n) != n)
		_exit(3);
}

static void nap(long ms) {
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static int count;
static long ms;

// tree is process i of a binary tree.
static void tree(int i) {
	say("born", getppid());
	int kids = 0;
	for (int k = 2 * i + 1; k <= 2 * i + 2 && k < count; k++) {
		pid_t p = fork();
		if (p == 0) {
			tree(k);
			say("died", 0);
			_exit(0);
		}
		if (p < 0)
			_exit(4);
		kids++;
	}
	if (kids)
		nap(ms);
	while (kids-- > 0)
		if (wait(NULL) < 0)
			_exit(5);
}

// again starts a process with a number that another one has just had.
static int again(void) {
	pid_t p = fork();
	if (p == 0) {
		say("born", getppid());
		nap(ms);
		say("died", 0);
		_exit(0);
	}
	if (p < 0 || waitpid(p, NULL, 0) != p)
		return 6;
	struct clone_args a;
	memset(&a, 0, sizeof a);
	a.exit_signal = SIGCHLD;
	a.set_tid = (uint64_t)(uintptr_t)&p;
	a.set_tid_size = 1;
	long q = syscall(SYS_clone3, &a, sizeof a);
	if (q == 0) {
		say("again", getppid());
		nap(ms);
		say("died", 0);
		_exit(0);
	}
	if (q < 0)
		return 9;
	return waitpid(q, NULL, 0) == q && q == p ? 0 : 7;
}

int main(int argc, char **argv) {
	char c;
	if (argc != 3)
		return 2;
	count = atoi(argv[1]);
	ms = atol(argv[2]);
	if (count < 1 || count > 500 || read(0, &c, 1) != 1)
		return 2;
	tree(0);
	int status = again();
	say("died", 0);
	return status;
}
