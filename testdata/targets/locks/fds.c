// Descriptors of every kind, one thread blocked in a call on each. Usage:
// fds DIR; DIR is an empty folder for what needs a path.
// Prints {"threads":[{"name":…,"tid":…,"want":…},…],"child":PID}: want is what
// a description of the wait must contain. It ends when its standard input does.
#include "prog.h"
#include <stdarg.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { MAX = 32 };

static struct task {
	const char *name;
	int fd, tid;
	char want[256];
} tasks[MAX];
static int n;
static pid_t child;

static int must(int v, const char *what) {
	if (v < 0)
		die(what);
	return v;
}

// A task reads from its descriptor, but for those whose name says otherwise.
FRAME void block(struct task *t) {
	char buf[64 << 10];
	struct epoll_event ev;
	struct pollfd p = {t->fd, POLLIN, 0};
	struct timespec ts = {3600, 0};
	memset(buf, 0, sizeof buf);
	if (!strcmp(t->name, "epoll_wait"))
		epoll_wait(t->fd, &ev, 1, 3600000);
	else if (!strcmp(t->name, "poll"))
		poll(&p, 1, -1);
	else if (!strcmp(t->name, "select")) {
		fd_set set;
		FD_ZERO(&set);
		FD_SET(t->fd, &set);
		select(t->fd + 1, &set, NULL, NULL, NULL);
	} else if (!strcmp(t->name, "nanosleep"))
		nanosleep(&ts, NULL);
	else if (!strcmp(t->name, "wait4"))
		waitpid(child, NULL, 0);
	else if (!strcmp(t->name, "waitid-pidfd"))
		syscall(SYS_waitid, 3, t->fd, buf, WEXITED, NULL); // P_PIDFD
	else if (!strcmp(t->name, "accept"))
		accept(t->fd, NULL, NULL);
	else if (!strcmp(t->name, "open-fifo"))
		open(t->want, O_RDONLY);
	else if (!strcmp(t->name, "pipe-write"))
		while (write(t->fd, buf, sizeof buf) > 0)
			;
	else if (!strcmp(t->name, "msgrcv"))
		msgrcv(t->fd, buf, 8, 0, 0);
	else if (!strcmp(t->name, "semop")) {
		struct sembuf down = {0, -1, 0};
		semop(t->fd, &down, 1);
	} else if (!strcmp(t->name, "mq"))
		syscall(SYS_mq_timedreceive, t->fd, buf, sizeof buf, NULL, NULL);
	else if (!strcmp(t->name, "sigwait")) {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigtimedwait(&set, NULL, &ts);
	} else
		while (read(t->fd, buf, sizeof buf) > 0)
			;
}

static void *task_main(void *arg) {
	struct task *t = (struct task *)arg;
	__atomic_store_n(&t->tid, prog_tid(), __ATOMIC_RELEASE);
	block(t);
	return NULL;
}

static struct task *add(const char *name, int fd, const char *format, ...) {
	va_list v;
	struct task *t = &tasks[n++];
	va_start(v, format);
	t->name = name;
	t->fd = fd;
	vsnprintf(t->want, sizeof t->want, format, v);
	va_end(v);
	return t;
}

