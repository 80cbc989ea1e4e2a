/*
 * copied: a process that watches itself while it is copied from outside.
 *
 *   copied [MB [huge | reserve PIECES GB]]
 *
 * holds MB megabytes that are in use, and prints "counter ADDRESS", the address of two
 * counters of 64 bits of which the first is increased before the second, and "ready". At a
 * line "clock" it prints the longest gap, in us, that a spinning thread has seen since the
 * last such line. At a line "dirty" it writes to all its memory and prints "dirty", at a line
 * "memory" it prints the address of that memory, whose pages begin with the number of times
 * that it was written to. With "huge" the memory asks for transparent huge pages. With
 * "reserve" the program also has PIECES private mappings of GB gigabytes each, which it never
 * touches. At the end of its input it prints one line "NAME VALUE" for each thing
 * that it counts, "end", and leaves with status 17. All but those whose name begins with n_ must be 0:
 *
 *   regs     general or vector registers that changed (amd64)
 *   rseq     updates in a restartable sequence that were lost (amd64)
 *   masks    signal masks that changed
 *   lost     queued signals that did not arrive, or in another order
 *   pending  a blocked signal that is no longer pending
 *   sigchld  SIGCHLD without a child of its own, or none for one
 *   waits    waitpid(-1) that returned something else than a child of its own, or ECHILD without one
 *   late     sockets whose peer saw the end of the stream not at once
 *   fds      descriptors that came or went
 *   eintr    calls that ended with EINTR without a signal
 *   threads  threads that did not return their number
 *   spawns   children that did not exit with their status
 *   timers   ticks of an interval timer that are missing
 */
#include "../include/prog.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

static volatile uint64_t counters[2] __attribute__((aligned(16)));
static volatile int leaving;
static struct {
	_Atomic long regs, rseq, masks, lost, pending, sigchld, waits, late, fds, eintr, threads, spawns, timers;
	_Atomic long n_regs, n_rseq, n_signals, n_sockets, n_threads, n_spawns, n_ticks, n_calls, n_waits;
} seen;
static _Atomic uint64_t gap;

static sigset_t mask_of_main;

/* Every loop checks that the mask of its thread is what it was. */
static void check_mask(void) {
	sigset_t now;
	pthread_sigmask(SIG_SETMASK, 0, &now);
	for (int i = 1; i < 64; i++)
		if (sigismember(&now, i) != sigismember(&mask_of_main, i))
			seen.masks++;
}

static void *count(void *p) {
	(void)p;
	while (!leaving) {
		counters[0]++;
		__asm__ volatile("" ::: "memory");
		counters[1]++;
	}
	return 0;
}

static void *watch_clock(void *p) {
	uint64_t last = prog_now();
	(void)p;
	while (!leaving) {
		uint64_t now = prog_now();
		if (now - last > gap)
			gap = now - last;
		last = now;
	}
	return 0;
}

