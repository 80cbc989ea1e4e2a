/*
 * calls: one thread for each blocking system call, with and without timeouts,
 * each in a loop. A thread says of every return whether it was EINTR, early
 * or late. Time that it waited for a CPU does not count as late.
 *
 *   calls LATE_MS [TIMEOUT_MS]
 *
 * prints a line "NAME TID" per thread and "end". At the end of its input it
 * waits until every call with a timeout has returned, prints
 * "NAME returns eintr early late maxlate_us" for each, "end", and leaves.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static long T_NS = 30000000L; /* every timeout */

static long clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static long now(void) { return clock_ns(CLOCK_MONOTONIC); }

static long coarse(void) { return clock_ns(CLOCK_MONOTONIC_COARSE); }

static struct timespec rel(void) { return (struct timespec){T_NS / 1000000000L, T_NS % 1000000000L}; }

/* Time that this thread waited for a CPU, by the file that is kept open. */
static long delayed(int schedstat)
{
	char b[128];
	long ran, delay = 0;
	ssize_t n = pread(schedstat, b, sizeof b - 1, 0);
	if (n <= 0)
		return 0;
	b[n] = 0;
	if (sscanf(b, "%ld %ld", &ran, &delay) != 2)
		return 0;
	return delay;
}

static struct timespec after(clockid_t c)
{
	struct timespec t;
	clock_gettime(c, &t);
	long ns = t.tv_nsec + T_NS;
	t.tv_sec += ns / 1000000000L;
	t.tv_nsec = ns % 1000000000L;
	return t;
}

static int fail(const char *what)
{
	perror(what);
	exit(3);
}

/* What the calls block on; nothing ever happens on any of them. */
static int ep, ev, tfd, in, tty, sock[2], timed[2], listener, mute, semid, msgid, lockfd2, child, forever, ring = -1;
static sem_t never;
static aio_context_t aio;
static mqd_t mq;
static uint32_t word;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static const struct timespec *constant;

