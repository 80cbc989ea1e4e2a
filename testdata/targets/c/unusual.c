/*
 * unusual: what a tracer could get in the way of, in threads beside one another,
 * each of which knows what must come out.
 *
 *   unusual ROUNDS
 *
 * waits for a line of input, does it all, prints "NAME want got" for each, and
 * "stray N": sleeps that ended with EINTR in threads that take no signal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static int rounds;
static atomic_long stray, child_signals, traps;

static void pause_ms(long ms)
{
	struct timespec t = {0, ms * 1000000};
	if (nanosleep(&t, 0) && errno == EINTR)
		stray++;
}

/* A receiver of queued signals: they must come in the order of their values. */
struct receiver {
	int sig;
	pid_t tid;
	atomic_long got, misordered, last;
	pthread_t thread;
};
static struct receiver everyone = {.last = -1}, single[2] = {{.last = -1}, {.last = -1}};
static atomic_int over;

static void queued(int sig, siginfo_t *info, void *u)
{
	(void)u;
	struct receiver *r = sig == everyone.sig ? &everyone : sig == single[0].sig ? &single[0] : &single[1];
	if (info->si_value.sival_int != r->last + 1)
		r->misordered++;
	r->last = info->si_value.sival_int;
	r->got++;
}

static void *receive(void *p)
{
	struct receiver *r = p;
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, r->sig);
	r->tid = (pid_t)syscall(SYS_gettid);
	pthread_sigmask(SIG_UNBLOCK, &s, 0);
	/* Now in the program, now asleep. */
	while (!over) {
		for (volatile int i = 0; i < 20000; i++)
			;
		struct timespec t = {0, 300000};
		nanosleep(&t, 0);
	}
	return 0;
}

/* The sender: a child, so that signals come from outside. 1 kHz. */
static pid_t sender(pid_t to)
{
	pid_t p = fork();
	if (p)
		return p;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < rounds; i++) {
		union sigval v = {.sival_int = i};
		while (sigqueue(to, everyone.sig, v))
			usleep(100);
		for (int k = 0; k < 2; k++) {
			siginfo_t s;
			memset(&s, 0, sizeof s);
			s.si_signo = single[k].sig;
			s.si_code = SI_QUEUE;
			s.si_pid = getpid();
			s.si_value.sival_int = i;
			while (syscall(SYS_rt_tgsigqueueinfo, to, single[k].tid, s.si_signo, &s))
				usleep(100);
		}
		usleep(1000);
	}
	_exit(0);
}

static void on_child(int sig) { (void)sig; child_signals++; }

static void on_trap(int sig, siginfo_t *info, void *u)
{
	(void)sig;
#ifdef __x86_64__
	(void)u;
	if (info->si_code == SI_KERNEL) /* int3 leaves the program counter behind itself */
		traps++;
#else
	((ucontext_t *)u)->uc_mcontext.pc += 4;
	if (info->si_code == TRAP_BRKPT)
		traps++;
#endif
}

static void say(const char *name, long want, long got)
{
	char b[80];
	int n = snprintf(b, sizeof b, "%s %ld %ld\n", name, want, got);
	if (write(1, b, n) != n)
		_exit(3);
}

static int ended(pid_t p, int status)
{
	int s;
	pid_t r;
	while ((r = waitpid(p, &s, 0)) < 0 && errno == EINTR)
		stray++;
	return r == p && WIFEXITED(s) && WEXITSTATUS(s) == status;
}

static void *forks(void *p)
{
	long n = 0, m = 0;
	(void)p;
	for (int i = 0; i < rounds / 10; i++) {
		pid_t c = fork();
		if (!c)
			_exit(i & 127);
		n += ended(c, i & 127);
		uint64_t args[11] = {0};
		args[4] = SIGCHLD; /* exit_signal of struct clone_args */
		c = (pid_t)syscall(435, args, sizeof args);
		if (!c)
			_exit(5);
		m += c > 0 && ended(c, 5);
		pause_ms(1);
	}
	say("fork", rounds / 10, n);
	say("clone3", rounds / 10, m);
	return 0;
}