static void *registers(void *p) {
	(void)p;
#ifdef __x86_64__
	static const uint64_t want[32] __attribute__((aligned(16))) = {
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};
	static uint64_t got[32] __attribute__((aligned(16)));
	uint64_t regs[9];
	while (!leaving) {
		__asm__ volatile(
			"movdqa 0(%0), %%xmm0\n movdqa 16(%0), %%xmm1\n movdqa 32(%0), %%xmm2\n movdqa 48(%0), %%xmm3\n"
			"movdqa 64(%0), %%xmm4\n movdqa 80(%0), %%xmm5\n movdqa 96(%0), %%xmm6\n movdqa 112(%0), %%xmm7\n"
			"movdqa 128(%0), %%xmm8\n movdqa 144(%0), %%xmm9\n movdqa 160(%0), %%xmm10\n movdqa 176(%0), %%xmm11\n"
			"movdqa 192(%0), %%xmm12\n movdqa 208(%0), %%xmm13\n movdqa 224(%0), %%xmm14\n movdqa 240(%0), %%xmm15\n"
			"movq $101, %%rbx\n movq $102, %%r8\n movq $103, %%r9\n movq $104, %%r10\n movq $105, %%r11\n"
			"movq $106, %%r12\n movq $107, %%r13\n movq $108, %%r14\n movq $109, %%r15\n"
			"movl $100000, %%ecx\n 1: decl %%ecx\n jnz 1b\n"
			"movdqa %%xmm0, 0(%1)\n movdqa %%xmm1, 16(%1)\n movdqa %%xmm2, 32(%1)\n movdqa %%xmm3, 48(%1)\n"
			"movdqa %%xmm4, 64(%1)\n movdqa %%xmm5, 80(%1)\n movdqa %%xmm6, 96(%1)\n movdqa %%xmm7, 112(%1)\n"
			"movdqa %%xmm8, 128(%1)\n movdqa %%xmm9, 144(%1)\n movdqa %%xmm10, 160(%1)\n movdqa %%xmm11, 176(%1)\n"
			"movdqa %%xmm12, 192(%1)\n movdqa %%xmm13, 208(%1)\n movdqa %%xmm14, 224(%1)\n movdqa %%xmm15, 240(%1)\n"
			"movq %%rbx, 0(%2)\n movq %%r8, 8(%2)\n movq %%r9, 16(%2)\n movq %%r10, 24(%2)\n movq %%r11, 32(%2)\n"
			"movq %%r12, 40(%2)\n movq %%r13, 48(%2)\n movq %%r14, 56(%2)\n movq %%r15, 64(%2)\n"
			: : "D"(want), "S"(got), "d"(regs)
			: "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
			"xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
		if (memcmp(want, got, sizeof got))
			seen.regs++;
		for (int i = 0; i < 9; i++)
			if (regs[i] != 101 + (uint64_t)i)
				seen.regs++;
		seen.n_regs++;
	}
#endif
	return 0;
}

/* Two threads of one CPU increase a counter in a restartable sequence: an update is lost
 * if a sequence goes on in its middle after it was interrupted. */
static volatile uint64_t sequenced;
static _Atomic uint64_t sequences;

static void *sequence(void *p) {
	cpu_set_t one;
	(void)p;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof one, &one);
#ifdef __x86_64__
	struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	if (!__rseq_size)
		return 0;
	while (!leaving) {
		__asm__ goto(
			".pushsection .data.rel, \"aw\"\n.balign 32\n3:\n.long 0, 0\n.quad 1f, 2f - 1f, 4f\n.popsection\n"
			"leaq 3b(%%rip), %%rax\n"
			"movq %%rax, %[cs]\n"
			"1:\n movq %[counter], %%rax\n"
			"movl $20000, %%ecx\n 5: decl %%ecx\n jnz 5b\n"
			"incq %%rax\n"
			"movq %%rax, %[counter]\n"
			"2:\n"
			".pushsection .text.unlikely, \"ax\"\n.byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n4:\n jmp %l[again]\n.popsection\n"
			: : [cs] "m"(area->rseq_cs), [counter] "m"(sequenced) : "rax", "rcx", "memory", "cc" : again);
		sequences++;
		seen.n_rseq++;
	again:;
	}
#endif
	return 0;
}

static _Atomic long sent, arrived;

static void on_queued(int sig, siginfo_t *si, void *u) {
	(void)sig, (void)u;
	long n = arrived++;
	if (si->si_value.sival_int != (int)n)
		seen.lost++;
}

/* The receiver of queued signals: they come to it alone, in order. */
static void *receive(void *p) {
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN + 1);
	pthread_sigmask(SIG_UNBLOCK, &s, 0);
	volatile long x = 0;
	(void)p;
	while (!leaving) {
		for (int i = 0; i < 1000; i++)
			x++;
		struct timespec t = {0, 100000};
		nanosleep(&t, 0);
	}
	pthread_sigmask(SIG_BLOCK, &s, 0);
	return 0;
}

static void *queue(void *p) {
	pthread_t to = *(pthread_t *)p;
	while (!leaving) {
		union sigval v = {.sival_int = (int)sent};
		if (sent - arrived < 16 && pthread_sigqueue(to, SIGRTMIN + 1, v) == 0) {
			sent++;
			seen.n_signals++;
		} else {
			usleep(100);
		}
		check_mask();
	}
	return 0;
}

/* A signal that is blocked and pending stays so. */
static void *pending(void *p) {
	(void)p;
	pthread_kill(pthread_self(), SIGUSR2);
	while (!leaving) {
		sigset_t s;
		sigpending(&s);
		if (!sigismember(&s, SIGUSR2))
			seen.pending++;
		check_mask();
		usleep(500);
	}
	struct timespec none = {0, 0};
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	if (sigtimedwait(&s, 0, &none) != SIGUSR2)
		seen.pending++;
	return 0;
}

/* A child that is about to run another program has copies of all descriptors. */
static pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER;