/* Each returns what the call did, and must block for T_NS or forever. */
static long c_epoll_wait(void) { struct epoll_event e; return epoll_wait(ep, &e, 1, T_NS / 1000000); }
static long c_epoll_forever(void) { struct epoll_event e; return epoll_wait(ep, &e, 1, -1); }
static long c_epoll_pwait(void) { struct epoll_event e; sigset_t s; sigfillset(&s); return epoll_pwait(ep, &e, 1, T_NS / 1000000, &s); }
static long c_epoll_pwait2(void)
{
	struct epoll_event e;
	struct timespec t = rel();
	return syscall(441, ep, &e, 1, &t, 0, 0);
}
static long c_recv(void) { char b[8]; return recv(timed[0], b, 8, 0); }
static long c_recv_forever(void) { char b[8]; return recv(sock[0], b, 8, 0); }
static long c_recvmsg(void)
{
	char b[8];
	struct iovec v = {b, 8};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	return recvmsg(timed[0], &m, 0);
}
static long c_read_socket(void) { char b[8]; return read(timed[0], b, 8); }
static long c_accept(void) { return accept(listener, 0, 0); }
static long c_sigtimedwait(void)
{
	sigset_t s;
	struct timespec t = rel();
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	return sigtimedwait(&s, 0, &t);
}
static long c_sigwaitinfo(void) { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR2); return sigwaitinfo(&s, 0); }
static long c_semtimedop(void) { struct sembuf b = {0, -1, 0}; struct timespec t = rel(); return semtimedop(semid, &b, 1, &t); }
static long c_semop(void) { struct sembuf b = {0, -1, 0}; return semop(semid, &b, 1); }
static long c_msgrcv(void) { struct { long t; char b[8]; } m; return msgrcv(msgid, &m, 8, 0, 0); }
static long c_inotify(void) { char b[512]; return read(in, b, sizeof b); }
static long c_eventfd(void) { uint64_t v; return read(ev, &v, 8); }
static long c_timerfd(void) { uint64_t v; return read(tfd, &v, 8); }
static long c_tty(void) { char b[8]; return read(tty, b, 8); }
static long c_poll(void) { struct pollfd p = {ev, POLLIN, 0}; return poll(&p, 1, T_NS / 1000000); }
static long c_select(void)
{
	fd_set f;
	struct timeval t = {T_NS / 1000000000L, T_NS % 1000000000L / 1000};
	FD_ZERO(&f);
	FD_SET(ev, &f);
	return select(ev + 1, &f, 0, 0, &t);
}
static long c_ppoll(void)
{
	struct pollfd p = {ev, POLLIN, 0};
	struct timespec t = rel();
	sigset_t s;
	sigfillset(&s);
	return ppoll(&p, 1, &t, &s);
}
static long c_ppoll_const(void)
{
	/* A timeout that the kernel cannot write back to. */
	struct pollfd p = {ev, POLLIN, 0};
	return syscall(SYS_ppoll, &p, 1, constant, 0, 8);
}
static long c_nanosleep(void) { struct timespec t = rel(); return nanosleep(&t, 0); }
static long c_clock_rel(void) { struct timespec t = rel(); return -clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0); }
static long c_clock_abs(void) { struct timespec t = after(CLOCK_MONOTONIC); return -clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0); }
static long c_sem_timed(void) { struct timespec t = after(CLOCK_REALTIME); return sem_timedwait(&never, &t); }
static long c_sem_wait(void) { return sem_wait(&never); }
static long c_cond(void)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	struct timespec t = after(CLOCK_REALTIME);
	pthread_mutex_lock(&m);
	int e = pthread_cond_timedwait(&c, &m, &t);
	pthread_mutex_unlock(&m);
	errno = e;
	return -1;
}
static long c_mutex(void)
{
	struct timespec t = after(CLOCK_REALTIME);
	errno = pthread_mutex_timedlock(&held, &t);
	return -1;
}
static long c_futex_rel(void) { struct timespec t = rel(); return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, 0, 0); }
static long c_io_getevents(void)
{
	struct io_event e;
	struct timespec t = rel();
	return syscall(SYS_io_getevents, aio, 1, 1, &e, &t);
}
static long c_io_uring(void) { return syscall(426, ring, 0, 1, 1, 0, 0); }
static long c_io_uring_timed(void)
{
	struct timespec t = rel();
	struct {
		uint64_t sigmask;
		uint32_t size, min_wait;
		uint64_t ts;
	} arg = {0, 8, 0, (uint64_t)(uintptr_t)&t};
	return syscall(426, ring, 0, 1, 1 | 8, &arg, sizeof arg); /* IORING_ENTER_GETEVENTS, _EXT_ARG */
}
static long c_epoll_pwait2_forever(void) { struct epoll_event e; return syscall(441, ep, &e, 1, 0, 0, 0); }
static long c_accept_forever(void) { return accept(mute, 0, 0); }
static long c_poll_forever(void) { struct pollfd p = {ev, POLLIN, 0}; return poll(&p, 1, -1); }
static long c_ppoll_forever(void) { struct pollfd p = {ev, POLLIN, 0}; sigset_t s; sigfillset(&s); return ppoll(&p, 1, 0, &s); }
static long c_select_forever(void)
{
	fd_set f;
	FD_ZERO(&f);
	FD_SET(ev, &f);
	return select(ev + 1, &f, 0, 0, 0);
}
static long c_mutex_forever(void) { errno = pthread_mutex_lock(&held); return -1; }
static long c_cond_forever(void)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	pthread_mutex_lock(&m);
	errno = pthread_cond_wait(&c, &m);
	pthread_mutex_unlock(&m);
	return -1;
}
static long c_io_getevents_forever(void) { struct io_event e; return syscall(SYS_io_getevents, aio, 1, 1, &e, 0); }
static long c_mq_forever(void) { char b[64]; return mq_receive(mq, b, sizeof b, 0); }
static long c_wait4(void) { return wait4(child, 0, 0, 0); }
static long c_flock(void) { return flock(lockfd2, LOCK_EX); }
static long c_mq(void)
{
	char b[64];
	struct timespec t = after(CLOCK_REALTIME);
	return mq_timedreceive(mq, b, sizeof b, 0, &t);
}
static long c_pipe(void) { char b[8]; return read(forever, b, 8); }