int main(int argc, char **argv) {
	if (argc != 2 || chdir(argv[1]))
		return 2;
	char dir[128];
	if (!getcwd(dir, sizeof dir))
		die("getcwd");
	prog_ready(0);
	signal(SIGPIPE, SIG_IGN);
	int in[2], out[2], self[2], pair[2], told[2];
	if (pipe(in) || pipe(out) || pipe(told))
		die("pipe");
	// The child holds the other ends of two pipes, and of a UNIX connection.
	struct sockaddr_un ua = {.sun_family = AF_UNIX};
	snprintf(ua.sun_path, sizeof ua.sun_path, "y.sock");
	int ul = must(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
	must(bind(ul, (struct sockaddr *)&ua, sizeof ua), "bind");
	must(listen(ul, 4), "listen");
	child = must(fork(), "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "other end");
		close(in[0]);
		close(out[1]);
		must(accept(ul, NULL, NULL), "accept");
		must((int)write(told[1], "x", 1), "tell");
		for (;;)
			pause();
	}
	close(in[1]);
	close(out[0]);
	if (pipe(self) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("pipe");
	int uc = must(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
	must(connect(uc, (struct sockaddr *)&ua, sizeof ua), "connect");
	char c;
	must((int)read(told[0], &c, 1), "hear"); // a thread below must not accept the child's connection
	add("pipe-read", in[0], "pipe from PID %d (other end)", child);
	add("pipe-write", out[1], "pipe to PID %d (other end)", child);
	add("pipe-self", self[0], "pipe within the process");
	add("unix-client", uc, "unix y.sock to PID %d (other end)", child);
	add("unix-pair", pair[0], "unix stream within the process");
	add("accept", ul, "unix y.sock listening");

	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int tl = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
	must(bind(tl, (struct sockaddr *)&a, sizeof a), "bind");
	must(listen(tl, 4), "listen");
	getsockname(tl, (struct sockaddr *)&a, &len);
	int tc = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
	must(connect(tc, (struct sockaddr *)&a, sizeof a), "connect");
	must(accept(tl, NULL, NULL), "accept");
	add("tcp", tc, "tcp 127.0.0.1:%d established", ntohs(a.sin_port));
	add("accept", tl, "tcp 127.0.0.1:%d listening", ntohs(a.sin_port));
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int ud6 = socket(AF_INET6, SOCK_DGRAM, 0);
	len = sizeof a6;
	if (ud6 >= 0 && !bind(ud6, (struct sockaddr *)&a6, sizeof a6) && !getsockname(ud6, (struct sockaddr *)&a6, &len))
		add("udp6", ud6, "udp [::1]:%d", ntohs(a6.sin6_port));
	int ud = must(socket(AF_INET, SOCK_DGRAM, 0), "socket");
	a.sin_port = 0;
	must(bind(ud, (struct sockaddr *)&a, sizeof a), "bind");
	len = sizeof a;
	getsockname(ud, (struct sockaddr *)&a, &len);
	add("udp", ud, "udp 127.0.0.1:%d", ntohs(a.sin_port));

	add("eventfd", must(eventfd(0, 0), "eventfd"), "eventfd");
	int tm = must(timerfd_create(CLOCK_MONOTONIC, 0), "timerfd_create");
	struct itimerspec it = {{0, 0}, {3600, 0}};
	must(timerfd_settime(tm, 0, &it, NULL), "timerfd_settime");
	add("timerfd", tm, "timerfd, 3");
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	add("signalfd", must(signalfd(-1, &set, 0), "signalfd"), "signalfd of HUP,USR2");
	int ep = must(epoll_create1(0), "epoll_create1");
	for (int i = 0; i < 3; i++) {
		struct epoll_event ev = {.events = EPOLLIN};
		must(epoll_ctl(ep, EPOLL_CTL_ADD, must(eventfd(0, 0), "eventfd"), &ev), "epoll_ctl");
	}
	add("epoll_wait", ep, "epoll of 3");
	add("poll", uc, "unix y.sock");
	add("select", tc, "tcp 127.0.0.1:");
	int no = must(inotify_init1(0), "inotify_init1");
	must(inotify_add_watch(no, ".", IN_CREATE), "inotify_add_watch");
	add("inotify", no, "inotify of 1");
	int pfd = (int)syscall(SYS_pidfd_open, child, 0);
	if (pfd >= 0)
		add("waitid-pidfd", pfd, "pidfd of %d", child);
	add("wait4", -1, "child %d (other end)", child);
	add("nanosleep", -1, "1h0m0s");
	add("sigwait", -1, "USR1");
	if (!unshare(CLONE_NEWIPC)) { // they end with the program then
		int id = must(msgget(IPC_PRIVATE, 0600), "msgget");
		add("msgrcv", id, "message queue %d", id);
		id = must(semget(IPC_PRIVATE, 1, 0600), "semget");
		add("semop", id, "semaphore set %d", id);
		id = must((int)syscall(SYS_mq_open, "jobs", O_RDONLY | O_CREAT, 0600, NULL), "mq_open");
		add("mq", id, "message queue /jobs");
	}
	int pt = posix_openpt(O_RDWR | O_NOCTTY);
	if (pt >= 0 && !grantpt(pt) && !unlockpt(pt)) {
		int tty = must(open(ptsname(pt), O_RDWR | O_NOCTTY), "open terminal");
		add("terminal", tty, "terminal %s", ptsname(pt));
	}
	must(mkfifo("fifo", 0600), "mkfifo");
	int ff = must(open("fifo", O_RDWR), "open fifo"); // so that the open below would not block
	add("fifo", ff, "fifo %s/fifo", dir);
	must(mkfifo("lonely", 0600), "mkfifo");
	add("open-fifo", -1, "%s/lonely", dir);
	for (int i = 0; i < n; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, task_main, &tasks[i]))
			die("pthread_create");
	}
	for (int i = 0; i < n; i++)
		while (!__atomic_load_n(&tasks[i].tid, __ATOMIC_ACQUIRE))
			sched_yield();
	// Not waited on, but to be described.
	int gone = must(open("gone", O_RDWR | O_CREAT, 0600), "open");
	unlink("gone");
	int mem = (int)syscall(SYS_memfd_create, "scratch", 0u);
	int file = must(open("x.db", O_RDWR | O_CREAT, 0600), "open");
	printf("{\"child\":%d,\"open\":[{\"fd\":%d,\"want\":\"%s/gone (deleted)\"},{\"fd\":%d,\"want\":\"memfd scratch\"},"
	       "{\"fd\":%d,\"want\":\"%s/x.db\"}],\"threads\":[",
	       child, gone, dir, mem, file, dir);
	for (int i = 0; i < n; i++)
		printf("%s{\"name\":\"%s\",\"tid\":%d,\"want\":\"%s\"}", i ? "," : "", tasks[i].name, tasks[i].tid, tasks[i].want);
	printf("]}\n");
	fflush(stdout);
	prog_await();
	kill(child, SIGKILL);
	_exit(0);
}