static volatile sig_atomic_t chld;
static void on_chld(int sig) { (void)sig; chld = chld + 1; }

/* Children of its own, one after the other, and waitpid(-1) between them. */
static void *families(void *p) {
	extern char **environ;
	(void)p;
	for (int i = 0; !leaving; i = (i + 1) % 100) {
		if (waitpid(-1, 0, WNOHANG) != -1 || errno != ECHILD)
			seen.waits++;
		int before = chld, status = 0;
		pid_t pid;
		char arg[16], *argv[] = {"sh", "-c", arg, 0};
		snprintf(arg, sizeof arg, "exit %d", i);
		pid_t got;
		pthread_mutex_lock(&forking);
		if (posix_spawn(&pid, "/bin/sh", 0, 0, argv, environ))
			die("posix_spawn");
		while ((got = waitpid(-1, &status, 0)) == -1 && errno == EINTR)
			;
		pthread_mutex_unlock(&forking);
		seen.n_waits++;
		if (got != pid)
			seen.waits++;
		else if (!WIFEXITED(status) || WEXITSTATUS(status) != i)
			seen.spawns++;
		for (int n = 0; n < 1000 && chld == before; n++)
			usleep(1000);
		if (chld != before + 1)
			seen.sigchld++;
		seen.n_spawns++;
		usleep(2000);
	}
	return 0;
}

static void *closer(void *p) {
	(void)p;
	while (!leaving) {
		int s[2];
		pthread_mutex_lock(&forking);
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
			die("socketpair");
		close(s[1]);
		struct pollfd f = {s[0], POLLIN, 0};
		char c;
		if (poll(&f, 1, 0) != 1 || read(s[0], &c, 1) != 0)
			seen.late++;
		pthread_mutex_unlock(&forking);
		close(s[0]);
		seen.n_sockets++;
		usleep(200);
	}
	return 0;
}

static void *number(void *p) { return p; }

static void *births(void *p) {
	(void)p;
	for (long i = 1; !leaving; i++) {
		pthread_t t[4];
		for (int j = 0; j < 4; j++)
			if (pthread_create(&t[j], 0, number, (void *)(i + j)))
				die("pthread_create");
		for (int j = 0; j < 4; j++) {
			void *r;
			pthread_join(t[j], &r);
			if (r != (void *)(i + j))
				seen.threads++;
			seen.n_threads++;
		}
		usleep(300);
	}
	return 0;
}

/* Calls that block without a signal ever coming: none may end with EINTR. */
static void *blocked(void *p) {
	long which = (long)p;
	int e = epoll_create1(0), pipes[2];
	if (pipe(pipes))
		die("pipe");
	struct epoll_event ev;
	sem_t sem;
	sem_init(&sem, 0, 0);
	while (!leaving) {
		int r = 0;
		struct timespec t = {0, 20000000}, at;
		struct pollfd f = {pipes[0], POLLIN, 0};
		errno = 0;
		switch (which) {
		case 0: r = epoll_wait(e, &ev, 1, 20); break;
		case 1: r = poll(&f, 1, 20); break;
		case 2: r = nanosleep(&t, 0); break;
		case 3: clock_gettime(CLOCK_REALTIME, &at); at.tv_nsec = (at.tv_nsec + 20000000) % 1000000000; at.tv_sec++; r = sem_timedwait(&sem, &at); break;
		case 4: r = ppoll(&f, 1, &t, 0); break;
		}
		if (r == -1 && errno == EINTR)
			seen.eintr++;
		seen.n_calls++;
		check_mask();
	}
	return 0;
}

static void *ticks(void *p) {
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec every = {{0, 1000000}, {0, 1000000}};
	uint64_t begin = prog_now(), n = 0, got;
	(void)p;
	timerfd_settime(fd, 0, &every, 0);
	while (!leaving) {
		if (read(fd, &got, sizeof got) != sizeof got)
			seen.eintr++;
		else
			n += got;
	}
	uint64_t due = (prog_now() - begin) / 1000000;
	if (n + 200 < due || n > due)
		seen.timers++;
	seen.n_ticks = (long)n;
	return 0;
}

