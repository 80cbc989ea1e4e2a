/*
 * sigs N: a thread waits in epoll_wait and gets N queued realtime signals with
 * values, mixed with ignored signals and ordinary ones to the whole process.
 * It prints its TID, starts at a line of input, and prints at the end
 *   done GOT MISORDERED USR1 STRAY
 * STRAY being the EINTRs with no handler to answer for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int got, misordered, usr1, handled;
static int stray, n, ep;
static pid_t tid;

static void queued(int sig, siginfo_t *si, void *u)
{
	(void)sig, (void)u;
	if (si->si_value.sival_int != got || si->si_code != SI_QUEUE)
		misordered++;
	got++;
	__atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}

static void plain(int sig)
{
	(void)sig;
	__atomic_add_fetch(&usr1, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}

static void *wait_for_them(void *p)
{
	struct epoll_event e;
	(void)p;
	__atomic_store_n(&tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	while (got < n) {
		int before = handled;
		/* A signal may come between these two lines: then the wait's
		 * own end is the short timeout's. */
		if (epoll_wait(ep, &e, 1, 5) < 0 && errno == EINTR && handled == before)
			stray++;
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t t;
	char line[8];
	struct sigaction sa = {.sa_sigaction = queued, .sa_flags = SA_SIGINFO};
	struct sigaction su = {.sa_handler = plain};
	sigset_t s;
	n = argc > 1 ? atoi(argv[1]) : 1000;
	sigaction(SIGRTMIN + 1, &sa, 0);
	sigaction(SIGUSR1, &su, 0);
	ep = epoll_create1(0);
	if (pthread_create(&t, 0, wait_for_them, 0))
		return 3;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s, 0); /* the other thread takes them */
	while (!__atomic_load_n(&tid, __ATOMIC_SEQ_CST))
		usleep(100);
	printf("%d\n", tid);
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 3;
	for (int i = 0; i < n; i++) {
		union sigval v = {.sival_int = i};
		while (pthread_sigqueue(t, SIGRTMIN + 1, v) == EAGAIN)
			usleep(100);
		if (i % 3 == 0)
			syscall(SYS_tgkill, getpid(), tid, SIGWINCH); /* ignored */
		if (i % 5 == 0)
			syscall(SYS_tgkill, getpid(), tid, SIGCHLD); /* ignored */
		if (i % 7 == 0) {
			int before = usr1;
			kill(getpid(), SIGUSR1);
			/* Not queued: one at a time, so that each counts. */
			while (__atomic_load_n(&usr1, __ATOMIC_SEQ_CST) == before)
				usleep(50);
		}
		if (i % 4 == 0)
			usleep(200);
	}
	pthread_join(t, 0);
	printf("done %d %d %d %d\n", got, misordered, usr1, stray);
	return 0;
}
