/*
 * life: threads and processes that come and go.
 *   life churn N     N threads one after the other, four at a time; exit status 7
 *   life held N      the same as exec, after a line of input
 *   life exec N      a thread that is not the first calls exec on itself, N times; exit status 42
 *   life vfork       a thread in vfork until a line of input; prints its TID, "back" and leaves at the end of input
 *   life stuck       a thread in vfork for good, and another one that calls exec ("life done") at a line of input; prints the first's TID
 *   life leader      the first thread ends, another one spins until the end of input; prints its TID; exit status 9
 *   life done        prints "done"
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <signal.h>
#include <unistd.h>

static char **args;
static char number[16];
static volatile pid_t tid;
static int ends[2];

static void *work(void *p)
{
	volatile long x = 0;
	for (long i = 0; i < (long)p; i++)
		x++;
	return 0;
}

static void *forever(void *p)
{
	volatile long x = 0;
	(void)p;
	for (;;)
		x++;
	return 0;
}

static void *again(void *p)
{
	int n = atoi(args[2]);
	(void)p;
	work((void *)300000);
	if (n == 0)
		_exit(42);
	snprintf(number, sizeof number, "%d", n - 1);
	execl("/proc/self/exe", args[0], "exec", number, (char *)0);
	_exit(3);
}

static void *in_vfork(void *p)
{
	char c;
	(void)p;
	tid = (pid_t)syscall(SYS_gettid);
	pid_t child = vfork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* too late if the thread was killed before */
		close(ends[1]);                   /* then, it reads an end of file when the program ends */
		if (read(ends[0], &c, 1) < 0)
			_exit(1);
		_exit(0);
	}
	puts("back");
	fflush(stdout);
	return 0;
}

static void *leaver(void *p)
{
	char line[8];
	(void)p;
	if (!fgets(line, sizeof line, stdin))
		_exit(3);
	execl("/proc/self/exe", args[0], "done", (char *)0);
	_exit(3);
}

static void *reader(void *p)
{
	char c;
	(void)p;
	while (read(0, &c, 1) > 0)
		;
	_exit(9);
}

int main(int argc, char **argv)
{
	pthread_t t[4], a;
	char line[8];
	args = argv;
	if (argc < 2 || pipe(ends))
		return 2;
	if (!strcmp(argv[1], "done")) {
		puts("done");
		return 0;
	}
	if (!strcmp(argv[1], "churn")) {
		for (int i = 0; i < atoi(argv[2]); i += 4) {
			for (int j = 0; j < 4; j++)
				if (pthread_create(&t[j], 0, work, (void *)(long)(10000 * (j + 1))))
					return 3;
			for (int j = 0; j < 4; j++)
				pthread_join(t[j], 0);
		}
		return 7;
	}
	if (!strcmp(argv[1], "held")) { // exec, after a line
		if (!fgets(line, sizeof line, stdin))
			return 3;
		execl("/proc/self/exe", args[0], "exec", argv[2], (char *)0);
		return 3;
	}
	if (!strcmp(argv[1], "exec")) {
		for (int j = 0; j < 3; j++)
			if (pthread_create(&t[j], 0, forever, 0))
				return 3;
		if (pthread_create(&t[3], 0, again, 0))
			return 3;
		pthread_join(t[3], 0);
	}
	if (!strcmp(argv[1], "vfork") || !strcmp(argv[1], "stuck")) {
		if (pthread_create(&a, 0, in_vfork, 0))
			return 3;
		while (!tid)
			usleep(100);
		printf("%d\n", tid);
		fflush(stdout);
		if (argv[1][0] == 's') {
			if (pthread_create(&t[0], 0, leaver, 0))
				return 3;
			pthread_join(t[0], 0);
		}
		if (!fgets(line, sizeof line, stdin) || write(ends[1], "x", 1) != 1)
			return 3;
		pthread_join(a, 0);
		while (fgets(line, sizeof line, stdin))
			;
		return 0;
	}
	if (!strcmp(argv[1], "leader")) {
		if (pthread_create(&t[0], 0, forever, 0) || pthread_create(&t[1], 0, reader, 0))
			return 3;
		pthread_exit(0);
	}
	return 2;
}
