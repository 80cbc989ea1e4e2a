/*
 * stuck: threads that cannot be stopped, beside others that spin.
 *
 *   stuck
 *
 * Prints "vfork TID", "spin TID" and "spin TID". The first is in vfork, asleep
 * uninterruptibly, until a line of input; then it prints "back TID", and at the
 * end of input the program ends.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ends[2];
static volatile pid_t tids[3];

static void *in_vfork(void *p)
{
	char c;
	(void)p;
	tids[0] = (pid_t)syscall(SYS_gettid);
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(ends[0], &c, 1) < 0)
			;
		_exit(0);
	}
	printf("back %d\n", tids[0]);
	fflush(stdout);
	for (volatile long x = 0;; x++)
		;
	return 0;
}

static void *spin(void *p)
{
	tids[1 + (long)p] = (pid_t)syscall(SYS_gettid);
	for (volatile long x = 0;; x++)
		;
	return 0;
}

int main(void)
{
	char line[8];
	pthread_t t;
	if (pipe(ends) || pthread_create(&t, 0, in_vfork, 0) || pthread_create(&t, 0, spin, (void *)0) ||
	    pthread_create(&t, 0, spin, (void *)1))
		return 3;
	for (int i = 0; i < 3; i++) {
		while (!tids[i])
			usleep(100);
		printf("%s %d\n", i ? "spin" : "vfork", tids[i]);
	}
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin) || write(ends[1], "x", 1) != 1)
		return 0;
	while (fgets(line, sizeof line, stdin))
		;
	return 0;
}