static struct call {
	const char *name;
	long (*f)(void);
	int endless;
	/* The kernel counts SO_RCVTIMEO in ticks. Where a virtual machine has no CPU for a time, they are late and then come
	 * together: a call that began with late ticks ends early. The coarse clock goes with them (kernel/time/tick-sched.c,
	 * tick_do_update_jiffies64). */
	int ticks;
	pid_t tid;
	long n, eintr, early, late, maxlate;
} calls[] = {
	{"epoll_wait", c_epoll_wait}, {"epoll_wait-forever", c_epoll_forever, 1}, {"epoll_pwait", c_epoll_pwait},
	{"epoll_pwait2", c_epoll_pwait2}, {"recv", c_recv, 0, 1}, {"recv-forever", c_recv_forever, 1}, {"recvmsg", c_recvmsg, 0, 1},
	{"read-socket", c_read_socket, 0, 1}, {"accept", c_accept, 0, 1}, {"sigtimedwait", c_sigtimedwait},
	{"sigwaitinfo", c_sigwaitinfo, 1}, {"semtimedop", c_semtimedop}, {"semop", c_semop, 1}, {"msgrcv", c_msgrcv, 1},
	{"inotify", c_inotify, 1}, {"eventfd", c_eventfd, 1}, {"timerfd", c_timerfd, 1}, {"tty", c_tty, 1},
	{"poll", c_poll}, {"select", c_select}, {"ppoll", c_ppoll}, {"ppoll-const", c_ppoll_const},
	{"nanosleep", c_nanosleep}, {"clock_nanosleep-rel", c_clock_rel}, {"clock_nanosleep-abs", c_clock_abs},
	{"sem_timedwait", c_sem_timed}, {"sem_wait", c_sem_wait, 1}, {"cond_timedwait", c_cond}, {"mutex_timedlock", c_mutex},
	{"futex", c_futex_rel}, {"io_getevents", c_io_getevents}, {"io_uring_enter", c_io_uring, 1}, {"wait4", c_wait4, 1},
	{"flock", c_flock, 1}, {"mq_timedreceive", c_mq}, {"pipe", c_pipe, 1}, {"io_uring_enter-timed", c_io_uring_timed},
	{"epoll_pwait2-forever", c_epoll_pwait2_forever, 1}, {"accept-forever", c_accept_forever, 1},
	{"poll-forever", c_poll_forever, 1}, {"ppoll-forever", c_ppoll_forever, 1}, {"select-forever", c_select_forever, 1},
	{"mutex_lock", c_mutex_forever, 1}, {"cond_wait", c_cond_forever, 1},
	{"io_getevents-forever", c_io_getevents_forever, 1}, {"mq_receive", c_mq_forever, 1},
};
#define N (sizeof calls / sizeof *calls)

/* without leaves out the calls of that name, which this kernel lacks. */
static void without(const char *name)
{
	for (size_t i = 0; i < N; i++)
		if (!strncmp(calls[i].name, name, strlen(name)))
			calls[i].f = 0;
}

static long late_ns;