static long descriptors(void) {
	DIR *d = opendir("/proc/self/fd");
	long n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

int main(int argc, char **argv) {
	size_t mb = argc > 1 ? (size_t)atol(argv[1]) : 1;
	char *memory = aligned_alloc(2 << 20, (mb + 2) / 2 << 21);
	if (argc > 2 && !strcmp(argv[2], "huge") && madvise(memory, mb << 20, MADV_HUGEPAGE))
		die("madvise");
	if (argc > 4 && !strcmp(argv[2], "reserve"))
		for (long i = 0; i < atol(argv[3]); i++) {
			/* A page without access keeps two apart: the kernel looks at each by itself. */
			size_t size = (size_t)atol(argv[4]) << 30;
			char *piece = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (piece == MAP_FAILED || mprotect(piece, 4096, PROT_NONE))
				die("mmap");
		}
	for (size_t i = 0; i < mb << 20; i += 4096)
		memory[i] = 1;
	struct sigaction sa = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigfillset(&sa.sa_mask);
	sigaction(SIGRTMIN + 1, &sa, 0);
	struct sigaction ch = {.sa_handler = on_chld, .sa_flags = SA_RESTART};
	sigaction(SIGCHLD, &ch, 0);
	sigemptyset(&mask_of_main);
	sigaddset(&mask_of_main, SIGRTMIN + 1);
	sigaddset(&mask_of_main, SIGUSR2);
	sigaddset(&mask_of_main, SIGCHLD);
	pthread_sigmask(SIG_SETMASK, &mask_of_main, 0);

	long fds = descriptors();
	pthread_t t[32];
	int n = 0;
	pthread_create(&t[n++], 0, count, 0);
	pthread_create(&t[n++], 0, watch_clock, 0);
	pthread_create(&t[n++], 0, registers, 0);
	pthread_create(&t[n++], 0, sequence, 0);
	pthread_create(&t[n++], 0, sequence, 0);
	pthread_create(&t[n], 0, receive, 0);
	static pthread_t to;
	to = t[n++];
	pthread_create(&t[n++], 0, queue, &to);
	pthread_create(&t[n++], 0, pending, 0);
	pthread_create(&t[n++], 0, families, 0);
	pthread_create(&t[n++], 0, closer, 0);
	pthread_create(&t[n++], 0, births, 0);
	for (long i = 0; i < 5; i++)
		pthread_create(&t[n++], 0, blocked, (void *)i);
	pthread_create(&t[n++], 0, ticks, 0);

	/* SIGCHLD comes to this thread alone. */
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGCHLD);
	pthread_sigmask(SIG_UNBLOCK, &s, 0);
	printf("counter %p\nready\n", (void *)counters);
	fflush(stdout);
	char line[64];
	for (size_t at = 0; ; at++) {
		ssize_t r;
		while ((r = read(0, line + at % sizeof line, 1)) == -1 && errno == EINTR)
			;
		if (r != 1)
			break;
		if (line[at % sizeof line] == '\n') {
			if (line[0] == 'd') {
				for (size_t i = 0; i < mb << 20; i += 4096)
					memory[i]++;
				printf("dirty\n");
			} else if (line[0] == 'm') {
				printf("%p\n", (void *)memory);
			} else {
				printf("%" PRIu64 "\n", gap / 1000);
				gap = 0;
			}
			fflush(stdout);
			at = (size_t)-1;
		}
	}
	leaving = 1;
	for (int i = 0; i < n; i++)
		pthread_join(t[i], 0);
	if (sequences != sequenced)
		seen.rseq += labs((long)(sequences - sequenced));
	if (sent != arrived) {
		pthread_sigmask(SIG_SETMASK, &mask_of_main, 0);
		struct timespec none = {0, 0};
		sigemptyset(&s);
		sigaddset(&s, SIGRTMIN + 1);
		while (sent != arrived && sigtimedwait(&s, 0, &none) > 0)
			arrived++;
		seen.lost += labs(sent - arrived);
	}
	seen.fds = labs(descriptors() - fds);
#define SAY(x) printf(#x " %ld\n", (long)seen.x)
	SAY(regs); SAY(rseq); SAY(masks); SAY(lost); SAY(pending); SAY(sigchld); SAY(waits); SAY(late);
	SAY(eintr); SAY(threads); SAY(spawns); SAY(timers);
	printf("fds %ld\n", (long)seen.fds - 16); /* 5 times an epoll and a pipe, and a timer */
	SAY(n_regs); SAY(n_rseq); SAY(n_signals); SAY(n_sockets); SAY(n_threads); SAY(n_spawns); SAY(n_ticks); SAY(n_calls); SAY(n_waits);
	printf("end\n");
	fflush(stdout);
	return 17;
}
