// Starts processes that use CPU time up to their ends: in one thread, after an exec, in four threads, and with a process of
// their own. Each process that waits for one prints its number, the CPU time in ns that the kernel returns for it and those
// that it waited for, and its own number.
//
//	cputimes N          N processes of each kind, one after another
//	cputimes kind KIND  is a process of that kind after a line of input; 4 has threads before it, and prints a line then
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long used(clockid_t c) {
	struct timespec t;
	clock_gettime(c, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// burn uses ms milliseconds of CPU time.
__attribute__((noinline)) static void burn(int ms) {
	long long end = used(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000LL;
	while (used(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void *thread(void *ms) {
	burn(*(int *)ms);
	return NULL;
}

static void threads(int ms) {
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		if (pthread_create(&t[i], NULL, thread, &ms))
			_exit(2);
	burn(ms);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
}

static pthread_barrier_t begun;

static void *waits(void *arg) {
	(void)arg;
	pthread_barrier_wait(&begun);
	burn(20);
	pthread_exit(NULL);
}

// early starts threads that work once the process does.
static void early(void) {
	pthread_barrier_destroy(&begun);
	pthread_barrier_init(&begun, NULL, 4);
	for (int i = 0; i < 3; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, waits, NULL))
			_exit(2);
	}
	dprintf(1, "ready\n");
}

static void reap(pid_t p) {
	struct rusage u;
	int status;
	if (wait4(p, &status, 0, &u) != p || status)
		_exit(2);
	dprintf(1, "used %d %lld %d\n", p, (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000LL + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000LL, getpid());
}

// work is a process of a kind.
static void work(int kind, int ms, char *self) {
	char arg[16];
	switch (kind) {
	case 0:
		burn(ms);
		break;
	case 1:
		snprintf(arg, sizeof arg, "%d", ms);
		execl(self, "cputimes-exec", "burn", arg, NULL);
		_exit(2);
	case 2:
	case 4:
		threads(ms);
		break;
	case 3: { // the child's CPU time is not its own
		pid_t p = fork();
		if (p == 0) {
			burn(ms);
			_exit(0);
		}
		burn(ms / 2);
		reap(p);
		break;
	}
	}
	_exit(0);
}

int main(int argc, char **argv) {
	pthread_barrier_init(&begun, NULL, 1);
	if (argc == 3 && !strcmp(argv[1], "burn")) {
		burn(atoi(argv[2]));
		return 0;
	}
	if (argc == 3 && !strcmp(argv[1], "kind")) { // the process itself, after a line
		char line[16];
		if (atoi(argv[2]) == 4)
			early();
		if (fgets(line, sizeof line, stdin) == NULL)
			return 2;
		pthread_barrier_wait(&begun);
		work(atoi(argv[2]), 30, argv[0]);
	}
	int n = argc > 1 ? atoi(argv[1]) : 1;
	for (int i = 0; i < n; i++)
		for (int kind = 0; kind < 4; kind++) {
			pid_t p = fork();
			if (p == 0)
				work(kind, 2 + 7 * i % 60, argv[0]);
			reap(p);
		}
	return 0;
}
