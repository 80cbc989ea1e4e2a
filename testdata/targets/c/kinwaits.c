// kinwaits waits for other processes in every way that has one at the other end, and logs each wait: "wait KIND BEGIN
// END PID", with CLOCK_MONOTONIC in ns and the process that ended it. The argument is how long a wait takes, in ms.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long unit;

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleeps(double units) {
	long ns = unit * 1000000 * units;
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static void die(const char *what) {
	perror(what);
	exit(1);
}

static void waited(const char *kind, long long begin, int pid) { printf("wait %s %lld %lld %d\n", kind, begin, now(), pid); }

// child makes a process that lives for some units.
static pid_t child(double units) {
	pid_t p = fork();
	if (p < 0)
		die("fork");
	if (p)
		return p;
	sleeps(units);
	_exit(0);
}

static void reap(pid_t which, const char *kind) {
	long long begin = now();
	pid_t p = waitpid(which, NULL, 0);
	if (p <= 0)
		die("waitpid");
	waited(kind, begin, p);
}

// answers makes a process that writes a byte to there after each unit, n times.
static pid_t answers(int here, int there, int n) {
	pid_t p = fork();
	if (p < 0)
		die("fork");
	if (p)
		return p;
	close(here);
	while (n--) {
		sleeps(1);
		if (write(there, "x", 1) != 1)
			_exit(1);
	}
	sleeps(.5);
	_exit(0);
}

static void asks(const char *kind, int here, int there, int n) {
	pid_t p = answers(here, there, n);
	close(there);
	while (n--) {
		char c;
		long long begin = now();
		if (read(here, &c, 1) != 1)
			die("read");
		waited(kind, begin, p);
	}
	close(here);
	waitpid(p, NULL, 0);
}

static void tcp(int n) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (void *)&a, len) || listen(l, 1) || getsockname(l, (void *)&a, &len) || connect(c, (void *)&a, len))
		die("tcp");
	int s = accept(l, NULL, NULL);
	close(l);
	asks("tcp", c, s, n);
}

// lock waits for a lock that another process holds for a unit.
static void lock(const char *path, int posix) {
	int ready[2];
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (pipe(ready))
		die("pipe");
	pid_t p = fork();
	if (p < 0)
		die("fork");
	if (!p) {
		int f = open(path, O_RDWR);
		if (posix ? fcntl(f, F_SETLKW, &l) : flock(f, LOCK_EX))
			_exit(1);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		sleeps(1);
		close(f);
		sleeps(.5);
		_exit(0);
	}
	char c;
	if (read(ready[0], &c, 1) != 1)
		die("read");
	int f = open(path, O_RDWR);
	long long begin = now();
	if (posix ? fcntl(f, F_SETLKW, &l) : flock(f, LOCK_EX))
		die("lock");
	waited(posix ? "fcntl" : "flock", begin, p);
	close(f);
	close(ready[0]);
	close(ready[1]);
	waitpid(p, NULL, 0);
}

static void nothing(int sig) { (void)sig; }

int main(int argc, char **argv) {
	if (argc != 2 || (unit = atol(argv[1])) <= 0) {
		fprintf(stderr, "usage: kinwaits MS\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	child(2), child(3), child(1);
	for (int i = 0; i < 3; i++)
		reap(-1, "any");
	pid_t first = child(1), second = child(2);
	reap(second, "one");
	waitpid(first, NULL, 0);
	int p[2];
	if (pipe(p))
		die("pipe");
	asks("pipe", p[0], p[1], 3);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, p))
		die("socketpair");
	asks("unix", p[0], p[1], 3);
	tcp(3);
	char path[] = "/tmp/kinwaits-XXXXXX";
	close(mkstemp(path));
	for (int i = 0; i < 2; i++) {
		lock(path, 0);
		lock(path, 1);
	}
	unlink(path);
	// A program that waits in poll for its descriptors and its children.
	signal(SIGCHLD, nothing);
	for (int i = 0; i < 2; i++) {
		if (pipe(p))
			die("pipe");
		long long begin = now();
		pid_t c = child(1);
		struct pollfd f = {.fd = p[0], .events = POLLIN};
		if (poll(&f, 1, -1) != -1 || errno != EINTR)
			die("poll");
		waited("poll", begin, c);
		waitpid(c, NULL, 0);
		close(p[0]);
		close(p[1]);
	}
	return 0;
}