static void *run(void *p)
{
	struct call *c = p;
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", syscall(SYS_gettid));
	int stat = open(path, O_RDONLY);
	__atomic_store_n(&c->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	for (;;) {
		long waited = delayed(stat);
		long from = now(), tick = coarse();
		long r = c->f();
		int e = r < -1 ? (int)-r : errno;
		long ticked = coarse() - tick;
		long took = now() - from, late = took - T_NS - (delayed(stat) - waited);
		__atomic_add_fetch(&c->n, 1, __ATOMIC_SEQ_CST);
		if (r < 0 && e == EINTR)
			c->eintr++;
		else if (c->endless || (c->ticks ? ticked < T_NS - 10000000 : took < T_NS - 1000000))
			c->early++;
		if (!c->endless) {
			if (late > c->maxlate)
				c->maxlate = late;
			if (late > late_ns)
				c->late++;
		}
		if (c->endless)
			usleep(1000);
	}
	return 0;
}

static void set_up(void)
{
	char name[64];
	int p[2];
	struct timeval tv = {T_NS / 1000000000L, T_NS % 1000000000L / 1000};
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	sigprocmask(SIG_BLOCK, &s, 0);
	ep = epoll_create1(0);
	ev = eventfd(0, 0);
	struct epoll_event e = {.events = EPOLLIN};
	if (epoll_ctl(ep, EPOLL_CTL_ADD, ev, &e))
		fail("epoll_ctl");
	tfd = timerfd_create(CLOCK_MONOTONIC, 0);
	in = inotify_init1(0);
	inotify_add_watch(in, "/proc/self/fd", IN_CREATE);
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0 || grantpt(master) || unlockpt(master) || (tty = open(ptsname(master), O_RDWR | O_NOCTTY)) < 0)
		fail("pty");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock) || socketpair(AF_UNIX, SOCK_STREAM, 0, timed))
		fail("socketpair");
	listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 1))
		fail("listen");
	mute = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(mute, (struct sockaddr *)&a, sizeof a) || listen(mute, 1))
		fail("listen");
	struct timespec *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		fail("mmap");
	*page = rel();
	mprotect(page, 4096, PROT_READ);
	constant = page;
	setsockopt(timed[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	if ((semid = semget(IPC_PRIVATE, 1, 0600)) < 0 || (msgid = msgget(IPC_PRIVATE, 0600)) < 0)
		fail("ipc");
	sem_init(&never, 0, 0);
	pthread_mutex_lock(&held);
	if (syscall(SYS_io_setup, 4, &aio))
		without("io_getevents");
	uint32_t params[30] = {0};
	if ((ring = (int)syscall(425, 4, params)) < 0)
		without("io_uring_enter");
	else if (c_io_uring_timed() >= 0 || errno != ETIME)
		without("io_uring_enter-timed");
	snprintf(name, sizeof name, "/sliver-calls-%d", getpid());
	mq = mq_open(name, O_RDWR | O_CREAT, 0600, &(struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 64});
	if (mq == (mqd_t)-1)
		without("mq_");
	else
		mq_unlink(name);
	int f = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	snprintf(name, sizeof name, "/proc/self/fd/%d", f);
	lockfd2 = open(name, O_RDWR);
	if (f < 0 || lockfd2 < 0 || flock(f, LOCK_EX))
		fail("flock");
	if (pipe(p))
		fail("pipe");
	forever = p[0];
	int life[2];
	if (pipe(life))
		fail("pipe");
	child = fork();
	if (child == 0) {
		char c;
		close(life[1]);
		while (read(life[0], &c, 1) > 0)
			;
		_exit(0);
	}
}

int main(int argc, char **argv)
{
	char c;
	late_ns = (argc > 1 ? atol(argv[1]) : 20) * 1000000L;
	if (argc > 2)
		T_NS = atol(argv[2]) * 1000000L;
	set_up();
	for (size_t i = 0; i < N; i++) {
		pthread_t t;
		if (!calls[i].f)
			continue;
		if (pthread_create(&t, 0, run, &calls[i]))
			return 3;
	}
	for (size_t i = 0; i < N; i++) {
		if (!calls[i].f)
			continue;
		while (!__atomic_load_n(&calls[i].tid, __ATOMIC_SEQ_CST))
			usleep(1000);
		printf("%s %d\n", calls[i].name, calls[i].tid);
	}
	puts("end");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	/* Left alone now, every call with a timeout comes back. */
	for (size_t i = 0; i < N; i++)
		while (calls[i].f && !calls[i].endless && !__atomic_load_n(&calls[i].n, __ATOMIC_SEQ_CST))
			usleep(1000);
	for (size_t i = 0; i < N; i++)
		if (calls[i].f)
			printf("%s %ld %ld %ld %ld %ld\n", calls[i].name, calls[i].n, calls[i].eintr, calls[i].early, calls[i].late,
			       calls[i].maxlate / 1000);
	puts("end");
	fflush(stdout);
	semctl(semid, 0, IPC_RMID);
	msgctl(msgid, IPC_RMID, 0);
	return 0;
}