static void *vforks(void *p)
{
	long n = 0, m = 0;
	(void)p;
	for (int i = 0; i < rounds / 10; i++) {
		pid_t c = vfork();
		if (!c)
			_exit(7);
		n += ended(c, 7);
		char *args[] = {"sh", "-c", "exit 9", 0};
		if (i % 4 == 0 && posix_spawn(&c, "/bin/sh", 0, 0, args, environ) == 0)
			m += ended(c, 9);
	}
	say("vfork", rounds / 10, n);
	say("posix_spawn", (rounds / 10 + 3) / 4, m);
	return 0;
}

static void *stops(void *p)
{
	long n = 0;
	int s;
	(void)p;
	pid_t c = fork();
	if (!c) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	for (int i = 0; i < rounds / 10; i++) {
		kill(c, SIGSTOP);
		n += waitpid(c, &s, WUNTRACED) == c && WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP;
		kill(c, SIGCONT);
		n += waitpid(c, &s, WCONTINUED) == c && WIFCONTINUED(s);
	}
	kill(c, SIGKILL);
	waitpid(c, &s, 0);
	say("stop-and-continue", rounds / 10 * 2, n);
	return 0;
}

static void *breakpoints(void *p)
{
	(void)p;
	for (int i = 0; i < rounds * 4; i++) {
#ifdef __x86_64__
		__asm__ volatile("int3");
#else
		__asm__ volatile("brk #0");
#endif
		for (volatile int k = 0; k < 20000; k++)
			;
	}
	say("int3", rounds * 4, traps);
	return 0;
}

static void *one(void *p)
{
	for (volatile int i = 0; i < 30000; i++)
		;
	return p;
}

static void *threads(void *p)
{
	long n = 0;
	(void)p;
	for (long i = 0; i < rounds / 2; i++) {
		pthread_t t;
		void *r;
		if (pthread_create(&t, 0, one, (void *)i) == 0 && pthread_join(t, &r) == 0)
			n += r == (void *)i;
	}
	say("threads", rounds / 2, n);
	return 0;
}

int main(int argc, char **argv)
{
	void *(*const work[])(void *) = {forks, vforks, stops, breakpoints, threads};
	enum { WORKS = sizeof work / sizeof *work };
	pthread_t t[WORKS];
	struct receiver *const rs[] = {&everyone, &single[0], &single[1]};
	sigset_t all;
	struct sigaction sa = {.sa_sigaction = queued, .sa_flags = SA_SIGINFO};
	rounds = argc > 1 ? atoi(argv[1]) : 500;
	sigfillset(&all);
	sigdelset(&all, SIGTRAP);
	sigprocmask(SIG_SETMASK, &all, 0);
	for (int i = 0; i < 3; i++) {
		rs[i]->sig = SIGRTMIN + 1 + i;
		sigaction(rs[i]->sig, &sa, 0);
	}
	sa.sa_sigaction = on_trap;
	sigaction(SIGTRAP, &sa, 0);
	sa.sa_handler = on_child;
	sa.sa_flags = SA_RESTART;
	sigaction(SIGCHLD, &sa, 0);
	for (int i = 0; i < 3; i++)
		if (pthread_create(&rs[i]->thread, 0, receive, rs[i]))
			return 3;
	while (!everyone.tid || !single[0].tid || !single[1].tid)
		usleep(100);
	say("ready", getpid(), getpid());
	char c;
	if (read(0, &c, 1) != 1)
		return 3;
	pid_t from = sender(getpid());
	for (int i = 0; i < WORKS; i++)
		if (pthread_create(&t[i], 0, work[i], 0))
			return 3;
	for (int i = 0; i < WORKS; i++)
		pthread_join(t[i], 0);
	say("sender", 1, ended(from, 0));
	over = 1;
	for (int i = 0; i < 3; i++) {
		pthread_join(rs[i]->thread, 0);
		say(i ? "queued-to-thread" : "queued-to-process", rounds, rs[i]->got);
		say("misordered", 0, rs[i]->misordered);
	}
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &child, 0);
	say("sigchld", 1, child_signals > 0);
	say("stray", 0, stray);
	return 0;
}
